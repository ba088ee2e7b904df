# SPDX-License-Identifier: Apache-2.0
"""TLS and SASL for `Connection.open`: encryption and authentication.

Users pass one `Security` to read, write and the rest. Mechanisms: sasl.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from headrace.client.connection import Connect, Connection
from headrace.client.errors import ClientError
from headrace.client.sasl import AuthenticationFailed, Conversation, Mechanism, OAuthBearer
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_RENEW_AT = 0.85
"""Share of a session's lifetime (KIP-368) after which the connection is replaced."""


class OpenOptions(TypedDict, total=False):
    """Arguments of `Connection.open` that a `Security` sets."""

    connect: Connect
    authenticate: Callable[[Connection], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """TLS when `tls` is True (the system's authorities) or an SSLContext; then SASL with `sasl`, if given.

    An SSLContext holds the trusted authorities and the client certificate:
    `ssl.create_default_context(cafile="ca.pem")`, then `.load_cert_chain("client.pem")`.
    """

    tls: bool | ssl.SSLContext = False
    sasl: Mechanism | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tls, bool | ssl.SSLContext):
            raise ClientError(
                f"tls={self.tls!r} is neither True nor an SSLContext",
                next_step='give ssl.create_default_context(cafile="ca.pem")',
            )
        if self.sasl is not None and not hasattr(self.sasl, "conversation"):
            raise ClientError(
                f"sasl={self.sasl!r} is not a mechanism",
                next_step="give a headrace.Plain, ScramSha256, ScramSha512 or OAuthBearer",
            )

    def open_options(self) -> OpenOptions:
        options: OpenOptions = {}
        if self.tls is not False:
            options["connect"] = self._connect
        if self.sasl is not None:
            options["authenticate"] = self.authenticate
        return options

    async def _connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        context = ssl.create_default_context() if self.tls is True else self.tls
        loop = asyncio.get_running_loop()
        return await loop.create_connection(factory, host, port, ssl=context, server_hostname=host)

    async def authenticate(self, connection: Connection) -> None:
        """Logs in on an open connection."""
        assert self.sasl is not None
        await _agree_on(self.sasl.name, connection)
        conversation = self.sasl.conversation()
        blocks = isinstance(self.sasl, OAuthBearer)  # it may ask an identity provider for the token
        first = await asyncio.to_thread(_first, conversation) if blocks else _first(conversation)
        message: bytes | None = first
        while message is not None:
            reply = await connection.call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            message = _next(conversation, _answer(reply, self.sasl.name, connection.address))
        lifetime_ms = _lifetime_ms(reply)
        if lifetime_ms > 0:
            connection.retire_after(lifetime_ms * _RENEW_AT)


PLAINTEXT = Security()


async def _agree_on(mechanism: str, connection: Connection) -> None:
    if ApiKey.SASL_HANDSHAKE not in connection.versions:
        raise AuthenticationFailed(
            f"the listener at {connection.address} does not offer SASL",
            next_step="use another listener, or no sasl=",
        )
    reply = await connection.call(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
    code = ErrorCode(int(reply.error_code))
    if code is ErrorCode.unsupported_sasl_mechanism:
        raise AuthenticationFailed(
            f"{connection.address} does not offer {mechanism}",
            next_step=f"it offers {', '.join(map(str, reply.mechanisms)) or 'none'}",
        )
    if code is not ErrorCode.none:
        raise AuthenticationFailed(
            f"{connection.address} refuses SASL: {code.name}",
            next_step="check that this listener asks for SASL",
        )


def _answer(reply: Any, mechanism: str, address: str) -> bytes:
    code = ErrorCode(int(reply.error_code))
    if code is not ErrorCode.none:
        raise AuthenticationFailed(
            f"{address} refuses the {mechanism} login: {reply.error_message or code.name}",
            next_step="check user, password or token",
        )
    return bytes(reply.auth_bytes)


def _first(conversation: Conversation) -> bytes:
    return next(conversation)


def _next(conversation: Conversation, answer: bytes) -> bytes | None:
    try:
        return conversation.send(answer)
    except StopIteration:
        return None


def _lifetime_ms(reply: Any) -> float:
    lifetime = getattr(reply, "session_lifetime", None)  # none before version 1
    return 0 if lifetime is None else float(lifetime.total_seconds() * 1000)
