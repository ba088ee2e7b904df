"""Rows to topics, at least once: idempotent writes straight from Spark's tasks.

A task that Spark runs again, or twice at once, writes its rows again: the price of not needing transactions.
Read next: stream_sink.py (the same for streams), writer.py of the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headrace.client.arrow.writer import WriteRequest, send_rows
from headrace.client.errors import ClientError
from pyspark_headrace.connections import Kept, kept
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.sink_columns import SinkColumns

_GATHERED_BYTES = 32 << 20
"""Rows that name their topic are gathered before they are sorted by it."""


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, settings: WriteSettings, columns: SinkColumns) -> None:
        self._settings = settings
        self._columns = columns

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(iterator, self._settings, self._columns)


def write_rows(batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns) -> Written:
    """Returns when every row is acknowledged."""
    connections = kept(settings.bootstrap)
    records = 0
    for topic, rows in _by_topic(batches, settings.topic):
        for part, partition in _by_partitioning(rows, columns):
            records += _write(part, topic, partition, settings, columns, connections)
    return Written(records)


def _write(
    rows: Any,
    topic: str,
    partition: str | None,
    settings: WriteSettings,
    columns: SinkColumns,
    connections: Kept,
) -> int:
    request = WriteRequest(
        rows,
        topic,
        key=columns.optional("key"),
        headers=columns.optional("headers"),
        partition=partition,
        compression=settings.compression,
        timeout_ms=settings.timeout_ms,
    )
    sender = connections.call(request.open(connections.cluster))
    try:
        return send_rows(connections.io, sender, request.encoded()).records
    finally:
        connections.call(sender.close())


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
