# SPDX-License-Identifier: Apache-2.0
"""Checks a compacted topic on simulated nodes: replicas compact alone, so their batches differ.

What is below a high watermark is remembered record by record. A replica may lack a record only if a later one
with its key was committed, or if it is a tombstone of a certain age; it has nothing else (R18, R29).
Read next: simulation/cluster_invariants.py (which calls it), log/compaction/compaction.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition.partition import Partition
from headrace.types import TopicPartition
from tests.harness.history import History
from tests.harness.simulation.clients import BrokenPromise, records_in
from tests.harness.simulation.mixed.clocks import ClockWatch
from tests.harness.simulation.node import SimNode

_READ_BYTES = 1 << 20


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class CompactionWatch:
    batches_are_kept = False

    def __init__(self, clocks: ClockWatch, true_ms: Callable[[], int], *, tombstones_kept_ms: int) -> None:
        self.compacted = 0
        """Records that were missing on a replica for a good reason, at the last look at each."""
        self._clocks = clocks
        self._true_ms = true_ms
        self._tombstones_kept_ms = tombstones_kept_ms
        self._known: dict[TopicPartition, dict[int, _Record]] = {}

    def committed(self, name: TopicPartition, node: SimNode, batches: memoryview) -> None:
        self._note(name, node, bytes(batches))

    def log_start_moved(self, partition: Partition, node: SimNode, before: int) -> None:
        raise BrokenPromise(
            f"{partition.topic_partition} on {node.machine.name}: the log start of a compacted log moved "
            f"from {before} to {partition.log_start_offset} (R29b)"
        )

    def look(self, partition: Partition, node: SimNode) -> None:
        """At the whole log of a replica below its high watermark."""
        name, end = partition.topic_partition, partition.high_watermark
        offset, held = partition.log_start_offset, set[int]()
        while offset < end:
            piece = partition.log.read(offset, _READ_BYTES, end, at_least_one=True, wait=True)
            if piece is None:
                break
            held |= self._note(name, node, piece.bytes())
            offset = piece.next_offset
            piece.release()
        self._check_missing(name, node, held, end)

    def check_acknowledged(self, history: History) -> None:
        """At the end: each acknowledged record was committed where its producer was told."""
        for send in history.sends:
            known = self._known.get(send.partition)
            if known is None or send.outcome != "ok" or send.offset is None:
                continue
            record = known.get(send.offset)
            if record is None or record.value not in (send.value, None):
                raise BrokenPromise(f"{send.value!r} was acknowledged at {send.offset}, where {record} is")

    def _note(self, name: TopicPartition, node: SimNode, data: bytes) -> set[int]:
        known, offsets = self._known.setdefault(name, {}), set[int]()
        for record in records_in(data):
            found = _Record(record.key, record.value, record.timestamp)
            before = known.setdefault(record.offset, found)
            if before != found:
                raise BrokenPromise(
                    f"{name} on {node.machine.name}: committed at {record.offset} is {found}, "
                    f"and was {before} (R18)"
                )
            offsets.add(record.offset)
        return offsets

    def _check_missing(self, name: TopicPartition, node: SimNode, held: set[int], end: int) -> None:
        """What took a record's place may lie above the high watermark of a replica that restarted since."""
        known = self._known.get(name, {})
        last = {record.key: offset for offset, record in sorted(known.items())}
        missing = [offset for offset in known if offset < end and offset not in held]
        for offset in missing:
            record = known[offset]
            if last[record.key] == offset and not self._is_old_tombstone(record):
                raise BrokenPromise(
                    f"{name} on {node.machine.name}: {record} at {offset} is gone, "
                    f"and nothing took its place (R29)"
                )
        self.compacted += len(missing)

    def _is_old_tombstone(self, record: _Record) -> bool:
        """By the clock of any node: replicas fetch what another one has compacted."""
        now_ms = self._true_ms() + self._clocks.furthest_ahead_ms
        return record.value is None and now_ms - record.timestamp_ms >= self._tombstones_kept_ms
