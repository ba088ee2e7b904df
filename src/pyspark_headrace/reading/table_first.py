# SPDX-License-Identifier: Apache-2.0
"""A stream that reads a stored topic's table first, then the topic from where the table ends.

Wraps the stream reader: while files are left, offsets have a field `table` and version 2, which other
releases refuse instead of leaving the files out. After that they are the topic's own. Read next:
table_position.py, table_files.py, stream_reader.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from pyspark_headrace.columns import Projection
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading.query_lock import stop_requested
from pyspark_headrace.reading.stream_reader import StreamReader
from pyspark_headrace.reading.table_position import (
    Document,
    FilePiece,
    TablePosition,
    read_position,
    topic_document,
    with_position,
)
from pyspark_headrace.worker_reuse import freezing_after


class TableFirstReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, settings: ReadSettings, projection: Projection, topic: StreamReader) -> None:
        self._settings = settings
        self._projection = projection
        self._topic = topic

    def initialOffset(self) -> Document:
        from pyspark_headrace.reading.table_files import TableFiles

        table = TableFiles.newest(self._path)
        table.check_columns(self._projection)
        end = table.end_in_topic(self._settings, query=str(uuid.uuid4()))
        if not table.files:
            return end.to_document()
        return with_position(end.to_document(), TablePosition(id=table.id, version=table.version, next=0))

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        position = read_position(start)
        if position is None:
            return self._topic.latestOffset(start, limit)
        stop_file = self._settings.stop_file
        if stop_file is not None and stop_requested(stop_file):
            return start
        from pyspark_headrace.reading.table_files import TableFiles

        table = TableFiles.at(self._path, position)
        limits = self._settings.limits
        following = len(table.files)
        if not isinstance(limit, ReadAllAvailable):
            following = table.after(position.next, max_rows=limits.max_rows, max_bytes=limits.max_bytes)
        if following == len(table.files):
            return topic_document(start)
        return with_position(start, TablePosition(id=position.id, version=position.version, next=following))

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._topic.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._topic.prepareForTriggerAvailableNow()

    def reportLatestOffset(self) -> Document | None:
        return self._topic.reportLatestOffset()

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        position = read_position(start)
        if position is None:
            return self._topic.partitions(start, end)
        from pyspark_headrace.reading.table_files import TableFiles

        table = TableFiles.at(self._path, position)
        table.check_columns(self._projection)
        until = read_position(end)
        pieces = table.pieces(position.next, len(table.files) if until is None else until.next)
        return [InputPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition.value, FilePiece):
            return self._topic.read(partition)
        from pyspark_headrace.reading.table_files import read_piece

        return freezing_after(read_piece(partition.value, self._projection))

    def stop(self) -> None:
        self._topic.stop()

    @property
    def _path(self) -> str:
        assert self._settings.starting_table is not None
        return self._settings.starting_table
