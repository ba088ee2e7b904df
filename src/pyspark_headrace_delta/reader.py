"""Rows of a table into Spark, for those who have no jar of Delta's: one version of it, file by file.

The version is the newest when the read is planned. Nothing is pushed down: `deltalake` or DuckDB are better
at asking for a few rows of a large table. Read next: source.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.errors import ClientError
from headrace.pipelines.delta.listing import TableFile, files_of
from headrace.pipelines.delta.rows import rows_of
from headrace.pipelines.delta.table import open_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TASK_BYTES = 128 << 20
_READABLE = frozenset({"timestampNtz"})


@dataclass
class FileGroup(InputPartition):
    """Files that one task reads, and the columns it makes of them."""

    files: list[TableFile]
    schema: pa.Schema


class TableReader(DataSourceReader):
    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        table = table_in(self._path)
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
        for file in partition.files:
            yield from rows_of(self._path / file.path, file.partition_values, partition.schema)


def table_in(path: Path) -> DeltaTable:
    """ClientError where there is none, or one that cannot be read here."""
    table = open_table(path)
    if table is None:
        raise ClientError(f"there is no Delta table in {path}", next_step="check the path")
    unread = set(table.protocol().reader_features or ()) - _READABLE
    mapped = table.metadata().configuration.get("delta.columnMapping.mode") not in (None, "none")
    unread |= {"columnMapping"} if mapped else set()
    if unread:
        raise ClientError(
            f"the table {path} asks its readers for {', '.join(sorted(unread))}, not served here",
            next_step="read it with Delta's own connector",
        )
    return table


def table_columns(path: Path) -> StructType:
    return StructType.fromJson(json.loads(table_in(path).schema().to_json()))
