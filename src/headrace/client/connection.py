# SPDX-License-Identifier: Apache-2.0
"""One asyncio connection to a Kafka broker: versions agreed on, requests pipelined, replies matched in order.

No retries, no metadata, no pool. Used by tools (tools/brokers.py), the Arrow client and the replica fetcher.
TLS comes in through `connect`, SASL through `authenticate`. Read next: security.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from headrace.client.bootstrap import LOG_IN
from headrace.client.errors import ClientError
from headrace.errors import DecodeError
from headrace.version import __version__
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import SPOKEN_APIS
from headrace.wire.framing import FrameReceiver
from headrace.wire.messages import decode_reply, encode_request, request_frame

UNSUPPORTED_VERSION = 35
DEFAULT_TIMEOUT_MS = 10_000
DEFAULT_MAX_REPLY_BYTES = 256 << 20

_HUNG_UP = "it hung up at once: does this listener speak TLS?"

Connect = Callable[
    [Callable[[], asyncio.BaseProtocol], str, int],
    Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]],
]
"""Opens the stream: `World.network.connect`, or one that wraps it in TLS."""


class ConnectionLost(ClientError):
    """The broker could not be reached, or the connection to it ended."""


class RequestTimedOut(ClientError):
    """No reply in time; whether the request was carried out is not known."""


class _Waiting(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    reply: asyncio.Future[Any]
    raw: bool = False


class Connection(asyncio.BufferedProtocol):
    """Open one with `Connection.open`; use it from one event loop only."""

    def __init__(self, address: str, *, client_id: str, max_reply_bytes: int) -> None:
        self.address = address
        self.versions: Mapping[int, tuple[int, int]] = {}
        """Versions that the broker serves: API key to lowest and highest."""
        self.features: Mapping[str, int] = {}
        """Finalized features of the cluster, e.g. transaction.version, with their levels."""
        self._client_id = client_id
        self._receiver = FrameReceiver(max_frame=max_reply_bytes)
        self._waiting: deque[_Waiting] = deque()
        self._next_correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._failure: ClientError | None = None
        self._retired = False
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._admitted = False
        """Something other than ApiVersions was answered, which a listener with logins does for everybody."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "headrace",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        connect: Connect | None = None,
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
        max_reply_bytes: int = DEFAULT_MAX_REPLY_BYTES,
    ) -> Connection:
        """Connects, authenticates if asked to, and requests the versions that the broker serves."""
        address = f"{host}:{port}"
        connection = cls(address, client_id=client_id, max_reply_bytes=max_reply_bytes)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await (connect or _connect_plain)(lambda: connection, host, port)
                await connection.learn_versions(timeout_ms=timeout_ms)
                if authenticate is not None:
                    await authenticate(connection)
        except TimeoutError as error:
            connection.abort()
            raise ConnectionLost(
                f"no answer from {address} within {timeout_ms} ms",
                next_step="check that a Kafka listener of the expected kind (plain or TLS) is there",
            ) from error
        except ssl.SSLError as error:
            raise _tls_failure(address, error) from error
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {_reason(error)}") from error
        except BaseException:
            connection.abort()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether new requests may be sent on it."""
        return self._transport is not None and self._failure is None and not self._retired

    def retire_after(self, delay_ms: float) -> None:
        """After the delay no new requests are sent; closes once all replies have come."""
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._retire)

    async def learn_versions(self, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """Requests the versions and features; again on an open connection, they may have changed."""
        fields = {"client_software_name": "headrace", "client_software_version": __version__}
        version = SPOKEN_APIS[ApiKey.API_VERSIONS].max_version
        reply = await self.call(ApiKey.API_VERSIONS, fields, version=version, timeout_ms=timeout_ms)
        if int(reply.error_code) == UNSUPPORTED_VERSION:
            # An older broker answers in version 0 and lists what it serves.
            served = {entry.api_key: entry.max_version for entry in reply.api_keys}
            version = min(version, served.get(ApiKey.API_VERSIONS, 0))
            reply = await self.call(ApiKey.API_VERSIONS, fields, version=version, timeout_ms=timeout_ms)
        if int(reply.error_code) != 0:
            raise ConnectionLost(f"{self.address} refused ApiVersions: {reply.error_code!r}")
        self.versions = {
            int(entry.api_key): (int(entry.min_version), int(entry.max_version)) for entry in reply.api_keys
        }
        self.features = {
            str(entry.name): int(entry.max_version_level)
            for entry in getattr(reply, "finalized_features", None) or ()
        }

    def version_for(self, api_key: int) -> int:
        """The highest version of an API that both sides know."""
        ours = SPOKEN_APIS[api_key]
        lowest, highest = self.versions.get(api_key, (0, -1))
        version = min(highest, ours.max_version)
        if version < max(lowest, ours.accepted.start):
            raise ClientError(
                f"the broker at {self.address} does not serve {ours.name} in a version that Headrace speaks "
                f"({ours.accepted.start} to {ours.max_version})",
                code="UNSUPPORTED_VERSION",
            )
        return version

    async def call(
        self,
        api_key: int,
        fields: Mapping[str, Any],
        *,
        version: int | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Any:
        """Sends a request and returns the decoded reply. Calls may overlap: they are pipelined."""
        reply = self.send(api_key, fields, version=version)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await reply
        except TimeoutError as error:
            raise _no_reply(SPOKEN_APIS[api_key].name, self.address, timeout_ms) from error

    async def call_raw(
        self, api_key: int, version: int, rest: bytes, *, timeout_ms: int
    ) -> bytes | memoryview:
        """For a request that is encoded already: all that follows the client id in its frame.

        Returns the reply's frame without its length, undecoded.
        """
        reply = self.send_raw(api_key, version, rest)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frame: bytes | memoryview = await reply
                return frame
        except TimeoutError as error:
            raise _no_reply(SPOKEN_APIS[api_key].name, self.address, timeout_ms) from error

    def send(
        self, api_key: int, fields: Mapping[str, Any], *, version: int | None = None
    ) -> asyncio.Future[Any]:
        """Writes a request now; the future holds its reply. Raises ConnectionLost when closed."""
        if version is None:
            version = self.version_for(api_key)
        return self.send_parts(
            api_key,
            version,
            lambda correlation_id, client_id: [
                encode_request(api_key, version, correlation_id, client_id, fields)
            ],
        )

    def send_parts(
        self, api_key: int, version: int, make: Callable[[int, str], Sequence[bytes | bytearray]]
    ) -> asyncio.Future[Any]:
        """The same for a frame that comes in parts: `make` gets the correlation id and the client id."""
        correlation_id = self._write(make)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(api_key, version, correlation_id, reply))
        return reply

    def send_raw(self, api_key: int, version: int, rest: bytes) -> asyncio.Future[Any]:
        """As `call_raw`; the future holds the frame."""
        correlation_id = self._write(
            lambda number, client_id: [request_frame(api_key, version, number, client_id, rest)]
        )
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(api_key, version, correlation_id, reply, raw=True))
        return reply

    def send_unanswered(self, make: Callable[[int, str], Sequence[bytes | bytearray]]) -> None:
        """As `send_parts`, for the one request that has no reply: Produce with acks=0."""
        self._write(make)

    async def close(self) -> None:
        self._fail(ConnectionLost(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.close()
            await self._closed

    async def ended(self) -> None:
        """Returns when the connection is closed, by either side."""
        await asyncio.shield(self._closed)

    def abort(self) -> None:
        """Ends the connection at once, without waiting for anything."""
        self._fail(ConnectionLost(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.arrived(nbytes):
                self._take_reply(frame)
        except DecodeError as error:
            self._fail(
                ConnectionLost(
                    f"{self.address} sent something that is not a Kafka reply: {error}",
                    next_step="check the port and whether the listener wants TLS",
                )
            )
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f": {exc}" if exc else ""
        login_missing = self.versions and self._waiting and not self._admitted
        self._fail(
            ConnectionLost(
                f"{self.address} closed the connection{reason}",
                next_step=LOG_IN if login_missing else None,
            )
        )
        if not self._closed.done():
            self._closed.set_result(None)

    # private

    def _write(self, make: Callable[[int, str], Sequence[bytes | bytearray]]) -> int:
        """Writes a frame and returns its correlation id."""
        if self._transport is None or self._failure is not None:
            raise self._failure or ConnectionLost(f"the connection to {self.address} is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        parts = make(correlation_id, self._client_id)
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        return correlation_id

    def _retire(self) -> None:
        self._retired = True
        if not self._waiting:
            self.abort()

    def _take_reply(self, frame: bytes | memoryview) -> None:
        if not self._waiting:
            raise DecodeError("a reply without a request")
        expected = self._waiting[0]
        reply: Any
        if expected.raw:
            correlation_id, reply = int.from_bytes(frame[:4], "big", signed=True), frame
        else:
            version = _version_of_reply(expected, frame)
            correlation_id, reply = decode_reply(expected.api_key, version, memoryview(frame))
        if correlation_id != expected.correlation_id:
            raise DecodeError(f"correlation id {correlation_id} where {expected.correlation_id} was due")
        self._waiting.popleft()
        self._admitted = self._admitted or expected.api_key != ApiKey.API_VERSIONS
        if not expected.reply.done():  # a caller that timed out no longer waits
            expected.reply.set_result(reply)
        if self._retired and not self._waiting:
            self.abort()

    def _fail(self, failure: ClientError) -> None:
        """Every present and later caller gets the first failure."""
        if self._failure is None:
            self._failure = failure
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if not entry.reply.done():
                entry.reply.set_exception(self._failure)
                entry.reply.exception()  # looked at here: who waits may be cancelled at this very moment


def _version_of_reply(waiting: _Waiting, frame: bytes | memoryview) -> int:
    """ApiVersions with error 35 comes in version 0, whatever was asked; the code follows the header."""
    if waiting.api_key == ApiKey.API_VERSIONS and int.from_bytes(frame[4:6], "big") == UNSUPPORTED_VERSION:
        return 0
    return waiting.version


def _no_reply(name: str, address: str, timeout_ms: int) -> RequestTimedOut:
    return RequestTimedOut(
        f"no reply to {name} from {address} within {timeout_ms} ms", code="REQUEST_TIMED_OUT"
    )


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):  # its numbers are not those of the operating system
        return f"the name of the host cannot be resolved ({error.strerror})"
    return os.strerror(error.errno) if error.errno else str(error) or _HUNG_UP


def _tls_failure(address: str, error: ssl.SSLError) -> ClientError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ClientError(
            f"{address} is not trusted: {error.verify_message}",
            next_step="give the authority that signed its certificate: ssl.truststore.location in a client's "
            'properties, or Security(tls=ssl.create_default_context(cafile="ca.pem"))',
            code="_SSL",
        )
    return ConnectionLost(
        f"no TLS with {address}: {error.reason or error}",
        next_step="check that this listener speaks TLS, and whether it asks for a client certificate",
        code="_SSL",
    )


async def _connect_plain(
    factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    return await asyncio.get_running_loop().create_connection(factory, host, port)
