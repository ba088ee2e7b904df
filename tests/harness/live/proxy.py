# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that injects network faults: latency, trickle, tiny chunks, resets, half-open peers (T10).

Threads and plain sockets, so that it works beside any client. Knows nothing of Kafka.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass

_LOOK_UP_S = 0.1
"""A thread that waits in `recv` keeps a socket alive that another one closed; so none waits for long."""
_NO_LINGER = struct.pack("ii", 1, 0)  # close by reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """What happens to the bytes of a connection; the default lets everything pass."""

    latency_ms: float = 0
    chunk_bytes: int = 65536
    pause_between_chunks_ms: float = 0
    reset_after_bytes: int | None = None
    """The connection is reset, in the middle of a frame, when so many bytes have passed in one direction."""
    swallow: bool = False
    """Half-open: bytes are taken and never arrive."""
    close_after_ms: float = 0
    """A peer's close is passed on only after this long."""


class Proxy:
    """Listens on a free port of the loopback address. Use as a context manager."""

    def __init__(self, target: str, toxic: Toxic) -> None:
        host, port = target.rsplit(":", 1)
        self.toxic = toxic
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._start(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(self._target)
            except OSError:
                continue
            for each in (near, far):
                each.settimeout(_LOOK_UP_S)
            self._sockets += (near, far)
            self._start(self._pump, near, far)
            self._start(self._pump, far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        passed = 0
        try:
            while data := self._receive(source):
                passed += len(data)
                limit = self.toxic.reset_after_bytes
                if limit is not None and passed > limit:
                    _reset(source, sink)
                    return
                if not self.toxic.swallow:
                    self._pass_on(data, sink)
        except OSError:
            pass
        time.sleep(self.toxic.close_after_ms / 1000)  # the toxic itself
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _receive(self, source: socket.socket) -> bytes:
        while not self._stopping:
            try:
                return source.recv(65536)
            except TimeoutError:
                continue
        return b""

    def _pass_on(self, data: bytes, sink: socket.socket) -> None:
        toxic = self.toxic
        if toxic.latency_ms:
            time.sleep(toxic.latency_ms / 1000)  # the toxic itself
        for start in range(0, len(data), toxic.chunk_bytes):
            sink.sendall(data[start : start + toxic.chunk_bytes])
            if toxic.pause_between_chunks_ms:
                time.sleep(toxic.pause_between_chunks_ms / 1000)  # the toxic itself


def _reset(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            each.close()
