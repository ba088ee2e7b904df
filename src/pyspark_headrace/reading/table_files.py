# SPDX-License-Identifier: Apache-2.0
"""The files of a table from which a stream starts: which ones a micro-batch reads, and their rows.

The table is that of a raw store pipeline. Its version is fixed for the whole query, so that a batch has the
same files after a restart. Read next: table_first.py; headrace/pipelines/tables/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from headrace.client.errors import ClientError
from headrace.pipelines.delta.scan import TableFile, files_of, rows_of
from headrace.pipelines.tables.positions import newest_batch, offsets_of
from headrace.pipelines.tables.snapshots import Snapshot, open_snapshot
from headrace.pipelines.tables.tails import find_tail
from pyspark_headrace.columns import COLUMNS, Projection
from pyspark_headrace.options import ReadSettings
from pyspark_headrace.reading.arrow_columns import arrow_schema
from pyspark_headrace.reading.offsets import Offsets
from pyspark_headrace.reading.table_position import FilePiece, TablePosition

_TASK_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    snapshot: Snapshot
    files: tuple[TableFile, ...]
    """In the order in which they are read."""

    @classmethod
    def newest(cls, path: str) -> TableFiles:
        return cls._of(open_snapshot(path))

    @classmethod
    def at(cls, path: str, position: TablePosition) -> TableFiles:
        """The version of a checkpoint. ClientError when the table is another one, or files are gone."""
        table = cls._of(open_snapshot(path, version=position.version))
        if table.id != position.id:
            raise ClientError(
                f"the table {table.snapshot.path} is another one than that with which the query started: it "
                "was made again, or moved",
                next_step="give the former table as startingTable, or start with a new checkpointLocation",
            )
        return table

    @classmethod
    def _of(cls, snapshot: Snapshot) -> TableFiles:
        return cls(
            snapshot=snapshot, files=tuple(sorted(files_of(snapshot.table), key=lambda file: file.path))
        )

    @property
    def id(self) -> str:
        return str(self.snapshot.table.metadata().id)

    @property
    def version(self) -> int:
        return self.snapshot.version

    def end_in_topic(self, settings: ReadSettings, *, query: str) -> Offsets:
        """Where the topic goes on. ClientError when records between the two are lost already."""
        path = self.snapshot.path
        end = offsets_of(newest_batch(self.snapshot.table, path), path)
        find_tail(settings, end, str(path))
        return replace(end, query=query)

    def check_columns(self, projection: Projection) -> None:
        """Columns of a topic under their own names, with bytes as keys and values."""
        types = {field["name"]: field["type"] for field in self.snapshot.schema["fields"]}
        for field in projection.schema.fields:
            if field.name not in types:
                raise ClientError(
                    f"the table {self.snapshot.path} has no column {field.name!r}, which the query reads",
                    next_step=_columns_step(types),
                )
            if field.name in ("key", "value") and types[field.name] != COLUMNS[field.name].typeName():
                raise ClientError(
                    f"column {field.name!r} of the table {self.snapshot.path} is {types[field.name]}: "
                    "a stream starts from a table of raw records only",
                    next_step="store the topic without value and key, or start with startingOffsets",
                )
        for name, column_format in projection.formats.items():
            if column_format.name not in ("raw", "string"):
                raise ClientError(
                    f"{name}={column_format.name} is not decoded from the files of a starting table",
                    next_step=f"leave {name} out, and decode the column in the query: from_json, from_avro",
                )

    def after(self, first: int, *, max_rows: int | None, max_bytes: int | None) -> int:
        """The first file that a batch from `first` on does not read; it reads one at least."""
        rows = size = 0
        counted = self._rows()
        for number, file in enumerate(self.files[first:], start=first):
            if _reached(rows, max_rows) or _reached(size, max_bytes):
                return number
            rows += counted.get(file.path, max_rows or 0)
            size += file.size
        return len(self.files)

    def pieces(self, first: int, end: int) -> list[FilePiece]:
        """Files of a batch by tasks."""
        self.snapshot.check_files(self.files[first:end])
        groups: list[list[TableFile]] = []
        room = 0
        for file in self.files[first:end]:
            if not groups or file.size > room:
                groups.append([])
                room = _TASK_BYTES
            groups[-1].append(file)
            room -= file.size
        return [FilePiece(files=tuple(map(self._located, group))) for group in groups]

    def _located(self, file: TableFile) -> tuple[str, Mapping[str, Any]]:
        return f"{self.snapshot.path}/{file.path}", file.partition_values

    def _rows(self) -> dict[str, int]:
        actions = pa.table(self.snapshot.table.get_add_actions())
        counted = zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True)
        return {unquote(path): int(rows) for path, rows in counted if rows is not None}


def _reached(amount: int, limit: int | None) -> bool:
    return limit is not None and amount >= limit


def read_piece(piece: FilePiece, projection: Projection) -> Iterator[Any]:
    schema = arrow_schema(projection.schema)
    for path, partition_values in piece.files:
        try:
            yield from rows_of(Path(path), partition_values, schema)
        except FileNotFoundError as error:
            raise ClientError(
                f"the file {path} of the starting table was removed before it was read, by vacuum or by hand",
                next_step="start with a new checkpointLocation; let headrace pipeline optimize --retain more",
                code="DATA_LOSS",
            ) from error


def _columns_step(names: Mapping[str, Any]) -> str:
    known = [name for name in COLUMNS if name in names]
    if not known:
        return "start from the table that `headrace pipeline run store` makes of raw records"
    return f'name those that it has: .option("columns", "{",".join(known)}")'
