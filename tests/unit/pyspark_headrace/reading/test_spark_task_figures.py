# SPDX-License-Identifier: Apache-2.0
"""Figures of tasks: measured around iterators, sent once per range, kept for the last batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import accumulators

from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.reading.splits import Range
from pyspark_headrace.reading.task_figures import (
    ACCUMULATOR_ID,
    Figures,
    Meter,
    ReceivedFigures,
    batch_key,
    send,
)

PART = Range(topic="orders", topic_id=None, partition=0, start=0, end=5)


def offsets(end: int) -> Offsets:
    held = TopicPositions(topic_id=None, partitions={0: Position(offset=end)})
    return Offsets(query="q", topics={"orders": held})


def test_rows_bytes_and_times_are_measured() -> None:
    meter = Meter()
    batch = pa.record_batch({"value": ["a", "b"]})
    for chunk in meter.fetching(iter([b"123", b"4567"]), len):
        assert list(meter.decoding(iter([batch] * len(chunk)))) == [batch] * len(chunk)
    found = meter.figures()
    assert (found.rows, found.bytes) == (14, 7)
    assert found.fetch_ns > 0
    assert found.decode_ns > 0


def test_what_follows_a_batch_is_not_counted_as_its_making() -> None:
    """Spark takes a batch before it asks for the next one."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a"]})

    meter = Meter()
    rows = meter.decoding(batches())
    next(rows)
    before = meter.figures().decode_ns
    sum(range(100_000))
    assert meter.figures().decode_ns == before


def test_a_task_sends_built_in_types_under_the_key_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[int, accumulators.Accumulator[object]] = {}
    monkeypatch.setattr(accumulators, "_accumulatorRegistry", registry)
    send("key", PART, Figures(rows=5, bytes=90, fetch_ns=7, decode_ns=8))
    sent = pickle.loads(pickle.dumps(registry[ACCUMULATOR_ID]._value))
    assert sent == {"key": {("orders", 0, 0, 5): (5, 90, 7, 8)}}


def test_a_range_that_is_read_twice_counts_once() -> None:
    received = ReceivedFigures()
    received.add({"a": {("orders", 0, 0, 5): (5, 90, 7, 8)}})
    received.add({"a": {("orders", 0, 0, 5): (2, 90, 1, 1)}})  # stopped early by Spark
    received.add({"a": {("orders", 1, 0, 3): (3, 10, 1, 1)}})
    assert received.total("a") == Figures(rows=8, bytes=100, fetch_ns=8, decode_ns=9)
    assert received.total("b") is None


def test_only_the_last_batches_are_kept() -> None:
    received = ReceivedFigures(batches_kept=2)
    for batch in ("a", "b", "a", "c"):
        received.add({batch: {("orders", 0, 0, 1): (1, 1, 1, 1)}})
    assert [received.total(batch) is None for batch in ("a", "b", "c")] == [False, True, False]


def test_the_key_of_a_batch_is_that_of_its_end() -> None:
    assert batch_key(offsets(5)) == batch_key(offsets(5)) != batch_key(offsets(6))
