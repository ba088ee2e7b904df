# SPDX-License-Identifier: Apache-2.0
"""Filter pushdown: turns a query's filters into bounds on what is read. Spark evaluates all filters again.

Pure. An unsupported filter is ignored. Read next: batch_reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from headrace.types import TopicPartition
from pyspark_headrace.reading.splits import Range

_HIGHEST = (1 << 63) - 1
_AT_LEAST = ("EqualTo", "GreaterThan", "GreaterThanOrEqual")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBounds:
    """Bounds of a read; None: any. Offsets in [`first`, `end`), records at or after `since_ms`."""

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
            if begin < 0 or not self._includes(each):
                continue
            first, end = max(each.start, self.first, begin), min(each.end, self.end)
            if first < end:
                found.append(replace(each, start=first, end=end))
        return found

    def _includes(self, each: Range) -> bool:
        return (self.topics is None or each.topic in self.topics) and (
            self.partitions is None or each.partition in self.partitions
        )


def bounds_of(filters: Sequence[Any]) -> FilterBounds:
    """Filters are those of pyspark.sql.datasource, matched by class name: older versions lack them."""
    bounds = FilterBounds()
    for each in filters:
        column: tuple[str, ...] = getattr(each, "attribute", ())
        value = getattr(each, "value", None)
        if len(column) == 1:
            bounds = _narrowed(bounds, column[0], type(each).__name__, value)
    return bounds


def _narrowed(bounds: FilterBounds, column: str, test: str, value: Any) -> FilterBounds:
    if column in ("topic", "partition") and test in ("EqualTo", "In"):
        wanted = frozenset(value if test == "In" else (value,))
        if column == "topic":
            return replace(bounds, topics=_both(bounds.topics, wanted))
        return replace(bounds, partitions=_both(bounds.partitions, wanted))
    if column == "offset" and isinstance(value, int):
        return _narrowed_offset(bounds, test, value)
    if column == "timestamp" and isinstance(value, datetime) and test in _AT_LEAST:
        since_ms = int(value.timestamp() * 1000)  # rounded down: may read too much, never too little
        return replace(bounds, since_ms=max(since_ms, bounds.since_ms or 0))
    return bounds


def _both(known: frozenset[T] | None, wanted: frozenset[T]) -> frozenset[T]:
    return wanted if known is None else known & wanted


def _narrowed_offset(bounds: FilterBounds, test: str, value: int) -> FilterBounds:
    first = {"EqualTo": value, "GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(test, 0)
    end = {"EqualTo": value + 1, "LessThan": value, "LessThanOrEqual": value + 1}.get(test, _HIGHEST)
    return replace(bounds, first=max(bounds.first, first), end=min(bounds.end, end))
