# SPDX-License-Identifier: Apache-2.0
"""The parts of the security benchmark that compute: listeners, SCRAM messages, pace of attacks, figures."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
import struct
from pathlib import Path

import pytest

from bench.attacks import paced
from bench.measures.security_own import ACLS, acl_figures, attack_figures, client_hello, thousand_bindings
from bench.raw_sasl import LoginRefusedError, ScramExchange, authenticate_reply
from bench.secured import headrace_listeners, kafka_listeners, make_certificates, secured_settings
from headrace.scram_credential import make_credential

PORTS = {"TLS": 1, "LOGIN": 2, "SASL": 3}


def test_apache_kafka_keeps_its_own_listeners_beside_the_guarded_ones() -> None:
    own = (
        "listeners=PLAINTEXT://h:9,CONTROLLER://h:8\nadvertised.listeners=PLAINTEXT://h:9\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    )
    guarded = "TLS://127.0.0.1:1,LOGIN://127.0.0.1:2,SASL://127.0.0.1:3"
    assert kafka_listeners(own, PORTS).splitlines() == [
        f"listeners=PLAINTEXT://h:9,CONTROLLER://h:8,{guarded}",
        f"advertised.listeners=PLAINTEXT://h:9,{guarded}",
        (
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "TLS:SSL,LOGIN:SASL_SSL,SASL:SASL_PLAINTEXT"
        ),
    ]
    with pytest.raises(ValueError, match="has no listeners"):
        kafka_listeners("", PORTS)


def test_headrace_gets_a_listener_argument_for_each() -> None:
    assert headrace_listeners({"TLS": 1}) == ["--listener", "tls=127.0.0.1:1,protocol=SSL"]


def test_certificates_are_made_and_both_engines_get_the_same_files(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    context = ssl.create_default_context(cafile=certificates.authority)
    context.load_cert_chain(certificates.admin)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificates.node)
    assert certificates.node.stat().st_mode & 0o777 == 0o600
    ours, theirs = (secured_settings(certificates, name) for name in ("headrace", "kafka"))
    assert ours.items() <= theirs.items()
    assert all("jaas" in key for key in theirs.keys() - ours.keys())
    assert client_hello(context)[0] == 0x16


def test_scram_messages_are_those_of_rfc_5802() -> None:
    exchange = ScramExchange("user", "pencil", nonce="abc")
    assert exchange.first() == b"n,,n=user,r=abc"
    server_first = b"r=abcdef,s=c2FsdA==,i=4096"
    final = exchange.final(server_first).decode()
    assert final.startswith("c=biws,r=abcdef,p=")
    _assert_proof(final, b"n=user,r=abc," + server_first + b",c=biws,r=abcdef")
    with pytest.raises(LoginRefusedError, match="signature"):
        exchange.check(b"v=AAAA")


def _assert_proof(final: str, signed: bytes) -> None:
    """As a server verifies it: the proof yields the key whose hash is stored."""
    stored = make_credential("sha512", b"pencil", b"salt", 4096).stored_key
    proof = base64.b64decode(final.partition(",p=")[2])
    mask = hmac.digest(stored, signed, "sha512")
    key = bytes(left ^ right for left, right in zip(proof, mask, strict=True))
    assert hashlib.sha512(key).digest() == stored


def test_a_refused_login_is_an_error() -> None:
    accepted = struct.pack(">ihhi", 0, 0, -1, 3) + b"v=x" + bytes(8)
    assert authenticate_reply(accepted) == b"v=x"
    refused = struct.pack(">ihh", 0, 58, 4) + b"nope" + struct.pack(">i", 0) + bytes(8)
    with pytest.raises(LoginRefusedError, match="58: nope"):
        authenticate_reply(refused)


def test_an_attack_keeps_its_rate_and_ends() -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    times = [now[0] for _ in paced(10, 2.0, lambda: now[0], sleep)]
    assert len(times) == pytest.approx(20, abs=1)
    assert times[10] - times[0] == pytest.approx(1.0)
    assert now[0] >= 102.0


def test_the_cost_of_acls_is_the_median_over_pairs_of_slices() -> None:
    figures = acl_figures("single", [(10.0, 10.2), (20.0, 21.0), (10.0, 30.0)])
    assert figures["single_cost_percent"] == pytest.approx(5.0)
    assert (figures["single_open_us"], figures["single_authorized_us"]) == (10.0, 21.0)


def test_attacks_are_compared_with_the_quiet_p99() -> None:
    figures = attack_figures([100.0] * 99 + [900.0], {"logins": [250.0] * 100})
    assert figures == {"quiet_p99_us": 100.0, "logins_p99_us": 250.0, "logins_ratio": 2.5}


def test_there_are_a_thousand_different_acls() -> None:
    assert len({str(binding) for binding in thousand_bindings()}) == ACLS
