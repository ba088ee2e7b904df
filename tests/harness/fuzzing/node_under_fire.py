# SPDX-License-Identifier: Apache-2.0
"""Frames against a simulated node, in process: its own connections and dispatcher, no sockets, virtual time.

Fails on an exception that the node did not foresee, and on memory of requests that was not given back.
Read next: frames.py, tests/simulation/test_fuzzed_node.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from headrace.broker.network.connection import KafkaConnection
from tests.harness.broker.fake_clients import FakeTransport
from tests.harness.broker.simulated_node import SimBroker

CONNECTIONS = 32
FRAMES_A_TURN = 48
PATIENCE_TURNS = 3
"""A connection whose request waits longer, as a fetch may, is dropped by its client."""
TURN_S = 0.3
"""Virtual."""


class UnforeseenErrors(logging.Handler):
    """Collects what a node logs with a traceback: nothing that a client sends may cause that."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_unforeseen_errors() -> Iterator[None]:
    """Keeps the lines to itself: a test run would keep a million of them in memory."""
    handler, logger = UnforeseenErrors(), logging.getLogger("headrace")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
    assert not handler.found, "\n".join(handler.found[:3])


class FiredClient:
    """One connection to the node, replaced whenever the node or the client ends it."""

    def __init__(self, node: SimBroker) -> None:
        self._node = node
        self.outcomes: Counter[str] = Counter()
        self._waited = 0
        self._connection: KafkaConnection
        self._transport: FakeTransport
        self._open()

    def _open(self) -> None:
        self._connection = self._node.broker.connections.factory("main")()
        self._transport = FakeTransport(self._connection)
        self._connection.connection_made(self._transport)
        self._waited = 0

    def send(self, frame: bytes) -> None:
        self._transport.arrive(frame)
        self.look()

    def look(self) -> None:
        """Counts what came back, and begins anew where the connection has ended."""
        self.outcomes["answered"] += _count_frames(self._transport.sent)
        self._transport.sent.clear()
        if self._transport.ended:
            self._end("closed")

    def turn_over(self) -> None:
        """Reads on; gives up on a request that waits for long."""
        self.look()
        self._transport.arrive()
        self._waited = self._waited + 1 if self._connection.waiting_for_us else 0
        if self._waited > PATIENCE_TURNS:
            self._end("given up")

    def _end(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self.drop()
        self._open()

    def drop(self) -> None:
        self._connection.connection_lost(None)


async def endure(node: SimBroker, frames: Iterable[bytes]) -> Counter[str]:
    """What became of the frames; all connections are closed afterwards."""
    clients = [FiredClient(node) for _ in range(CONNECTIONS)]
    stream = iter(frames)
    while turn := list(islice(stream, FRAMES_A_TURN)):
        for place, frame in enumerate(turn):
            clients[place % CONNECTIONS].send(frame)
        await asyncio.sleep(TURN_S)
        for client in clients:
            client.turn_over()
    for client in clients:
        client.look()
        client.drop()
    await asyncio.sleep(TURN_S)
    assert node.broker.metrics.frames_bytes == 0
    return sum((client.outcomes for client in clients), Counter())


def _count_frames(sent: bytearray) -> int:
    count = position = 0
    while position + 4 <= len(sent):
        position += 4 + int.from_bytes(sent[position : position + 4], "big")
        count += 1
    return count
