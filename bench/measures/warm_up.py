# SPDX-License-Identifier: Apache-2.0
"""What every node does before its first turn, so that no engine is measured cold."""

from __future__ import annotations

from bench.cell import Cell
from bench.payloads import plain_batch
from bench.raw_client import fetch_each, produce_check, produce_pipelined
from bench.raw_requests import produce_request

_SECONDS = 4.0


def warm_up_node(cell: Cell) -> None:
    """Large and small requests and fetches: a JVM compiles its hot paths meanwhile, a disk file grows."""
    seconds = max(_SECONDS * cell.suite_scale, 0.3)
    with cell.topic() as topic, cell.connect() as connection:
        check = produce_check(topic)
        large = produce_request(topic, {0: plain_batch(1000, 1000)}, acks=1)
        count, _ = produce_pipelined(connection, large, check, in_flight=5, seconds=seconds)
        small = produce_request(topic, {0: plain_batch(1, 100)}, acks=-1)
        produce_pipelined(connection, small, check, in_flight=16, seconds=seconds)
        fetch_each(connection, topic, [batch * 1000 for batch in range(count)], max_bytes=1 << 20)
