# SPDX-License-Identifier: Apache-2.0
"""Unsafe ways to start the console are refused; certificates are checked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_settings import PasswordLogin, SecuritySettings, TlsSettings
from headrace.console.web.logins import Attempts, Logins
from headrace.console.web.server import open_socket, tls_context, url_of
from headrace.console.web.settings import WebSettings
from headrace.secret import Secret

CERT = Path("console.pem")


def settings(**given: Any) -> WebSettings:
    return WebSettings(cluster=given.pop("cluster", Cluster(bootstrap="127.0.0.1:9092")), **given)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "streams.example.org"])
@pytest.mark.parametrize(
    "given", [{}, {"login": True}, {"certificate": CERT}, {"allowed_hosts": ("streams.example.org",)}]
)
def test_other_addresses_need_logins_and_tls(host: str, given: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="others can reach the console"):
        settings(host=host, **given)


@pytest.mark.parametrize("given", [{"certificate": CERT}, {"behind_tls_proxy": True}])
def test_with_logins_and_tls_every_address_is_allowed(given: dict[str, Any]) -> None:
    assert settings(host="0.0.0.0", login=True, **given).scheme == "https"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_the_own_host_needs_neither(host: str) -> None:
    assert settings(host=host).scheme == "http"


@pytest.mark.parametrize(
    "given",
    [
        {"key": CERT},
        {"behind_tls_proxy": True},
        {"behind_tls_proxy": True, "certificate": CERT, "login": True},
    ],
)
def test_contradictions_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        settings(**given)


@pytest.mark.parametrize(
    ("bootstrap", "tls", "offered"),
    [
        ("127.0.0.1:9092", None, True),
        ("kafka:9092", None, False),
        ("127.0.0.1:9092,kafka:9092", None, False),
        ("kafka:9093", TlsSettings(), True),
    ],
)
def test_plain_is_offered_only_where_nobody_can_listen(
    bootstrap: str, tls: TlsSettings | None, offered: bool
) -> None:
    cluster = Cluster(bootstrap=bootstrap, security=SecuritySettings(tls=tls))
    assert settings(cluster=cluster).plain_is_safe is offered


def test_a_visitor_never_has_the_login_of_the_command_line() -> None:
    tls = TlsSettings(authorities_file="ca.pem")
    own = PasswordLogin(mechanism="SCRAM-SHA-512", user="admin", password=Secret("of the admin"))
    cluster = Cluster(bootstrap="kafka:9093", security=SecuritySettings(tls=tls, login=own))
    logins = Logins(cluster, plain_is_safe=True)
    login = logins.read({"user": "ann", "password": "x", "mechanism": "PLAIN"})
    assert logins.cluster_for(login).security == SecuritySettings(tls=tls, login=login)


def test_a_taken_port_is_told() -> None:
    with open_socket(settings(port=0)) as sock:
        port = sock.getsockname()[1]
        assert url_of(settings(port=0), sock) == f"http://127.0.0.1:{port}/"
        with pytest.raises(ClientError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*--port"):
            open_socket(settings(port=port))


def test_an_unusable_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"none\.pem cannot be used for TLS: No such file"):
        tls_context(settings(certificate=tmp_path / "none.pem"))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not PEM")
    with pytest.raises(ClientError, match=r"wrong\.pem cannot be used for TLS"):
        tls_context(settings(certificate=wrong))


def test_failed_attempts_are_forgotten_with_time_and_bounded_in_number() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0], at_once=2, every_s=10, keys=3)
    for _ in range(4):
        attempts.failed("a")
    assert attempts.wait_s("a") == 30
    now[0] = 30
    assert attempts.wait_s("a") == 0
    for key in "bcdef":
        attempts.failed(key)
    assert len(attempts._failures) == 3


def test_while_no_broker_answers_all_safe_mechanisms_are_offered() -> None:
    logins = Logins(Cluster(bootstrap="127.0.0.1:1"), plain_is_safe=False)
    assert asyncio.run(logins.mechanisms()) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
