# SPDX-License-Identifier: Apache-2.0
"""Logins of connections: SaslHandshake 0-1, SaslAuthenticate 0-2, before and during a session (KIP-368).

A connection whose listener asks for a login may send ApiVersions and SASL requests only, of at most 512 KiB
and for 10 s (S1). Knows no mechanism and no API beyond these.
Read next: mechanism.py, dispatch/dispatcher.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.audit import AuditLog
from headrace.broker.security.mechanism import Conversation, LoginRefused, Mechanisms, Success
from headrace.principal import NODE, Principal
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock, Tasks, Thread

_FAILED = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
_LINGER_S = 0.1
Answer = dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]
"""The fields of a reply, or a coroutine of them where a thread computes or a refusal is delayed."""
_UNFRAMED_HANDSHAKE = 0
"""After this version of SaslHandshake the messages follow as bare frames, without request headers."""


class LoginConnection(Protocol):
    """What a login needs of its connection."""

    principal: Principal
    has_logged_in: bool
    login: Any

    @property
    def may_log_in(self) -> bool:
        """For the first time, or again because its session ends."""

    def logged_in(self, principal: Principal, session_ms: int) -> None: ...


class Login:
    """The SASL exchange of one connection."""

    def __init__(self, mechanism: str, conversation: Conversation, *, unframed: bool) -> None:
        self.mechanism = mechanism
        self.conversation = conversation
        self.unframed = unframed
        """Messages come as bare frames (SaslHandshake 0)."""


class Logins:
    """Carries out the SASL requests of all connections of a node."""

    def __init__(
        self,
        *,
        clock: Clock,
        tasks: Tasks,
        thread: Thread,
        audit: AuditLog,
        mechanisms: Callable[[str], Mechanisms],
        hidden: frozenset[str] = frozenset(),
        failure_delay_ms: int = 100,
        session_limits: Mapping[str, int] | None = None,
    ) -> None:
        """`mechanisms` of a listener; those in `hidden` are not listed in error replies. `session_limits`:
        how long a login is valid at most, in milliseconds by listener (KIP-368); 0: no limit."""
        self._clock = clock
        self._tasks = tasks
        self._thread = thread
        self._audit = audit
        self._mechanisms = mechanisms
        self._hidden = hidden
        self._failure_delay_s = failure_delay_ms / 1000
        self._session_limits = session_limits or {}

    def answer(self, connection: LoginConnection, context: RequestContext, request: Any) -> Answer:
        """The reply to a SASL request; after one with an error the connection has to be closed."""
        if context.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(connection, context, request)
        return self.continued(connection, context, bytes(request.auth_bytes))

    def continued(self, connection: LoginConnection, context: RequestContext, message: bytes) -> Answer:
        """The fields of a SaslAuthenticate reply to one message of the client."""
        login = connection.login
        if login is None:
            return _refusal(ErrorCode.illegal_sasl_state, "SaslAuthenticate request without a SaslHandshake")
        if login.conversation.slow:
            return self._continued_in_thread(connection, context, login, message)
        try:
            return self._reply(connection, context, login.conversation.answer(message))
        except LoginRefused as refused:
            return self._refused(connection, context, login, refused)

    async def _continued_in_thread(
        self, connection: LoginConnection, context: RequestContext, login: Login, message: bytes
    ) -> dict[str, Any]:
        try:
            answer = await self._thread.run(login.conversation.answer, message)
            return self._reply(connection, context, answer)
        except LoginRefused as refused:
            return await self._refused(connection, context, login, refused)

    def _reply(
        self, connection: LoginConnection, context: RequestContext, answer: bytes | Success
    ) -> dict[str, Any]:
        if isinstance(answer, Success):
            return self._finish(connection, context.listener, answer)
        return {"error_code": ErrorCode.none, "error_message": None, "auth_bytes": answer}

    async def _refused(
        self, connection: LoginConnection, context: RequestContext, login: Login, refused: LoginRefused
    ) -> dict[str, Any]:
        connection.login = None
        self._audit.login_refused(context, login.mechanism, refused.user, refused.reason)
        await self._tasks.sleep(self._failure_delay_s)
        return _refusal(ErrorCode.sasl_authentication_failed, _FAILED.format(login.mechanism))

    async def linger(self) -> None:
        """The pause between a refusal and the end of the connection.

        kafka-python drops a reply that arrives together with the end, and reports a lost connection instead.
        """
        await self._tasks.sleep(_LINGER_S)

    def _handshake(
        self, connection: LoginConnection, context: RequestContext, request: Any
    ) -> dict[str, Any]:
        if not connection.may_log_in:
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
        offered = self._mechanisms(context.listener)
        listed = sorted(set(offered) - self._hidden)
        begin = offered.get(request.mechanism)
        if begin is None:
            code = ErrorCode.unsupported_sasl_mechanism if listed else ErrorCode.illegal_sasl_state
            return {"error_code": code, "mechanisms": listed}
        unframed = context.api_version == _UNFRAMED_HANDSHAKE
        connection.login = Login(request.mechanism, begin(), unframed=unframed)
        return {"error_code": ErrorCode.none, "mechanisms": listed}

    def _finish(self, connection: LoginConnection, listener: str, success: Success) -> dict[str, Any]:
        """A later login of a session must be of the same principal (KIP-368)."""
        before = connection.principal
        if connection.has_logged_in and before != success.principal:
            raise LoginRefused(f"the connection belongs to {before}", user=success.principal.name)
        session_ms = self._session_ms(listener, success)
        connection.logged_in(success.principal, session_ms)
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "auth_bytes": success.message,
            "session_lifetime": session_ms,
        }

    def _session_ms(self, listener: str, success: Success) -> int:
        limit = 0 if success.principal.kind == NODE else self._session_limits.get(listener, 0)
        limits = [limit] if limit else []
        if success.expires_at_ms is not None:
            limits.append(max(1, success.expires_at_ms - self._clock.wall_ms()))
        return min(limits, default=0)


def _refusal(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "auth_bytes": b""}
