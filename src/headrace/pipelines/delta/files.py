# SPDX-License-Identifier: Apache-2.0
"""Writes the Parquet files of one task; a commit adds them to the table.

Every attempt uses new names, so that attempts cannot overwrite each other. Independent of Spark and of the
table's log. Read next: folders.py, partitions.py, statistics.py; pyspark_headrace_delta/commit.py.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.client.errors import ClientError
from headrace.pipelines.delta.folders import NewFile, table_folder
from headrace.pipelines.delta.partitions import PartitionValues, as_mapping, folder, split
from headrace.pipelines.delta.statistics import statistics_of
from headrace.pipelines.delta.table import TablePlace

_ROW_GROUP_BYTES = 32 << 20
_SMALLEST_ROW_GROUP = 64 << 10
_WAITING_BYTES = 128 << 20
"""Buffer limit over all partitions; beyond it the largest is written."""
_OPEN_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A finished file and its metadata for the table's log."""

    path: str
    """Relative to the table's directory."""
    size: int
    rows: int
    partition_values: Mapping[str, str | None]
    modified_ms: int
    statistics: str
    with_nulls: frozenset[str]
    """Columns of the table that are null in some row."""


class TaskFiles:
    """Files of one task attempt, separate for each partition."""

    def __init__(
        self,
        place: TablePlace,
        partition_by: Sequence[str],
        *,
        task: int,
        target_size: int,
        inside: str = "",
    ) -> None:
        """inside: a folder of the table for the files of no partition."""
        self._folder = table_folder(place)
        self._inside = inside
        self._partition_by = partition_by
        self._name = f"part-{task:05d}-{uuid.uuid4()}"
        self._target_size = target_size
        self._row_group = min(_ROW_GROUP_BYTES, max(target_size, _SMALLEST_ROW_GROUP))
        self._open: dict[PartitionValues, _OpenFile] = {}
        self._begun: list[str] = []
        self._written: list[WrittenFile] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        """Write all rows; they are durable when it returns. On failure the files are removed."""
        try:
            for rows in _combined(batches, self._row_group):
                for values, part in split(rows, self._partition_by):
                    self._add(values, part)
                self._keep_bounds()
            for values in list(self._open):
                self._finish(values)
            self._folder.keep(self._begun)
        except BaseException:
            self._discard()
            raise
        return self._written

    def _add(self, values: PartitionValues, rows: pa.Table) -> None:
        if values not in self._open:
            self._open[values] = self._begin(values, rows.schema)
        file = self._open[values]
        file.add(rows)
        if file.waiting_bytes >= self._row_group:
            file.flush()
        if file.size >= self._target_size:
            self._finish(values)

    def _keep_bounds(self) -> None:
        """Limit memory and open files for any number of partitions."""
        while sum(file.waiting_bytes for file in self._open.values()) > _WAITING_BYTES:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()
        while len(self._open) > _OPEN_FILES:
            self._finish(max(self._open, key=lambda values: self._open[values].size))

    def _begin(self, values: PartitionValues, schema: pa.Schema) -> _OpenFile:
        parent = folder(self._partition_by, values) or self._inside
        name = f"{parent}{'/' if parent else ''}{self._name}-{len(self._begun):04d}.snappy.parquet"
        self._begun.append(name)
        return _OpenFile(name, self._folder.begin(name), schema)

    def _finish(self, values: PartitionValues) -> None:
        file = self._open.pop(values)
        size, statistics, with_nulls = file.finish()
        nulls = {name for name, value in zip(self._partition_by, values, strict=True) if value is None}
        self._written.append(
            WrittenFile(
                path=file.name,
                size=size,
                rows=file.rows,
                partition_values=as_mapping(self._partition_by, values),
                modified_ms=time.time_ns() // 1_000_000,
                statistics=statistics,
                with_nulls=frozenset(with_nulls | nulls),
            )
        )

    def _discard(self) -> None:
        for file in self._open.values():
            file.abandon()
        for name in self._begun:
            with contextlib.suppress(ClientError):  # unreachable; the first error is the one to show
                self._folder.remove(name)


class _OpenFile:
    """An open file; buffers rows until they fill a row group."""

    def __init__(self, name: str, file: NewFile, schema: pa.Schema) -> None:
        self.name = name
        self.rows = 0
        self.waiting_bytes = 0
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._with_nan: set[str] = set()
        self._with_nulls: set[str] = set()
        self._footer: list[Any] = []
        self._file = file
        # Readers use Parquet's types; Arrow's time zones and nullability would conflict.
        self._writer = pq.ParquetWriter(
            file.stream, schema, compression="snappy", store_schema=False, metadata_collector=self._footer
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self.rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        for field in self._schema:
            column = rows.column(field.name)
            if column.null_count:
                self._with_nulls.add(field.name)
            if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
                self._with_nan.add(field.name)

    def flush(self) -> None:
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._waiting, self.waiting_bytes = [], 0

    def finish(self) -> tuple[int, str, set[str]]:
        """Close the file, durably; returns its size, statistics and columns with nulls."""
        self.flush()
        self._writer.close()
        size = self._file.finish()
        statistics = statistics_of(self._footer[0], self._schema, with_nan=self._with_nan)
        return size, statistics, self._with_nulls

    def abandon(self) -> None:
        self._file.abandon()


def _combined(batches: Iterable[pa.RecordBatch], enough: int) -> Iterator[pa.Table]:
    """Combine Spark's small batches, so that they are split by partition at once."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= enough:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)
