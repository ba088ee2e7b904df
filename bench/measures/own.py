# SPDX-License-Identifier: Apache-2.0
"""Headrace against itself: does background work of 1 GB make a small synchronous send wait?"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bench.cell import Cell
from bench.judge import percentile
from bench.model import Figures, Profile
from bench.payloads import batch_of
from bench.raw_client import RawConnection, fetch_each, produce_check, round_trips, send_each
from bench.raw_requests import produce_request

PROFILE = Profile(name="own", settings={"log.cleaner.backoff.ms": "500"})

_KEYS = 10_000
_RECORDS_PER_BATCH = 1000
_SEGMENT_BYTES = 1 << 30
_RESPONSE_BYTES = 1 << 20
_LONGEST_SECONDS = 6.0
_START_WITHIN_SECONDS = 30.0


def beside_background_work(cell: Cell) -> Figures:
    """p99 of a small synchronous send, quiet, while a 1 GB segment is read cold, while 1 GB is compacted."""
    segment_bytes = max(16 << 20, int(_SEGMENT_BYTES * cell.scale))
    with (
        cell.topic(segment_bytes=str(segment_bytes)) as big,
        cell.topic() as small,
        cell.connect() as connection,
    ):
        probe = _Probe(connection, small, seconds=max(3.0 * cell.scale, 0.5))
        batches = _fill(cell, big, segment_bytes)
        quiet = percentile(probe.run(), 99)
        cold = percentile(_while_read_cold(cell, probe, big, batches), 99)
        compacted = percentile(_while_compacted(cell, probe, big), 99)
    return {
        "quiet_p99_us": quiet,
        "cold_read_p99_us": cold,
        "compaction_p99_us": compacted,
        "cold_read_ratio": cold / quiet,
        "compaction_ratio": compacted / quiet,
    }


class _Probe:
    """Small synchronous sends with acks=all, as a careful application makes them."""

    def __init__(self, connection: RawConnection, topic: str, *, seconds: float) -> None:
        self._connection = connection
        self._requests = [produce_request(topic, {0: batch_of([b"v" * 100])}, acks=-1)]
        self._check = produce_check(topic)
        self._seconds = seconds

    def run(self, seconds: float | None = None) -> list[float]:
        return round_trips(
            self._connection, self._requests, self._check, seconds=seconds or self._seconds, pause_ms=0.2
        )


def _fill(cell: Cell, topic: str, segment_bytes: int) -> int:
    """A full segment of updates of 10,000 keys and the beginning of the next; batches written."""
    value = os.urandom(1000)
    requests = []
    for first in range(0, _KEYS, _RECORDS_PER_BATCH):
        keys = [b"key-%08d" % key for key in range(first, first + _RECORDS_PER_BATCH)]
        requests.append(produce_request(topic, {0: batch_of([value] * len(keys), keys=keys)}, acks=1))
    batches = segment_bytes // len(requests[0]) + 2
    with cell.connect() as connection:
        turns = [requests[turn % len(requests)] for turn in range(batches)]
        send_each(connection, turns, produce_check(topic), in_flight=5)
    return batches


def _while_read_cold(cell: Cell, probe: _Probe, topic: str, batches: int) -> list[float]:
    forget_page_cache(_partition_folder(cell, topic))
    offsets = [batch * _RECORDS_PER_BATCH for batch in range(batches)]
    load = cell.pool.submit(read_offsets, cell.node.host, cell.node.port, topic, offsets)
    times_us: list[float] = []
    while not load.done():
        times_us += probe.run(0.05)
    load.result()
    return times_us


def _while_compacted(cell: Cell, probe: _Probe, topic: str) -> list[float]:
    """Turn compaction on and take the latencies while its files are being written."""
    folder = _partition_folder(cell, topic)
    cell.alter_topic(topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    times_us: list[float] = []
    begun = time.monotonic()
    while True:
        slice_us = probe.run(0.05)
        waited = time.monotonic() - begun
        if compaction_runs(folder):
            times_us += slice_us
        elif times_us:
            return times_us
        elif waited > _START_WITHIN_SECONDS:
            raise TimeoutError(f"{topic} was not compacted within {_START_WITHIN_SECONDS:.0f} s")
        if times_us and waited > _LONGEST_SECONDS:
            return times_us


def read_offsets(host: str, port: int, topic: str, offsets: list[int]) -> int:
    """Fetch from each offset in turn; bytes received. Runs in a worker process."""
    with RawConnection(host, port, buffer_bytes=2 * _RESPONSE_BYTES) as connection:
        received, _ = fetch_each(connection, topic, offsets, max_bytes=_RESPONSE_BYTES)
    return received


def forget_page_cache(folder: Path) -> None:
    """Write the segments' pages out and drop them: the next read comes from the disk."""
    for segment in folder.glob("*.log"):
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compaction_runs(folder: Path) -> bool:
    """Both engines write the new segment beside the old one under this name."""
    return any(folder.glob("*.cleaned"))


def _partition_folder(cell: Cell, topic: str) -> Path:
    found = sorted(cell.node.data_dir.rglob(f"{topic}-0"))
    if not found:
        raise FileNotFoundError(f"no folder {topic}-0 below {cell.node.data_dir}")
    return found[0]
