# SPDX-License-Identifier: Apache-2.0
"""Callbacks and statistics of a parallel consumer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.parallel.record import Record
from headrace.types import TopicPartition


class Observer:
    """Override the callbacks you need. Called from the consumer's threads: return quickly, do not raise."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were assigned."""

    def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
        """Partitions were revoked; `unfinished` records were still running at the timeout."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions were lost (the member was fenced); nothing more of them is committed."""

    def retrying(self, record: Record, error: BaseException, delay_ms: float) -> None:
        """The handler failed; it is called again after the delay."""

    def dead_lettered(self, record: Record, error: BaseException) -> None:
        """The record was written to the dead-letter topic."""

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """Offsets were committed."""

    def trouble(self, text: str) -> None:
        """A transient error, which is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A snapshot; the first five only grow."""

    received: int
    finished: int
    """Handled, or written to the dead-letter topic."""
    retried: int
    dead_lettered: int
    dropped: int
    """Started, but not counted since the partition was revoked; another member handles them."""
    in_flight: int
    in_flight_bytes: int
    running: int
    partitions: tuple[TopicPartition, ...]
    paused: tuple[TopicPartition, ...]
    committed: dict[TopicPartition, int]
    at_end: bool
    """Every assigned partition was read to its end, and all records are handled."""
