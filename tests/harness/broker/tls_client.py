# SPDX-License-Identifier: Apache-2.0
"""A TLS client without sockets: its bytes go by a FakeTransport into a TlsStream, and back."""

from __future__ import annotations

import contextlib
import ssl

from headrace.broker.network.connection import KafkaConnection, PrincipalOf
from headrace.principal import ANONYMOUS
from headrace.tls.stream import READ_BYTES, TlsStream
from tests.harness.broker.fake_clients import FakeTransport, Server


class TlsClient:
    """`sent` of the transport is what goes over the wire to the client."""

    def __init__(
        self,
        server: Server,
        *,
        server_context: ssl.SSLContext,
        client_context: ssl.SSLContext,
        principal_of: PrincipalOf = lambda certificate: ANONYMOUS,
        needs_login: bool = False,
    ) -> None:
        self._server = server
        self.connection = KafkaConnection(
            server.connections, "tls", needs_login=needs_login, principal_of=principal_of
        )
        stream = TlsStream(
            self.connection, server_context, server.world.tasks.call_soon, memoryview(bytearray(READ_BYTES))
        )
        self.transport = FakeTransport(stream)
        stream.connection_made(self.transport)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._read = 0  # bytes of what the transport sent
        self.received = bytearray()
        self.ended = False

    def begin(self) -> None:
        """The first message of the handshake, and no more."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.transport.arrive(self._outgoing.read())

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._exchange()
            else:
                self._exchange()
                return

    def send(self, data: bytes, piece: int = 1 << 20) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._exchange(piece)

    def receive(self) -> bytes:
        """All that has arrived since the connection began."""
        self._exchange()
        while True:
            try:
                data = self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return bytes(self.received)
            except ssl.SSLZeroReturnError:
                data = b""
            if not data:
                self.ended = True
                return bytes(self.received)
            self.received += data

    def _exchange(self, piece: int = 1 << 20) -> None:
        self.transport.arrive(self._outgoing.read(), piece)
        while self._server.world.tasks.soon or (self.transport.arrived and self.transport.reading):
            self._server.world.tasks.run_soon()
            self.transport.arrive(piece=piece)
        self._incoming.write(self.transport.sent[self._read :])
        self._read = len(self.transport.sent)
