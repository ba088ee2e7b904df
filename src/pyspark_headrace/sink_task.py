"""What a task does with its rows: writes them at least once, or encodes them for the driver to publish once.

Encoding touches no output topic: tasks that Spark runs again, twice at once, or in other slices leave no
trace. Read next: sink_rows.py, staging.py, publish.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headrace.client.arrow.transaction_session import END_TXN
from headrace.client.arrow.writer import send_rows
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from pyspark_headrace.connections import Kept, kept
from pyspark_headrace.options import WriteSettings
from pyspark_headrace.sink_columns import SinkColumns
from pyspark_headrace.sink_messages import Encoded, InMessage, Run, Written
from pyspark_headrace.sink_rows import requests
from pyspark_headrace.staging import StagingWriter
from pyspark_headrace.workers import settle

_QUERY_ID = "sql.streaming.queryId"
"""Where Spark says to tasks which query they are part of."""


def write_task(
    batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns, *, awaits_broker: bool
) -> WriterCommitMessage:
    """`awaits_broker`: one that is away now may be restarting; if not, a wrong address is said at once."""
    connections = kept(settings.bootstrap, settings.security)
    connection = connections.reach(timeout_ms=settings.timeout_ms if awaits_broker else 0)
    try:
        if _encodes(settings, connection):
            return _encode(batches, settings, columns, connections)
        return write_rows(batches, settings, columns)
    finally:
        settle()


def _encodes(settings: WriteSettings, connection: Connection) -> bool:
    if settings.exactly_once == "off":
        return False
    if END_TXN in connection.versions:
        return True
    if settings.exactly_once == "batch":
        raise ClientError(
            f"exactlyOnce=batch needs transactions, and the broker at {connection.address} serves none",
            next_step="leave it out, or say exactlyOnce=off: every row is then written at least once",
            code="UNSUPPORTED_VERSION",
        )
    return False


def write_rows(batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns) -> Written:
    """At least once. Returns when every row is acknowledged."""
    connections = kept(settings.bootstrap, settings.security)
    records = 0
    for _, request in requests(batches, settings, columns, idempotent=True):
        sender = connections.call(request.open(connections.cluster))
        try:
            records += send_rows(connections.io, sender, request.encoded()).records
        finally:
            connections.call(sender.close())
    return Written(records)


def _encode(
    batches: Iterator[Any], settings: WriteSettings, columns: SinkColumns, connections: Kept
) -> Encoded:
    records = 0
    shelf = Shelf(
        limit=settings.message_bytes,
        open_staging=lambda: StagingWriter(connections, timeout_ms=settings.timeout_ms),
    )
    try:
        for topic, request in requests(batches, settings, columns, idempotent=False):
            connections.call(request.open(connections.cluster))  # finds out how many partitions there are
            for outgoing in request.encoded():
                shelf.put(topic, outgoing.partition, outgoing.batch)
                records += len(outgoing.rows)
        return Encoded(records, _query_id(), shelf.runs())
    finally:
        shelf.close()


def _query_id() -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


class Shelf:
    """A task's batches: in memory while they are few enough for a message, else all in the staging topic."""

    def __init__(self, *, limit: int, open_staging: Callable[[], StagingWriter]) -> None:
        self._limit = limit
        self._open_staging = open_staging
        self._staging: StagingWriter | None = None
        self._held: dict[tuple[str, int], list[bytearray]] = defaultdict(list)
        self._size = 0
        self._staged: list[Run] = []

    def put(self, topic: str, partition: int, batch: bytearray) -> None:
        self._held[topic, partition].append(batch)
        self._size += len(batch)
        if self._size > self._limit:
            self._stage()

    def runs(self) -> tuple[Run, ...]:
        """All that was put, every partition's in its order."""
        if self._staging is None:
            return tuple(
                InMessage(topic=topic, partition=partition, batches=b"".join(batches))
                for (topic, partition), batches in self._held.items()
            )
        self._stage()
        return tuple(self._staged)

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()

    def _stage(self) -> None:
        if self._staging is None:
            self._staging = self._open_staging()
        self._staged += self._staging.put(self._held)
        self._held.clear()
        self._size = 0
