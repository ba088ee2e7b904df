# SPDX-License-Identifier: Apache-2.0
"""Splits a read into tasks: offset ranges, divided further when more tasks are requested. Pure.

A range ends when the fetch position reaches `end`, whether or not a record precedes it: control records and
compaction leave gaps. Read next: task.py (reads one range).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets [`start`, `end`) of one partition."""

    topic: str
    topic_id: str | None
    partition: int
    start: int
    end: int
    from_earliest: bool = False
    """`start` is a lower bound: a log that begins later is not a data loss."""

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(start: Offsets, end: Offsets, *, reread_truncated: bool) -> list[Range]:
    """The offset ranges between two positions of a query.

    A recreated topic is read from its beginning, and so is a partition that `start` does not have. For a
    truncated log `end` is below `start`: nothing is read, or the whole log with `reread_truncated`.
    """
    found = []
    for topic, held in sorted(end.topics.items()):
        before = start.topics.get(topic)
        for partition, position in sorted(held.partitions.items()):
            known = None if before is None else _known(before, held, partition)
            if known is not None and known.offset > position.offset and reread_truncated:
                known = None
            first = 0 if known is None else known.offset
            if first < position.offset:
                found.append(
                    Range(
                        topic=topic,
                        topic_id=held.topic_id,
                        partition=partition,
                        start=first,
                        end=position.offset,
                        from_earliest=known is None,
                    )
                )
    return found


def _known(before: TopicPositions, now: TopicPositions, partition: int) -> Position | None:
    return before.partitions.get(partition) if before.topic_id == now.topic_id else None


def split(ranges: Sequence[Range], *, least: int | None = None, most_rows: int | None = None) -> list[Range]:
    """At least `least` ranges of at most `most_rows` offsets each, the largest as small as possible."""
    pieces = [1 if most_rows is None else -(-each.size // most_rows) for each in ranges]
    if least is not None:
        _cut_largest(ranges, pieces, least)
    return [piece for each, count in zip(ranges, pieces, strict=True) for piece in _cut(each, count)]


def _cut_largest(ranges: Sequence[Range], pieces: list[int], least: int) -> None:
    """Divide the range with the largest pieces again until there are `least` of them."""
    heap = [
        (-each.size / count, place) for place, (each, count) in enumerate(zip(ranges, pieces, strict=True))
    ]
    heapq.heapify(heap)
    missing = least - sum(pieces)
    while missing > 0 and heap:
        _, place = heapq.heappop(heap)
        if pieces[place] < ranges[place].size:
            pieces[place] += 1
            missing -= 1
            heapq.heappush(heap, (-ranges[place].size / pieces[place], place))


def _cut(each: Range, count: int) -> list[Range]:
    bounds = [each.start + each.size * piece // count for piece in range(count + 1)]
    return [replace(each, start=low, end=high) for low, high in itertools.pairwise(bounds)]
