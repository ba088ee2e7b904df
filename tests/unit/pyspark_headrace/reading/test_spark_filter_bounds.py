# SPDX-License-Identifier: Apache-2.0
"""Filters as bounds: only ever narrower than the ranges, and never narrower than the filters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import datasource as spark

from headrace.types import TopicPartition
from pyspark_headrace.reading.filter_bounds import bounds_of
from pyspark_headrace.reading.splits import Range


def ranges() -> list[Range]:
    return [Range(topic="orders", topic_id=None, partition=number, start=10, end=100) for number in range(3)]


def spans(*filters: spark.Filter, begins: dict[int, int] | None = None) -> list[tuple[int, int, int]]:
    places = {TopicPartition("orders", number): offset for number, offset in (begins or {}).items()}
    return [(each.partition, each.start, each.end) for each in bounds_of(filters).apply(ranges(), places)]


def test_partitions_and_topics() -> None:
    assert spans(spark.EqualTo(("partition",), 1)) == [(1, 10, 100)]
    assert spans(spark.In(("partition",), (0, 2, 9))) == [(0, 10, 100), (2, 10, 100)]
    assert spans(spark.EqualTo(("topic",), "other")) == []
    assert spans(spark.EqualTo(("partition",), 1), spark.EqualTo(("partition",), 2)) == []
    contradiction = [spark.EqualTo(("partition",), number) for number in (0, 1, 1)]
    assert spans(*contradiction) == []


@pytest.mark.parametrize(
    ("test", "span"),
    [
        (spark.EqualTo(("offset",), 50), (50, 51)),
        (spark.GreaterThan(("offset",), 50), (51, 100)),
        (spark.GreaterThanOrEqual(("offset",), 50), (50, 100)),
        (spark.LessThan(("offset",), 50), (10, 50)),
        (spark.LessThanOrEqual(("offset",), 50), (10, 51)),
        (spark.GreaterThan(("offset",), 5), (10, 100)),
    ],
)
def test_offsets(test: spark.Filter, span: tuple[int, int]) -> None:
    assert spans(test, spark.EqualTo(("partition",), 0)) == [(0, *span)]


def test_times_bound_only_where_a_partition_begins() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    since = spark.GreaterThan(("timestamp",), moment)
    assert bounds_of([since]).since_ms == int(moment.timestamp() * 1000)
    assert spans(since, begins={0: 70, 1: -1, 2: 0}) == [(0, 70, 100), (2, 10, 100)]
    assert bounds_of([spark.LessThan(("timestamp",), moment)]).since_ms is None


def test_unsupported_filters_narrow_nothing() -> None:
    others = [
        spark.Not(spark.EqualTo(("partition",), 1)),
        spark.IsNotNull(("value",)),
        spark.EqualTo(("value", "nested"), 1),
        spark.StringStartsWith(("topic",), "o"),
    ]
    assert spans(*others) == [(number, 10, 100) for number in range(3)]
