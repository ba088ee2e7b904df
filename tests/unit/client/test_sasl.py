# SPDX-License-Identifier: Apache-2.0
"""SASL conversations against the RFCs' own examples, a server of our own, and servers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.sasl import AuthenticationFailed, OAuthBearer, Plain, ScramSha256, ScramSha512

RFC_7677_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_7677_PROOF = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def scram_server(
    password: str, hash_name: str, *, iterations: str = "4096", nonce: Callable[[str], str] | None = None
) -> Any:
    """The other side of RFC 5802, written from the RFC: yields replies, is sent messages."""
    client_first = (yield b"").decode()
    bare = client_first.removeprefix("n,,")
    client_nonce = bare.partition(",r=")[2]
    full = nonce(client_nonce) if nonce else client_nonce + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server_first = f"r={full},s={base64.b64encode(salt).decode()},i={iterations}"
    final = (yield server_first.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, int(iterations))
    signed = f"{bare},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    if base64.b64decode(proof) != bytes(a ^ b for a, b in zip(client_key, signature, strict=True)):
        yield b"e=invalid-proof"
    verifier = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    yield b"v=" + base64.b64encode(verifier)


def talk(mechanism: Any, server: Any) -> list[bytes]:
    """What the client said until it was satisfied."""
    next(server)
    conversation = mechanism.conversation()
    said = [next(conversation)]
    while True:
        try:
            said.append(conversation.send(server.send(said[-1])))
        except StopIteration:
            return said


def test_plain_is_one_message() -> None:
    conversation = Plain("tim", "tanstaaftanstaaf").conversation()
    assert next(conversation) == b"\0tim\0tanstaaftanstaaf"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_scram_messages_match_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.client.sasl.secrets.token_urlsafe", lambda _: RFC_7677_NONCE)
    assert talk(ScramSha256("user", "pencil"), scram_server("pencil", "sha256")) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + RFC_7677_PROOF,
    ]


@pytest.mark.parametrize(("mechanism", "hash_name"), [(ScramSha256, "sha256"), (ScramSha512, "sha512")])
def test_scram_with_any_name_and_password(mechanism: Any, hash_name: str) -> None:
    said = talk(mechanism("a=b,c", "pässword, with=all"), scram_server("pässword, with=all", hash_name))
    assert said[0].startswith(b"n,,n=a=3Db=2Cc,r=")
    assert mechanism.name == f"SCRAM-SHA-{hash_name[3:]}"


def test_every_login_has_a_nonce_of_its_own() -> None:
    first, second = (next(ScramSha256("u", "p").conversation()) for _ in range(2))
    assert first != second


def test_a_wrong_password_is_the_brokers_error() -> None:
    with pytest.raises(AuthenticationFailed, match="invalid-proof"):
        talk(ScramSha256("user", "pen"), scram_server("pencil", "sha256"))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (lambda: scram_server("x", "sha256", nonce=lambda ours: "other" + ours), "nonce"),
        (lambda: scram_server("x", "sha256", nonce=lambda ours: ours), "nonce"),
        (lambda: scram_server("x", "sha256", iterations="100"), "100 SCRAM iterations"),
        (lambda: scram_server("x", "sha256", iterations="2000000000"), "2000000000 SCRAM iterations"),
        (lambda: iter_of(b"", b"r=1,s=2"), "nonce"),
        (lambda: iter_of(b"", b"nonsense"), "has no 'r'"),
    ],
    ids=["other nonce", "our own nonce", "few", "too many", "short", "nonsense"],
)
def test_a_broker_that_cheats_is_left(server: Callable[[], Any], words: str) -> None:
    with pytest.raises(AuthenticationFailed, match=words):
        talk(ScramSha256("user", "x"), server())


def test_a_broker_without_the_password_is_not_trusted() -> None:
    def impostor() -> Any:
        first = yield b""
        real = scram_server("pencil", "sha256")
        next(real)
        yield real.send(first)
        yield b"v=" + base64.b64encode(b"0" * 32)

    with pytest.raises(AuthenticationFailed, match="may be an impostor"):
        talk(ScramSha256("user", "pencil"), impostor())


def iter_of(*replies: bytes) -> Any:
    for reply in replies:
        _ = yield reply  # takes what is said to it


def test_a_token_is_asked_for_at_every_login() -> None:
    tokens = iter(("one", "two"))
    mechanism = OAuthBearer(token=lambda: next(tokens), extensions={"logicalCluster": "lkc-1"})
    assert talk(mechanism, iter_of(b"", b"")) == [b"n,,\1auth=Bearer one\1logicalCluster=lkc-1\1\1"]
    assert next(mechanism.conversation()).startswith(b"n,,\1auth=Bearer two")


def test_a_refused_token_names_the_reason() -> None:
    with pytest.raises(AuthenticationFailed, match=r"refuses the token: .*invalid_token"):
        talk(OAuthBearer(token=lambda: "old"), iter_of(b"", b'{"status":"invalid_token"}', b""))


def test_secrets_are_not_shown() -> None:
    shown = repr([Plain("u", "secret"), ScramSha256("u", "secret"), OAuthBearer(token=lambda: "secret")])
    assert "secret" not in shown
    assert "lambda" not in shown
