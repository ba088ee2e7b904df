"""Rows as Spark hands them to a task, sorted by the topic and the way in which their partition is chosen.

Knows no network. Read next: sink_task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.writer import WriteRequest
from headrace.client.errors import ClientError
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.sink_columns import SinkColumns

_GATHERED_BYTES = 32 << 20
"""Rows that name their topic or partition are gathered before they are sorted by it."""


def requests(
    batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns, *, idempotent: bool
) -> Iterator[tuple[str, WriteRequest]]:
    """(topic, rows to write there), one after the other, until every row was in one."""

    def request(rows: Any, topic: str, partition: str | None) -> WriteRequest:
        return WriteRequest(
            rows,
            topic,
            key=columns.optional("key"),
            headers=columns.optional("headers"),
            partition=partition,
            compression=settings.compression,
            idempotent=idempotent,
            timeout_ms=settings.timeout_ms,
        )

    if settings.topic is not None and "partition" not in columns.names:
        if (first := next(batches, None)) is not None:  # sent while the next ones come
            yield settings.topic, request(chain([first], batches), settings.topic, None)
        return
    for topic, rows in _by_topic(batches, settings.topic):
        for part, partition in _by_partitioning(rows, columns):
            yield topic, request(part, topic, partition)


def _by_topic(batches: Iterator[Any], topic: str | None) -> Iterator[tuple[str, Any]]:
    """Rows with the topic they go to. A topic that was given counts for all, whatever the column says."""
    for rows in _gathered(batches):
        if topic is not None:
            yield topic, rows
            continue
        names = rows.column("topic")
        if names.null_count:
            raise ClientError(
                "a row has no topic: its column 'topic' is null",
                next_step='fill it, or name one for all with .option("topic", …)',
            )
        for name in names.unique().to_pylist():
            yield name, rows.filter(pc.equal(names, name))


def _by_partitioning(rows: Any, columns: SinkColumns) -> Iterator[tuple[Any, str | None]]:
    """Rows that name their partition, and those whose partition is null: their key decides."""
    if "partition" not in columns.names:
        yield rows, None
        return
    named = pc.is_valid(rows.column("partition"))
    for part, partition in ((rows.filter(named), "partition"), (rows.filter(pc.invert(named)), None)):
        if part.num_rows:
            yield part, partition


def _gathered(batches: Iterator[Any]) -> Iterator[Any]:
    gathered: list[Any] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= _GATHERED_BYTES:
            yield _table(gathered)
            gathered, size = [], 0
    if size:
        yield _table(gathered)


def _table(batches: Sequence[Any]) -> Any:
    return pa.Table.from_batches(batches)
