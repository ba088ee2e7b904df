# SPDX-License-Identifier: Apache-2.0
"""Checks quickly whether a broker answers at a bootstrap address, and lets this client in.

librdkafka retries silently until its timeout; one request before it shows the user the reason at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

from headrace.client.bootstrap import LOG_IN, START_ONE, Address, parse_bootstrap
from headrace.client.cluster import Cluster, as_cluster
from headrace.client.errors import ClientError, NextStep
from headrace.client.security_settings import NO_SECURITY, SecuritySettings

if TYPE_CHECKING:
    from headrace.client.connection import Connection
    from headrace.client.security import OpenOptions

_CORRELATION_ID = b"hdrc"
_ASK = b"\x00\x00\x00\x0a\x00\x12\x00\x00" + _CORRELATION_ID + b"\xff\xff"
"""ApiVersions in version 0, without a client id: the one request that every broker answers at once."""
_NO_TOPICS = b"\x00\x00\x00\x0e\x00\x03\x00\x01" + _CORRELATION_ID + b"\xff\xff\x00\x00\x00\x00"
"""Metadata of no topic in version 1: what a listener with logins answers by closing the connection."""
_NOT_LET_IN = "it closed the connection before a login"
_NOT_KAFKA = "something answers there, but not as a Kafka broker"
_MAYBE_TLS = NextStep(
    'if the listener has TLS, give config="client.properties"',
    "if the listener has TLS, give --command-config client.properties",
)


def check_reachable(target: str | Cluster, *, timeout_ms: int = 5000) -> None:
    """Raises with the reason unless one of the addresses answers, and accepts this client's login."""
    cluster = as_cluster(target)
    addresses = parse_bootstrap(cluster.bootstrap)
    if cluster.security == NO_SECURITY:
        reasons = _why_not_plain(addresses, timeout_ms / 1000)
    else:
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop, as in notebooks
            opening = _why_not_secured(addresses, cluster.security, timeout_ms)
            reasons = thread.submit(asyncio.run, opening).result()
    if reasons:
        raise ClientError(
            f"no Kafka broker can be reached at {', '.join(reasons)}",
            next_step=_next_step(reasons),
            code="_TRANSPORT",
        )


def _next_step(reasons: Sequence[str]) -> NextStep:
    advice = {_NOT_KAFKA: _MAYBE_TLS, _NOT_LET_IN: LOG_IN}
    return next((step for found, step in advice.items() if any(found in each for each in reasons)), START_ONE)


def _why_not_plain(addresses: Sequence[Address], timeout_s: float) -> list[str]:
    """The reason of each address; none when one of them answers."""
    reasons = []
    for address in addresses:
        reason = _why_not(address, timeout_s)
        if reason is None:
            return []
        reasons.append(f"{address} ({reason})")
    return reasons


async def _why_not_secured(
    addresses: Sequence[Address], security: SecuritySettings, timeout_ms: int
) -> list[str]:
    """The same with TLS and a login; a refused certificate or login is raised at once."""
    from headrace.client.connection import Connection, ConnectionLost

    options = security.security().open_options()
    reasons = []
    for address in addresses:
        try:
            connection = await Connection.open(address.host, address.port, timeout_ms=timeout_ms, **options)
        except ConnectionLost as error:
            reasons.append(f"{address} ({error})")
        else:
            try:
                await _check_advertised(connection, address, options, timeout_ms)
            finally:
                await connection.close()
            return []
    return reasons


async def _check_advertised(
    connection: Connection, address: Address, options: OpenOptions, timeout_ms: int
) -> None:
    """Raises when the certificate of a broker does not fit the address under which it is advertised.

    librdkafka would try it again until its timeout, without a word.
    """
    from headrace.client.connection import Connection, ConnectionLost
    from headrace.wire.api_key import ApiKey

    reply = await connection.call(ApiKey.METADATA, {"topics": ()}, timeout_ms=timeout_ms)
    others = [(str(each.host), int(each.port)) for each in reply.brokers]
    for host, port in [each for each in others if each != tuple(address)][:1]:
        try:
            other = await Connection.open(host, port, timeout_ms=timeout_ms, **options)
        except ConnectionLost:
            return  # it may be down; librdkafka uses the others
        except ClientError as error:
            raise ClientError(
                f"the broker at {address} advertises {host}:{port}, where it cannot be used: {error.what}",
                next_step=f"give its certificate the name {host}, or advertise the name that it has",
                code=error.code,
            ) from error
        await other.close()


def _why_not(address: Address, timeout_s: float) -> str | None:
    try:
        with (
            socket.create_connection(address, timeout=timeout_s) as connection,
            connection.makefile("rb") as stream,
        ):
            if not _answers(connection, stream, _ASK):
                return _NOT_KAFKA
            if not _answers(connection, stream, _NO_TOPICS):
                return _NOT_LET_IN
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _answers(connection: socket.socket, stream: BinaryIO, request: bytes) -> bool:
    """Whether a reply came; only its correlation id is looked at."""
    connection.sendall(request)
    head = stream.read(8)
    if head[4:] != _CORRELATION_ID:
        return False
    stream.read(int.from_bytes(head[:4], "big") - len(_CORRELATION_ID))
    return True
