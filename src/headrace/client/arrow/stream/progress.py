# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream's partitions: handed out, processed, committed. Plain data.

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
        """After the records handed out."""
        self._done: Offsets = {}
        """After the records that the reader has processed."""
        self._committed: Offsets = {}

    @property
    def held(self) -> KeysView[TopicPartition]:
        """The partitions that are read."""
        return self._positions.keys()

    @property
    def positions(self) -> Offsets:
        return dict(self._positions)

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Partitions are read from these offsets on."""
        self._positions |= offsets
        self._done |= offsets

    def hand_over(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._positions |= offsets

    def all_is_done(self) -> None:
        """All records handed out are processed."""
        self._done |= self._positions

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed |= offsets

    def news(self, partitions: Collection[TopicPartition] | None = None) -> Offsets:
        """Offsets processed and not committed, of these partitions or of all."""
        return {
            each: offset
            for each, offset in self._done.items()
            if self._committed.get(each) != offset and (partitions is None or each in partitions)
        }

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        for offsets in (self._positions, self._done, self._committed):
            for each in partitions:
                offsets.pop(each, None)
