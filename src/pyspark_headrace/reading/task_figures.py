# SPDX-License-Identifier: Apache-2.0
"""Rows, bytes and times of each task of a micro-batch, sent to the driver by a Spark accumulator.

Spark takes the updates of successful tasks only, with their results, so that they come from any machine of a
cluster and are complete before the batch ends. Independent of Kafka. Read next: stream_reader.py (sends),
headrace/pipelines/reporting/query_metrics.py (receives),
docs/decisions/0037-figures-of-tasks-by-an-accumulator.md.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark_headrace.reading.offsets import Offsets
from pyspark_headrace.reading.splits import Range

ACCUMULATOR_ID = -370_037
"""The same in all processes. Spark counts those of users upwards from 0; -1 and -2 are its own."""
_BATCHES_KEPT = 64
_KEY_BYTES = 8

Place = tuple[str, int, int, int]
"""Topic, partition, start and end of the offsets that a task reads."""
Update = Mapping[str, Mapping[Place, tuple[int, int, int, int]]]
"""What a task sends: built-in types only, so that every driver can unpickle it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """`bytes` as fetched, compressed. Times of several tasks add up, also where they ran at the same time."""

    rows: int = 0
    bytes: int = 0
    fetch_ns: int = 0
    decode_ns: int = 0


class Meter:
    """Measures one task. Fetching counts only as long as the task waits for it."""

    def __init__(self) -> None:
        self._rows = self._bytes = self._fetch_ns = self._decode_ns = 0

    def fetching(self, chunks: Iterator[T], size_of: Callable[[T], int]) -> Iterator[T]:
        for chunk in _timed(chunks, self._add_fetch_ns):
            self._bytes += size_of(chunk)
            yield chunk

    def decoding(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in _timed(batches, self._add_decode_ns):
            self._rows += batch.num_rows
            yield batch

    def figures(self) -> Figures:
        return Figures(rows=self._rows, bytes=self._bytes, fetch_ns=self._fetch_ns, decode_ns=self._decode_ns)

    def _add_fetch_ns(self, spent: int) -> None:
        self._fetch_ns += spent

    def _add_decode_ns(self, spent: int) -> None:
        self._decode_ns += spent


def batch_key(end: Offsets) -> str:
    """Names a micro-batch by its query and its end offsets, which the query's progress has, too."""
    text = json.dumps(end.to_document(), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).hexdigest()


def send(batch: str, read: Range, figures: Figures) -> None:
    """Have Spark's worker send the figures of its task with the task's result."""
    from pyspark.accumulators import Accumulator, AccumulatorParam

    place = (read.topic, read.partition, read.start, read.end)
    numbers = (figures.rows, figures.bytes, figures.fetch_ns, figures.decode_ns)
    update: Update = {batch: {place: numbers}}
    Accumulator(ACCUMULATOR_ID, update, AccumulatorParam())  # joins the registry that the worker sends


class ReceivedFigures:
    """Figures of the last micro-batches on the driver; from any thread.

    A range that is read twice (speculation, a retried stage, two actions in `foreachBatch`) counts once.
    """

    def __init__(self, *, batches_kept: int = _BATCHES_KEPT) -> None:
        self._batches_kept = batches_kept
        self._batches: OrderedDict[str, dict[Place, Figures]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, update: Update) -> None:
        with self._lock:
            for batch, parts in update.items():
                known = self._batches.setdefault(batch, {})
                self._batches.move_to_end(batch)
                for place, numbers in parts.items():
                    found = _figures(numbers)
                    known[place] = max(known.get(place, found), found, key=lambda each: each.rows)
            while len(self._batches) > self._batches_kept:
                self._batches.popitem(last=False)

    def total(self, batch: str) -> Figures | None:
        """None: no task of the batch has sent anything."""
        with self._lock:
            parts = self._batches.get(batch)
            return None if parts is None else _sum(parts.values())


def _figures(numbers: tuple[int, int, int, int]) -> Figures:
    rows, size, fetch_ns, decode_ns = numbers
    return Figures(rows=rows, bytes=size, fetch_ns=fetch_ns, decode_ns=decode_ns)


def _sum(parts: Iterable[Figures]) -> Figures:
    each = list(parts)
    return Figures(
        rows=sum(part.rows for part in each),
        bytes=sum(part.bytes for part in each),
        fetch_ns=sum(part.fetch_ns for part in each),
        decode_ns=sum(part.decode_ns for part in each),
    )


def _timed(items: Iterator[T], add_ns: Callable[[int], None]) -> Iterator[T]:
    """The same items; adds up how long `items` took to make them."""
    end = object()
    while True:
        begun_ns = time.perf_counter_ns()
        item: Any = next(items, end)
        add_ns(time.perf_counter_ns() - begun_ns)
        if item is end:
            return
        yield item
