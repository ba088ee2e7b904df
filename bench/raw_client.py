# SPDX-License-Identifier: Apache-2.0
"""The raw client: a socket with several requests in flight, cheap enough that the broker is the limit.

Sends bytes that raw_requests.py packed once, counts and checks replies, and keeps time. Knows no engine.
"""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.raw_requests import FetchReply, ProduceReply, fetch_request

_SIZE = struct.Struct(">i")
_TIMEOUT_SECONDS = 60


class RawConnection:
    """Frames out, frames in, in order. A reply is a view that the next call overwrites."""

    def __init__(
        self, host: str, port: int, *, buffer_bytes: int = 1 << 18, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._buffer = bytearray(buffer_bytes)
        self._start = self._end = 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> memoryview:
        """Wait for one whole reply, without its length field."""
        while (reply := self._next_frame()) is None:
            self._fill()
        return reply

    def receive_all_waiting(self) -> Iterator[memoryview]:
        """At least one reply, and every other that has arrived with it."""
        yield self.receive()
        while (reply := self._next_frame()) is not None:
            yield reply

    def call(self, request: bytes) -> memoryview:
        self.socket.sendall(request)
        return self.receive()

    def _next_frame(self) -> memoryview | None:
        available = self._end - self._start
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if available < 4 + size:
            self._make_room(4 + size)
            return None
        begin = self._start + 4
        self._start = begin + size
        return memoryview(self._buffer)[begin : begin + size]

    def _make_room(self, size: int) -> None:
        if self._start + size <= len(self._buffer):
            return
        waiting = self._buffer[self._start : self._end]
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 8)
        self._buffer[: len(waiting)] = waiting
        self._start, self._end = 0, len(waiting)

    def _fill(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buffer):
            self._make_room(len(self._buffer) - self._start + 1)
        received = self.socket.recv_into(memoryview(self._buffer)[self._end :])
        if received == 0:
            raise ConnectionResetError("the broker closed the connection")
        self._end += received


def produce_pipelined(
    connection: RawConnection,
    requests: bytes,
    check: Callable[[memoryview], None],
    *,
    in_flight: int,
    count: int | None = None,
    seconds: float | None = None,
    requests_per_send: int = 1,
) -> tuple[int, float]:
    """Send the same bytes over and over, `in_flight` requests unanswered at most; (answered, seconds taken).

    Ends after `count` requests or after `seconds`. The bytes may hold several requests.
    """
    limit = count if count is not None else 1 << 62
    sent = answered = 0
    started = time.perf_counter()
    deadline = started + seconds if seconds is not None else float("inf")
    while sent < limit or answered < sent:
        while sent < limit and sent - answered + requests_per_send <= in_flight:
            connection.send(requests)
            sent += requests_per_send
        for reply in connection.receive_all_waiting():
            check(reply)
            answered += 1
        if time.perf_counter() >= deadline:
            limit = sent
    return answered, time.perf_counter() - started


def send_each(
    connection: RawConnection,
    requests: Sequence[bytes],
    check: Callable[[memoryview], None],
    *,
    in_flight: int = 2,
) -> tuple[int, float]:
    """Send each of the requests once, `in_flight` unanswered at most; (bytes received, seconds taken)."""
    received = sent = 0
    started = time.perf_counter()
    for done in range(len(requests)):
        while sent < len(requests) and sent - done < in_flight:
            connection.send(requests[sent])
            sent += 1
        reply = connection.receive()
        check(reply)
        received += len(reply)
    return received, time.perf_counter() - started


def fetch_each(
    connection: RawConnection, topic: str, offsets: Sequence[int], *, max_bytes: int
) -> tuple[int, float]:
    """Fetch from each of the offsets in turn; (bytes received, seconds taken)."""
    requests = [fetch_request(topic, offset, max_bytes=max_bytes) for offset in offsets]
    return send_each(connection, requests, FetchReply(topic).check)


def round_trips(
    connection: RawConnection,
    requests: Sequence[bytes],
    check: Callable[[memoryview], None],
    *,
    count: int | None = None,
    seconds: float | None = None,
    pause_ms: float = 0.0,
) -> list[float]:
    """One request at a time, in turn through `requests`; the time of each round trip in microseconds."""
    limit = count if count is not None else 1 << 62
    deadline = time.perf_counter() + seconds if seconds is not None else float("inf")
    times_us: list[float] = []
    with no_collection():
        for turn in range(limit):
            started = time.perf_counter_ns()
            reply = connection.call(requests[turn % len(requests)])
            times_us.append((time.perf_counter_ns() - started) / 1000)
            check(reply)
            if time.perf_counter() >= deadline:
                break
            if pause_ms:
                time.sleep(pause_ms / 1000)
    return times_us


def produce_check(topic: str) -> Callable[[memoryview], None]:
    return ProduceReply(topic).check


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the client's own garbage collection out of the latencies that it takes."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
