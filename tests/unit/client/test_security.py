# SPDX-License-Identifier: Apache-2.0
"""Logging in over a connection: what is asked in which order, and what a no becomes."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any

import pytest

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.sasl import AuthenticationFailed, OAuthBearer, Plain
from headrace.client.security import Security
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.client.fake_broker import SERVED, FakeBroker

SASL_SERVED = [
    {"api_key": ApiKey.SASL_HANDSHAKE, "min_version": 0, "max_version": 1},
    {"api_key": ApiKey.SASL_AUTHENTICATE, "min_version": 0, "max_version": 2},
]


class LoginBroker(FakeBroker):
    """Says yes to every login unless told otherwise."""

    def __init__(
        self, *, handshake: dict[str, Any] | None = None, answer: dict[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.served = SERVED + SASL_SERVED
        self.handshake = handshake or {"mechanisms": ["PLAIN"]}
        self.answer = answer or {}

    def take(self, frame: bytes) -> None:
        super().take(frame)
        if not self.requests:
            return
        key, version, correlation_id = self.requests[-1]
        fields = self.handshake if key == ApiKey.SASL_HANDSHAKE else {"auth_bytes": b"", **self.answer}
        self.reply(key, version, correlation_id, fields)


def log_in(broker: FakeBroker, security: Security) -> Connection:
    async def main() -> Connection:
        options = security.open_options()
        options["connect"] = broker.connect
        connection = await Connection.open("host", 9092, timeout_ms=2000, **options)
        await asyncio.sleep(0.02)
        return connection

    return asyncio.run(main())


def test_the_mechanism_is_agreed_on_first() -> None:
    broker = LoginBroker()
    assert log_in(broker, Security(sasl=Plain("ann", "secret"))).is_open
    assert [(key, version) for key, version, _ in broker.requests] == [(17, 1), (36, 2)]
    assert broker.transport.written[-1].endswith(b"\0ann\0secret\0")


def test_without_sasl_there_is_no_login() -> None:
    broker = LoginBroker()
    assert log_in(broker, Security()).is_open
    assert broker.requests == []


def test_a_token_is_fetched_off_the_loop() -> None:
    threads = []

    def token() -> str:
        threads.append(threading.current_thread())
        return "abc"

    log_in(LoginBroker(), Security(sasl=OAuthBearer(token=token)))
    assert threads != [threading.main_thread()]


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        (FakeBroker(), "the listener at host:9092 does not offer SASL"),
        (
            LoginBroker(handshake={"error_code": 33, "mechanisms": ["GSSAPI", "OAUTHBEARER"]}),
            "host:9092 does not offer PLAIN; it offers GSSAPI, OAUTHBEARER",
        ),
        (
            LoginBroker(handshake={"error_code": ErrorCode.illegal_sasl_state}),
            "refuses SASL: illegal_sasl_state; check that this listener asks for SASL",
        ),
        (
            LoginBroker(answer={"error_code": 58, "error_message": "no such user"}),
            "host:9092 refuses the PLAIN login: no such user; check user, password or token",
        ),
    ],
    ids=["plain listener", "other mechanisms", "no login asked for", "wrong password"],
)
def test_a_refused_login_is_an_error_at_once(broker: FakeBroker, words: str) -> None:
    with pytest.raises(AuthenticationFailed, match=words):
        log_in(broker, Security(sasl=Plain("ann", "secret")))
    assert broker.transport.closed


def test_a_login_that_runs_out_is_replaced_in_time() -> None:
    broker = LoginBroker(answer={"session_lifetime": 10})
    assert not log_in(broker, Security(sasl=Plain("ann", "secret"))).is_open
    assert broker.transport.closed, "nothing was owed any more"


@pytest.mark.parametrize("wrong", [{"tls": "ca.pem"}, {"sasl": "PLAIN"}, {"tls": ssl.CERT_NONE}])
def test_invalid_security_options_are_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ClientError, match="give"):
        Security(**wrong)
