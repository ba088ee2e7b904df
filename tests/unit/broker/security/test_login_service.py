# SPDX-License-Identifier: Apache-2.0
"""SaslHandshake and SaslAuthenticate: order, refusals, sessions (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.audit import AuditLog
from headrace.broker.security.login import Logins
from headrace.broker.security.mechanism import LoginRefused, Success
from headrace.principal import ANONYMOUS, Principal, user
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

NOW_MS = 1_000_000


class Scripted:
    """Ends with what it is given, in a thread when asked."""

    def __init__(self, outcome: Success | Exception, slow: bool = False) -> None:
        self.slow = slow
        self._outcome = outcome

    def answer(self, message: bytes) -> bytes | Success:
        if message == b"go on":
            return b"challenge"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class Connection:
    def __init__(self) -> None:
        self.principal: Principal = ANONYMOUS
        self.login: Any = None
        self.has_logged_in = False
        self.may_log_in = True
        self.sessions: list[int] = []

    def logged_in(self, principal: Principal, session_ms: int) -> None:
        self.principal, self.login = principal, None
        self.has_logged_in = True
        self.may_log_in = session_ms > 0
        self.sessions.append(session_ms)


class Node:
    """Logins with a clock that stands still and without pauses; `slept` and `in_thread` are noted."""

    def __init__(self, outcome: Success | Exception, *, slow: bool = False, limit_ms: int = 0) -> None:
        self.slept: list[float] = []
        self.in_thread = 0
        self.at_once = False
        """Whether the last answer was given without a coroutine."""
        self.connection = Connection()
        mechanisms = {"M": lambda: Scripted(outcome, slow), "HIDDEN": lambda: Scripted(outcome)}
        offered: dict[str, Any] = {"SASL": mechanisms, "ONLY_HIDDEN": {"HIDDEN": mechanisms["HIDDEN"]}}
        clock: Any = SimpleNamespace(wall_ms=lambda: NOW_MS, monotonic=lambda: 1.0)
        self.logins = Logins(
            clock=clock,
            audit=AuditLog(clock),
            tasks=SimpleNamespace(sleep=self._sleep),  # type: ignore[arg-type]
            thread=SimpleNamespace(run=self._run),  # type: ignore[arg-type]
            mechanisms=lambda listener: offered.get(listener, {}),
            hidden=frozenset({"HIDDEN"}),
            failure_delay_ms=250,
            session_limits={"SASL": limit_ms},
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def _run(self, function: Any, *args: Any) -> Any:
        self.in_thread += 1
        return function(*args)

    def handshake(self, mechanism: str = "M", version: int = 1, listener: str = "SASL") -> dict[str, Any]:
        request = SimpleNamespace(mechanism=mechanism)
        return self._answer(ApiKey.SASL_HANDSHAKE, version, request, listener)

    def authenticate(self, message: bytes = b"done") -> dict[str, Any]:
        return self._answer(ApiKey.SASL_AUTHENTICATE, 2, SimpleNamespace(auth_bytes=message), "SASL")

    def _answer(self, key: int, version: int, request: Any, listener: str) -> dict[str, Any]:
        context = RequestContext(key, version, 1, "c", listener, "1.2.3.4:5")
        answer = self.logins.answer(self.connection, context, request)
        self.at_once = isinstance(answer, dict)
        return answer if isinstance(answer, dict) else asyncio.run(answer)


ANN = Success(message=b"bye", principal=user("ann"))


def test_a_login_of_several_messages() -> None:
    node = Node(ANN)
    assert node.handshake() == {"error_code": ErrorCode.none, "mechanisms": ["M"]}
    assert node.authenticate(b"go on")["auth_bytes"] == b"challenge"
    assert node.connection.principal == ANONYMOUS
    assert node.at_once
    done = node.authenticate()
    assert node.at_once
    assert (done["error_code"], done["auth_bytes"], done["session_lifetime"]) == (ErrorCode.none, b"bye", 0)
    assert node.connection.principal == user("ann")
    assert (node.slept, node.in_thread) == ([], 0)


def test_what_computes_long_runs_in_a_thread() -> None:
    node = Node(ANN, slow=True)
    node.handshake()
    node.authenticate()
    assert node.in_thread == 1
    assert not node.at_once


def test_authentication_without_a_handshake_is_refused() -> None:
    assert Node(ANN).authenticate()["error_code"] is ErrorCode.illegal_sasl_state


@pytest.mark.parametrize(
    ("listener", "code", "listed"),
    [
        ("SASL", ErrorCode.unsupported_sasl_mechanism, ["M"]),
        ("ONLY_HIDDEN", ErrorCode.illegal_sasl_state, []),
        ("PLAINTEXT", ErrorCode.illegal_sasl_state, []),
    ],
)
def test_an_unknown_mechanism_is_refused_with_the_public_ones(
    listener: str, code: ErrorCode, listed: list[str]
) -> None:
    answer = Node(ANN).handshake("GSSAPI", listener=listener)
    assert answer == {"error_code": code, "mechanisms": listed}


def test_a_wrong_login_is_answered_late_with_one_sentence_for_every_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="headrace.audit")
    sentences = set()
    for reason in ("the password is wrong", "there is no such user"):
        node = Node(LoginRefused(reason, user="ann"))
        node.handshake()
        answer = node.authenticate()
        assert answer["error_code"] is ErrorCode.sasl_authentication_failed
        assert node.slept == [0.25]
        assert node.connection.principal == ANONYMOUS
        assert node.authenticate()["error_code"] is ErrorCode.illegal_sasl_state
        sentences.add(answer["error_message"])
        assert reason in caplog.text
    (sentence,) = sentences
    assert "invalid credentials with SASL mechanism M" in sentence


def test_handshake_0_is_remembered() -> None:
    node = Node(ANN)
    node.handshake(version=0)
    assert node.connection.login.unframed
    node.handshake(version=1)
    assert not node.connection.login.unframed


@pytest.mark.parametrize(
    ("limit_ms", "expires_at_ms", "session_ms"),
    [(0, None, 0), (5_000, None, 5_000), (0, NOW_MS + 700, 700), (5_000, NOW_MS + 700, 700),
     (5_000, NOW_MS + 9_000, 5_000), (0, NOW_MS - 10, 1)],
)  # fmt: skip
def test_a_session_ends_with_the_limit_or_the_token(
    limit_ms: int, expires_at_ms: int | None, session_ms: int
) -> None:
    success = Success(message=b"", principal=user("ann"), expires_at_ms=expires_at_ms)
    node = Node(success, limit_ms=limit_ms)
    node.handshake()
    assert node.authenticate()["session_lifetime"] == session_ms
    assert node.connection.sessions == [session_ms]


def test_a_session_is_renewed_by_its_own_principal_only() -> None:
    node = Node(ANN, limit_ms=5_000)
    for _ in range(2):
        node.handshake()
        assert node.authenticate()["error_code"] is ErrorCode.none
    node.connection.principal = user("bob")
    node.handshake()
    assert node.authenticate()["error_code"] is ErrorCode.sasl_authentication_failed
    assert node.connection.sessions == [5_000, 5_000]


def test_without_the_end_of_a_session_there_is_one_login() -> None:
    node = Node(ANN)
    node.handshake()
    assert node.authenticate()["error_code"] is ErrorCode.none
    assert node.handshake() == {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    assert node.connection.sessions == [0]
