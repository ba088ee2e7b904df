"""Filters of a query as bounds of what is read. They only ever narrow: Spark evaluates all of them again.

Pure. A filter that is not understood narrows nothing. Read next: batch_reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from headrace.types import TopicPartition
from pyspark_headrace.splits import Range

_HIGHEST = (1 << 63) - 1
_AT_LEAST = ("EqualTo", "GreaterThan", "GreaterThanOrEqual")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """None: any. Offsets from `first` up to and without `end`; records not before `since_ms`."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int = _HIGHEST
    since_ms: int | None = None

    def apply(self, ranges: Iterable[Range], begins: Mapping[TopicPartition, int]) -> list[Range]:
        """`begins`: the first offset at or after `since_ms` of each partition, -1 where there is none."""
        found = []
        for each in ranges:
            begin = begins.get(TopicPartition(each.topic, each.partition), 0)
            if begin < 0 or not self._takes(each):
                continue
            first, end = max(each.start, self.first, begin), min(each.end, self.end)
            if first < end:
                found.append(replace(each, start=first, end=end))
        return found

    def _takes(self, each: Range) -> bool:
        return (self.topics is None or each.topic in self.topics) and (
            self.partitions is None or each.partition in self.partitions
        )


def narrowing_of(filters: Sequence[Any]) -> Narrowing:
    """Filters are Spark's (pyspark.sql.datasource), told apart by name: older versions have none."""
    narrowing = Narrowing()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        value = getattr(each, "value", None)
        if len(column) == 1:
            narrowing = _narrowed(narrowing, column[0], type(each).__name__, value)
    return narrowing


def _narrowed(narrowing: Narrowing, column: str, test: str, value: Any) -> Narrowing:
    if column in ("topic", "partition") and test in ("EqualTo", "In"):
        wanted = frozenset(value if test == "In" else (value,))
        if column == "topic":
            return replace(narrowing, topics=_both(narrowing.topics, wanted))
        return replace(narrowing, partitions=_both(narrowing.partitions, wanted))
    if column == "offset" and isinstance(value, int):
        return _narrowed_offset(narrowing, test, value)
    if column == "timestamp" and isinstance(value, datetime) and test in _AT_LEAST:
        since_ms = int(value.timestamp() * 1000)  # rounded down: a little too much is read, never too little
        return replace(narrowing, since_ms=max(since_ms, narrowing.since_ms or 0))
    return narrowing


def _both(known: frozenset[T] | None, wanted: frozenset[T]) -> frozenset[T]:
    return wanted if known is None else known & wanted


def _narrowed_offset(narrowing: Narrowing, test: str, value: int) -> Narrowing:
    first = {"EqualTo": value, "GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(test, 0)
    end = {"EqualTo": value + 1, "LessThan": value, "LessThanOrEqual": value + 1}.get(test, _HIGHEST)
    return replace(narrowing, first=max(narrowing.first, first), end=min(narrowing.end, end))
