# SPDX-License-Identifier: Apache-2.0
"""A new node: time to its first answer, its memory, and how memory grows."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import lru_cache

from bench.cell import Cell
from bench.judge import percentile
from bench.model import Figures
from bench.payloads import plain_batch
from bench.raw_client import (
    RawConnection,
    produce_check,
    produce_pipelined,
    round_trips,
    send_each,
)
from bench.raw_requests import RawReplyError, metadata_request, produce_request

GROWTH_PARTITIONS = (1, 100, 1000)
GROWTH_CONNECTIONS = (10, 1000)
_PRODUCER_IDS = 10_000
_FIRST_PRODUCER_ID = 1_000_000


def growth_figure(kind: str, partitions: int, connections: int) -> str:
    """The name under which a point of the growth plot is recorded."""
    return f"{kind} {partitions}p {connections}c"


def fresh_node(cell: Cell) -> Figures:
    """Start to first answer, memory idle, memory and latency as partitions, connections and producers come.

    What tests, laptops and small servers feel. One new node per turn goes through all stages.
    """
    node = cell.nodes.prepare(cell.variant).launch()
    cell.own_node = node
    try:
        time.sleep(1.5)
        figures = {"start_s": node.ready_after_ms / 1000, "idle_mb": node.rss_bytes() / 1e6}
        with ExitStack() as open_connections:
            figures |= _grow(cell, open_connections)
        return figures
    finally:
        node.kill()
        cell.own_node = None


def _grow(cell: Cell, stack: ExitStack) -> Figures:
    figures: Figures = {}
    connections: list[RawConnection] = []
    topic = cell.create_topic()
    _warm_up(cell, topic)
    partitions = 1
    steps = [(count, GROWTH_CONNECTIONS[0]) for count in GROWTH_PARTITIONS]
    steps.append((GROWTH_PARTITIONS[-1], GROWTH_CONNECTIONS[-1]))
    for wanted, connected in steps:
        if wanted > partitions:
            cell.add_partitions(topic, partitions, wanted)
            partitions = wanted
        _open_connections(cell, stack, connections, connected)
        latency = _spread_latency(cell, connections[0], topic, partitions)
        figures[growth_figure("p50_us", partitions, connected)] = percentile(latency, 50)
        figures[growth_figure("p99_us", partitions, connected)] = percentile(latency, 99)
        figures[growth_figure("rss_mb", partitions, connected)] = cell.node.rss_bytes() / 1e6
    figures["metadata_p50_us"] = _metadata_p50(cell, connections[0], topic)
    _write_as_many_producers(cell, connections[0], topic, partitions)
    figures["loaded_mb"] = cell.node.rss_bytes() / 1e6
    return figures


def _warm_up(cell: Cell, topic: str) -> None:
    """Small requests only: a JVM compiles its hot path, and no engine's memory is filled with data."""
    request = produce_request(topic, {0: plain_batch(1, 100)}, acks=1)
    with cell.connect() as connection:
        produce_pipelined(
            connection, request, produce_check(topic), in_flight=16, seconds=max(2 * cell.scale, 0.3)
        )


def _open_connections(cell: Cell, stack: ExitStack, connections: list[RawConnection], wanted: int) -> None:
    """Connections that have each been answered once, as every client's are."""
    hello = metadata_request("no-such-topic")
    while len(connections) < wanted:
        connection = stack.enter_context(cell.connect(buffer_bytes=1 << 12))
        connection.call(hello)
        connections.append(connection)


def _spread_latency(cell: Cell, connection: RawConnection, topic: str, partitions: int) -> list[float]:
    """Synchronous produce in turn over all partitions, after each has been written once."""
    batch = plain_batch(1, 100)
    requests = [produce_request(topic, {index: batch}, acks=1) for index in range(partitions)]
    check = produce_check(topic)
    send_each(connection, requests, check, in_flight=16)
    return round_trips(connection, requests, check, count=cell.scaled(1000, least=100))


def _metadata_p50(cell: Cell, connection: RawConnection, topic: str) -> float:
    """What every client waits for when it starts: Metadata of a topic with 1,000 partitions."""
    least_bytes = GROWTH_PARTITIONS[-1] * 20

    def check(reply: memoryview) -> None:
        if len(reply) < least_bytes:
            raise RawReplyError("Metadata did not describe every partition")

    times_us = round_trips(connection, [metadata_request(topic)], check, count=cell.scaled(300, least=50))
    return percentile(times_us, 50)


@lru_cache(maxsize=1)
def _producers_batches() -> list[bytes]:
    first = _FIRST_PRODUCER_ID
    return [plain_batch.__wrapped__(1, 100, producer_id=first + number) for number in range(_PRODUCER_IDS)]


def _write_as_many_producers(cell: Cell, connection: RawConnection, topic: str, partitions: int) -> None:
    """The first batch of 10,000 idempotent producers, spread over all partitions."""
    requests = [
        produce_request(topic, {number % partitions: batch}, acks=1)
        for number, batch in enumerate(_producers_batches())
    ]
    send_each(connection, requests, produce_check(topic), in_flight=64)
