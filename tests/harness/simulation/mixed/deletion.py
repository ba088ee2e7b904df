# SPDX-License-Identifier: Apache-2.0
"""Checks what retention deletes on simulated nodes: nothing too young, and nothing that is not too much.

A node deletes by its own clock or size, or takes over a log start that another node was entitled to (R29b).
Read next: clocks.py, simulation/cluster_invariants.py (which calls it), log/retention.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.partition.partition import Partition
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.mixed.clocks import ClockWatch
from tests.harness.simulation.node import SimNode


class _Written(NamedTuple):
    next_offset: int
    timestamp_ms: int


class DeletionWatch:
    """One topic with `retention_ms` or `retention_bytes`; -1 is without limit, as in Kafka."""

    batches_are_kept = True

    def __init__(
        self,
        clocks: ClockWatch,
        true_ms: Callable[[], int],
        *,
        retention_ms: int = -1,
        retention_bytes: int = -1,
    ) -> None:
        self.deleted = 0
        """Records, on the first node that deleted them."""
        self._clocks = clocks
        self._true_ms = true_ms
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._written: dict[TopicPartition, dict[int, _Written]] = {}
        self._entitled: dict[TopicPartition, int] = {}
        """The highest log start that some node had a reason for."""

    def committed(self, name: TopicPartition, node: SimNode, batches: memoryview) -> None:
        known, position = self._written.setdefault(name, {}), 0
        while position < len(batches):
            header = read_header(batches, position)
            known[header.base_offset] = _Written(header.next_offset, header.max_timestamp)
            position += header.size

    def log_start_moved(self, partition: Partition, node: SimNode, before: int) -> None:
        name, start = partition.topic_partition, partition.log_start_offset
        entitled = self._entitled.get(name, 0)
        if start <= entitled:
            return
        if not self._is_too_much(partition) and (young := self._too_young(name, node, start)):
            raise BrokenPromise(f"{name} on {node.machine.name}: {young} was deleted too early (R29b, R34)")
        self.deleted += start - entitled
        self._entitled[name] = start

    def _is_too_much(self, partition: Partition) -> bool:
        return 0 <= self._retention_bytes <= partition.log.size_bytes

    def _too_young(self, name: TopicPartition, node: SimNode, start: int) -> str:
        """The first batch that had no reason to go; empty when all had."""
        now_ms = self._true_ms() + self._clocks.ahead_ms(node)
        for offset, written in sorted(self._written.get(name, {}).items()):
            if written.next_offset > start:
                break
            age_ms = now_ms - written.timestamp_ms
            if not 0 <= self._retention_ms < age_ms:
                return f"the batch at {offset}, {age_ms} ms old by this node's clock,"
        return ""
