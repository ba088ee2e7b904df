"""What can be watched of a parallel consumer: what happens, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.parallel.record import Record
from headrace.types import TopicPartition


class Observer:
    """Override what you want to hear of. Called from the consumer's own threads: be quick, do not raise."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are ours from now on."""

    def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
        """These were given back; `unfinished` records were still being handled when the time was up."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These were taken from us (we were too slow, or cut off); nothing more of them is committed."""

    def retrying(self, record: Record, error: BaseException, delay_ms: float) -> None:
        """The handler failed; it is called again after the delay."""

    def dead_lettered(self, record: Record, error: BaseException) -> None:
        """The record was given up and is now in the dead-letter topic."""

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """The broker has these."""

    def trouble(self, text: str) -> None:
        """Something that passes by itself, or is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Figures of one moment; the first five only grow."""

    received: int
    finished: int
    """Handled, or safely in the dead-letter topic."""
    retried: int
    dead_lettered: int
    dropped: int
    """Begun, but not counted because the partition had gone; another member handles them."""
    in_flight: int
    in_flight_bytes: int
    running: int
    partitions: tuple[TopicPartition, ...]
    paused: tuple[TopicPartition, ...]
    committed: dict[TopicPartition, int]
    at_end: bool
    """Nothing is left to do just now: every partition of ours was read to its end and is handled."""
