# SPDX-License-Identifier: Apache-2.0
"""Recovery after an unclean stop, with no recovery point to help: every batch of the log is read and checked.

The soak holds the figures for 1 GiB; the short form holds the same per byte, with room for a busy machine.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient, simple_batch

StartNode = Callable[..., NodeProcess]
TOPIC = "recovered"
GIB = 1 << 30
CASES = {"16 KiB batches": (16_000, 10.0), "single 100 B records": (100, 60.0)}
"""Bytes of the one value in each batch, and seconds that a GiB may take."""


def write_log(path: Path, batch: bytes, size: int) -> int:
    """Fills a segment with one batch at rising offsets, which are outside the CRC; returns how many."""
    count = size // len(batch)
    offset = struct.Struct(">q")
    with path.open("wb", buffering=1 << 20) as file:
        body = batch[8:]
        for number in range(count):
            file.write(offset.pack(number))
            file.write(body)
    return count


def recover(start_node: StartNode, value_bytes: int, size: int) -> float:
    node = start_node()
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC)
    node.kill()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (node.data / name).unlink(missing_ok=True)
    segment = node.data / f"{TOPIC}-0" / f"{0:020}.log"
    count = write_log(segment, simple_batch(b"v" * value_bytes, leader_epoch=0), size)
    with segment.open("ab") as file:
        file.write(simple_batch(b"torn")[:40])
    started = time.monotonic()
    node.start(timeout_ms=300_000)
    seconds = time.monotonic() - started
    with RawClient(node.bootstrap) as client:
        assert client.end_offset(TOPIC) == count
        assert client.fetch(TOPIC, count - 1)
    return seconds


@pytest.mark.parametrize("case", CASES)
def test_recovery_is_quick_per_byte(start_node: StartNode, case: str) -> None:
    value_bytes, seconds_per_gib = CASES[case]
    assert recover(start_node, value_bytes, 32 << 20) < 3 + 2 * seconds_per_gib / 32


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_recovery_of_a_gibibyte(start_node: StartNode) -> None:
    started, figures = time.monotonic(), {}
    for case, (value_bytes, limit_s) in CASES.items():
        seconds = recover(start_node, value_bytes, GIB)
        figures[case] = {"seconds": round(seconds, 1), "limit_s": limit_s}
    soak.write_report("recovery", started, figures)
    for case, figure in figures.items():
        assert figure["seconds"] < figure["limit_s"], case
