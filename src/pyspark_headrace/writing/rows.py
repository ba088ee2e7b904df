# SPDX-License-Identifier: Apache-2.0
"""Groups a task's rows by topic and by partitioning (explicit partition or by key).

No network access. Read next: task.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.write.write_request import WriteRequest
from headrace.client.errors import ClientError
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.writing.columns import SinkColumns

_BUFFER_BYTES = 32 << 20
"""Rows with a topic or partition column are buffered up to this size before they are grouped."""


def requests(
    batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns, *, idempotent: bool
) -> Iterator[tuple[str, WriteRequest]]:
    """Yield (topic, write request) until all rows are covered."""

    def request(rows: Any, topic: str, partition: str | None) -> WriteRequest:
        return WriteRequest(
            rows,
            topic,
            create=False,
            key=columns.optional("key"),
            value="value",
            timestamp=None,
            headers=columns.optional("headers"),
            partition=partition,
            compression=settings.compression,
            idempotent=idempotent,
            timeout_ms=settings.timeout_ms,
        )

    if settings.topic is not None and "partition" not in columns.names:
        if (first := next(batches, None)) is not None:  # sent while the next ones arrive
            yield settings.topic, request(chain([first], batches), settings.topic, None)
        return
    for topic, rows in _by_topic(batches, settings.topic):
        for part, partition in _by_partitioning(rows, columns):
            yield topic, request(part, topic, partition)


def _by_topic(batches: Iterator[Any], topic: str | None) -> Iterator[tuple[str, Any]]:
    """Yield (topic, rows). The topic option overrides the topic column."""
    for rows in _buffered(batches):
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
    """Split rows with a partition from those without one, which are partitioned by key."""
    if "partition" not in columns.names:
        yield rows, None
        return
    named = pc.is_valid(rows.column("partition"))
    for part, partition in ((rows.filter(named), "partition"), (rows.filter(pc.invert(named)), None)):
        if part.num_rows:
            yield part, partition


def _buffered(batches: Iterator[Any]) -> Iterator[Any]:
    buffered: list[Any] = []
    size = 0
    for batch in batches:
        buffered.append(batch)
        size += batch.nbytes
        if size >= _BUFFER_BYTES:
            yield _table(buffered)
            buffered, size = [], 0
    if size:
        yield _table(buffered)


def _table(batches: Sequence[Any]) -> Any:
    return pa.Table.from_batches(batches)
