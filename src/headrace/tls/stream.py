# SPDX-License-Identifier: Apache-2.0
"""TLS of accepted connections: a protocol towards the socket, a transport towards the protocol inside.

Unlike asyncio's and uvloop's TLS it calls `connection_made` when the connection is accepted, before the
handshake, so that connections in handshake count towards the limits and have a deadline
(docs/decisions/0027-tls-of-our-own-over-memory-buffers.md). Read next: broker/network/connection.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

from headrace.world import TlsProtocol

READ_BYTES = 64 * 1024
"""Read from the socket at once; what a protocol that pauses leaves behind is no more."""
WRITE_BYTES = 64 * 1024
_HANDSHAKE_RECORD = 0x16
_NOT_TLS = "its first byte is not that of a TLS handshake: the client has to use TLS (security.protocol=SSL)"
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this node's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this node's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this node's certificate",
    "UNSUPPORTED_PROTOCOL": "the client speaks no TLS version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client and this node have no cipher in common",
}


def tls_streams(
    factory: Callable[[], asyncio.BaseProtocol], context: Callable[[], ssl.SSLContext]
) -> Callable[[], TlsStream]:
    """Makes the streams of a listener; `context` gives the one for the next connection."""
    call_soon = asyncio.get_running_loop().call_soon
    read_view = memoryview(bytearray(READ_BYTES))
    return lambda: TlsStream(cast(TlsProtocol, factory()), context(), call_soon, read_view)


class TlsStream(asyncio.BufferedProtocol, asyncio.Transport):
    """One accepted connection. It gives no socket away: nothing can pass it without encryption."""

    def __init__(
        self,
        inner: TlsProtocol,
        context: ssl.SSLContext,
        call_soon: Callable[..., Any],
        read_view: memoryview,
    ) -> None:
        asyncio.Transport.__init__(self)
        self._inner = inner
        self._call_soon = call_soon
        self._read_view = read_view
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._socket: asyncio.Transport = None  # type: ignore[assignment]
        self._began = self._established = False
        self._reading = True
        self._ended = False  # the client sent its last byte
        self._closing = False

    # Towards the socket: asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._inner.connection_made(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def eof_received(self) -> bool:
        self._inner.eof_received()
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_view

    def buffer_updated(self, count: int) -> None:
        if self._closing:
            return
        self._incoming.write(self._read_view[:count])
        if self._established:
            self._deliver()
        else:
            self._shake_hands()

    # TLS

    def _shake_hands(self) -> None:
        if not self._began:
            self._began = True
            if self._read_view[0] != _HANDSHAKE_RECORD:
                self._inner.tls_failed(_NOT_TLS)
                return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._inner.tls_failed(f"TLS handshake failed: {_reason(error)}")
            return
        self._flush()
        self._established = True
        self._inner.handshake_completed(self._tls.getpeercert(binary_form=True))
        self._deliver()

    @property
    def _unread(self) -> bool:
        return bool(self._incoming.pending or self._tls.pending())

    def _deliver(self) -> None:
        """Passes on what has arrived, until the protocol inside pauses."""
        try:
            unread = self._unread
            while unread and self._reading and not self._closing and not self._ended:
                count, unread = self._decrypt(self._inner.get_buffer(-1))
                if count:
                    self._inner.buffer_updated(count)
        except ssl.SSLError as error:
            self._inner.tls_failed(f"TLS failed: {_reason(error)}")
            return
        if self._outgoing.pending:
            self._flush()
        if self._ended and not self._closing:
            self._inner.eof_received()
            self.close()

    def _decrypt(self, view: memoryview) -> tuple[int, bool]:
        """Fills the view with as many records as there are; bytes filled, and whether more are unread."""
        tls, size = self._tls, len(view)
        filled, unread = 0, True
        try:
            while unread and filled < size:  # OpenSSL returns one record at most
                count = cast(int, tls.read(size - filled, view[filled:] if filled else view))
                if not count:
                    self._ended = True
                    break
                filled += count
                unread = self._unread  # asking is cheaper than an SSLWantReadError
        except ssl.SSLWantReadError:
            unread = False
        return filled, unread

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    # Towards the protocol inside: a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if name == "socket" else self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        view, tls, outgoing = memoryview(data), self._tls, self._outgoing
        position, size = 0, len(view)
        try:
            while position < size:
                position += tls.write(view[position : position + WRITE_BYTES])
                if outgoing.pending >= WRITE_BYTES:
                    self._socket.write(outgoing.read())
        except ssl.SSLError as error:
            self._inner.tls_failed(f"TLS failed: {_reason(error)}")
            return
        self._flush()

    def pause_reading(self) -> None:
        self._reading = False
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        self._socket.resume_reading()
        if self._established and self._unread:
            self._call_soon(self._deliver)

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Sends what is buffered and TLS's mark of the end, so that the client knows nothing is missing."""
        if self._closing:
            return
        self._closing = True
        if self._established:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        self._flush()
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    return _REASONS.get(error.reason or "", error.reason or str(error))
