# SPDX-License-Identifier: Apache-2.0
"""Reads a Delta table into Spark without Delta's jar: one version, file by file.

Reads the latest version at planning time, or the one that was asked for. No filter pushdown: to query a few
rows of a large table, use `deltalake` or DuckDB. Read next: source.py.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.scan import TableFile, files_of, rows_of
from headrace.pipelines.delta.table import TablePlace, open_version

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TASK_BYTES = 128 << 20
_READABLE = frozenset({"timestampNtz"})


@dataclass
class FileGroup(InputPartition):
    """Files that one task reads, and the columns to return."""

    files: list[TableFile]
    schema: pa.Schema


class TableReader(DataSourceReader):
    def __init__(
        self, place: TablePlace, columns: Sequence[str], version: int | datetime.datetime | None = None
    ) -> None:
        self._place = place
        self._columns = columns
        self._version = version

    def partitions(self) -> Sequence[InputPartition]:
        table = table_in(self._place, self._version)
        known = pa.schema(table.schema().to_arrow())
        schema = pa.schema([known.field(name) for name in self._columns])
        groups: list[list[TableFile]] = []
        room = 0
        for file in files_of(table):
            if file.size > room:
                groups.append([])
                room = _TASK_BYTES
            groups[-1].append(file)
            room -= file.size
        return [FileGroup(files, schema) for files in groups] or [FileGroup([], schema)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, FileGroup)
        folder = table_folder(self._place, sizes={file.path: file.size for file in partition.files})
        for file in partition.files:
            yield from rows_of(folder.source(file.path), file.partition_values, partition.schema)


def table_in(place: TablePlace, version: int | datetime.datetime | None = None) -> DeltaTable:
    """Open the table; ClientError when there is none or its features are not supported."""
    table = open_version(place, version)
    if table is None:
        raise ClientError(f"there is no Delta table in {place}", next_step="check the path")
    unread = set(table.protocol().reader_features or ()) - _READABLE
    mapped = table.metadata().configuration.get("delta.columnMapping.mode") not in (None, "none")
    unread |= {"columnMapping"} if mapped else set()
    if unread:
        raise ClientError(
            f"the table {place} needs unsupported reader features: {', '.join(sorted(unread))}",
            next_step="read it with Delta's own connector",
        )
    return table


def table_columns(place: TablePlace, version: int | datetime.datetime | None = None) -> StructType:
    return StructType.fromJson(json.loads(table_in(place, version).schema().to_json()))
