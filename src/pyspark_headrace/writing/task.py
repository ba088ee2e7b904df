# SPDX-License-Identifier: Apache-2.0
"""A sink's task: writes rows at least once, or encodes them for the driver to publish exactly once.

Encoding does not touch the output topics: retried and speculative tasks leave no trace there.
Read next: delivery.py (which of both), rows.py, staging.py, publish.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.arrow.write.writer import send_rows
from pyspark_headrace.client_pool import PooledClient, pooled_client
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.worker_reuse import freeze_imports
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.commit_messages import Encoded, InMessage, Run, Written
from pyspark_headrace.writing.rows import requests
from pyspark_headrace.writing.staging import StagingWriter

_QUERY_ID = "sql.streaming.queryId"
"""Local property with the id of the streaming query."""


def write_task(
    batches: Iterator[Any],
    settings: WriteSettings,
    columns: SinkColumns,
    *,
    exactly_once: bool,
    awaits_broker: bool,
) -> WriterCommitMessage:
    """`awaits_broker`: retry while brokers restart; otherwise a wrong address fails at once."""
    connections = pooled_client(settings.bootstrap, settings.security)
    connections.reach(timeout_ms=settings.timeout_ms if awaits_broker else 0)
    try:
        if exactly_once:
            return _encode(batches, settings, columns, connections)
        return write_rows(batches, settings, columns)
    finally:
        freeze_imports()


def write_rows(batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns) -> Written:
    """Write rows at least once; returns when all are acknowledged."""
    connections = pooled_client(settings.bootstrap, settings.security)
    records = 0
    for _, request in requests(batches, settings, columns, idempotent=True):
        sender = connections.call(request.open(connections.client))
        try:
            records += send_rows(connections.io, sender, request.encoded()).records
        finally:
            connections.call(sender.close())
    return Written(records)


def _encode(
    batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns, connections: PooledClient
) -> Encoded:
    records = 0
    encoded = EncodedBatches(
        limit=settings.message_bytes,
        open_staging=lambda: StagingWriter(connections, timeout_ms=settings.timeout_ms),
    )
    try:
        for topic, request in requests(batches, settings, columns, idempotent=False):
            connections.call(request.open(connections.client))  # looks up the number of partitions
            for outgoing in request.encoded():
                encoded.put(topic, outgoing.partition, outgoing.batch)
                records += len(outgoing.rows)
        return Encoded(records, _query_id(), encoded.runs())
    finally:
        encoded.close()


def _query_id() -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


class EncodedBatches:
    """A task's record batches: in memory up to the message limit, beyond it all in the staging topic."""

    def __init__(self, *, limit: int, open_staging: Callable[[], StagingWriter]) -> None:
        self._limit = limit
        self._open_staging = open_staging
        self._staging: StagingWriter | None = None
        self._in_memory: dict[tuple[str, int], list[bytearray]] = defaultdict(list)
        self._size = 0
        self._staged: list[Run] = []

    def put(self, topic: str, partition: int, batch: bytearray) -> None:
        self._in_memory[topic, partition].append(batch)
        self._size += len(batch)
        if self._size > self._limit:
            self._stage()

    def runs(self) -> tuple[Run, ...]:
        """All batches, in order within each partition."""
        if self._staging is None:
            return tuple(
                InMessage(topic=topic, partition=partition, batches=b"".join(batches))
                for (topic, partition), batches in self._in_memory.items()
            )
        self._stage()
        return tuple(self._staged)

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()

    def _stage(self) -> None:
        if self._staging is None:
            self._staging = self._open_staging()
        self._staged += self._staging.put(self._in_memory)
        self._in_memory.clear()
        self._size = 0
