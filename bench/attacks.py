# SPDX-License-Identifier: Apache-2.0
"""What a careless or hostile client does to a node, from a worker process, bounded in rate and time.

Loopback only. Returns how often it was done, so that a measure can tell that it was.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator

from bench.raw_client import RawConnection
from bench.raw_sasl import ScramExchange, send_proof
from bench.secured import HOST, MECHANISM, USER

_TIMEOUT_SECONDS = 10
_KEPT_OPEN = 250
_ANNOUNCED_BYTES = 1 << 20


def paced(
    rate: float, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[int]:
    """0, 1, 2, … at most `rate` a second on the average, for so long."""
    started = clock()
    number = 0
    while (now := clock()) < started + seconds:
        due = started + number / rate
        if due > now:
            sleep(min(due - now, started + seconds - now))
            continue
        yield number
        number += 1


class _Open:
    """The last connections, kept open without a word; older ones are closed."""

    def __init__(self) -> None:
        self._connections: deque[socket.socket | RawConnection] = deque()

    def keep(self, connection: socket.socket | RawConnection) -> None:
        self._connections.append(connection)
        if len(self._connections) > _KEPT_OPEN:
            self._connections.popleft().close()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def abandon_handshakes(port: int, rate: float, seconds: float, hello: bytes) -> int:
    """Connect, send a whole ClientHello, and never answer the node's reply."""
    opened, done = _Open(), 0
    for _ in paced(rate, seconds, time.monotonic, time.sleep):
        connection = socket.create_connection((HOST, port), _TIMEOUT_SECONDS)
        connection.sendall(hello)
        opened.keep(connection)
        done += 1
    opened.close()
    return done


def fail_logins(port: int, rate: float, seconds: float) -> int:
    """Log in with a wrong password, and leave before the verdict."""
    opened, done = _Open(), 0
    for _ in paced(rate, seconds, time.monotonic, time.sleep):
        connection = RawConnection(HOST, port, buffer_bytes=4096)
        send_proof(connection, MECHANISM, ScramExchange(USER, "not the password"))
        opened.keep(connection)
        done += 1
    opened.close()
    return done


def send_slow_frames(port: int, connections: int, rate: float, seconds: float) -> int:
    """Requests of 1 MiB that arrive byte by byte, so many bytes a second in all."""
    senders = [socket.create_connection((HOST, port), _TIMEOUT_SECONDS) for _ in range(connections)]
    done = 0
    for sender in senders:
        sender.sendall(struct.pack(">i", _ANNOUNCED_BYTES))
    for number in paced(rate, seconds, time.monotonic, time.sleep):
        senders[number % connections].sendall(b"\0")
        done += 1
    for sender in senders:
        sender.close()
    return done
