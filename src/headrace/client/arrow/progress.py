"""How far a stream has come in each of its partitions: handed over, dealt with, committed. Plain data.

Read next: stream_core.py.
"""

from __future__ import annotations

from collections.abc import Collection, KeysView, Mapping

from headrace.types import TopicPartition

Offsets = dict[TopicPartition, int]


class Progress:
    """Offsets are those of the next record."""

    def __init__(self) -> None:
        self._positions: Offsets = {}
        """After what was handed over."""
        self._done: Offsets = {}
        """After what the reader has dealt with."""
        self._committed: Offsets = {}

    @property
    def held(self) -> KeysView[TopicPartition]:
        """The partitions that are read."""
        return self._positions.keys()

    @property
    def positions(self) -> Offsets:
        return dict(self._positions)

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Partitions are read from here on; what was before is nobody's concern."""
        self._positions |= offsets
        self._done |= offsets

    def hand_over(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._positions |= offsets

    def all_is_done(self) -> None:
        """What was handed over is dealt with."""
        self._done |= self._positions

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed |= offsets

    def news(self, partitions: Collection[TopicPartition] | None = None) -> Offsets:
        """What is dealt with and not committed, of these partitions or of all."""
        return {
            each: offset
            for each, offset in self._done.items()
            if self._committed.get(each) != offset and (partitions is None or each in partitions)
        }

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        for offsets in (self._positions, self._done, self._committed):
            for each in partitions:
                offsets.pop(each, None)
