# SPDX-License-Identifier: Apache-2.0
"""Merges small files of a table into large ones in one commit.

The library's own merge retries its commit on a newer version: two merges at once would duplicate all rows.
Here every removed file must still be in the version that the commit is made on. Only the commit is retried,
not the writing. Independent of Spark. Read next: scan.py, files.py.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headrace.client.errors import ClientError
from headrace.pipelines.delta.files import TaskFiles, WrittenFile
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.partitions import text_of
from headrace.pipelines.delta.recorded_batches import added_files
from headrace.pipelines.delta.scan import TableFile, files_of, rows_of
from headrace.pipelines.delta.table import TablePlace

if TYPE_CHECKING:
    from deltalake import DeltaTable

_TRIES = 200


Group = list[TableFile]


def small_groups(table: DeltaTable, target_size: int) -> list[Group]:
    """Groups of files of one partition that together make one file of about this size."""
    waiting: dict[str, Group] = defaultdict(list)
    full: list[Group] = []
    for file in files_of(table):
        if file.size < target_size:
            place = str(PurePosixPath(file.path).parent)
            waiting[place].append(file)
            if sum(each.size for each in waiting[place]) >= target_size:
                full.append(waiting.pop(place))
    return [group for group in [*full, *waiting.values()] if len(group) > 1]


def merge(place: TablePlace, open_table: Callable[[], DeltaTable], groups: list[Group]) -> None:
    """Merge; ClientError when others removed the files or keep committing first."""
    table = open_table()
    merged = [_merged(place, table, group) for group in groups]
    failed: Exception | None = None
    for _ in range(_TRIES):
        there = {file.path for file in files_of(table)}
        if any(file.path not in there for group in groups for file in group):
            break
        try:
            table.create_write_transaction(
                list(_actions(groups, merged)),
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
            return
        except CommitFailedError as error:
            failed = error
        tried, table = table.version() + 1, open_table()
        if merged[0].path in added_files(table, tried):
            return  # an object store did it, but its answer was lost
    raise ClientError(
        f"others changed the files of the table {place} while they were merged",
        next_step="nothing was changed here; run it again",
    ) from failed


def _merged(place: TablePlace, table: DeltaTable, group: Group) -> WrittenFile:
    """Write one file with the rows of all."""
    partition_by = table.metadata().partition_columns
    known = pa.schema(table.schema().to_arrow())
    schema = pa.schema([field for field in known if field.name not in partition_by])
    parent = str(PurePosixPath(group[0].path).parent)
    folder = "" if parent == "." else parent
    files = table_folder(place, sizes={file.path: file.size for file in group})
    batches = (batch for file in group for batch in rows_of(files.source(file.path), {}, schema))
    never_full = 1 << 62
    (written,) = TaskFiles(place, (), task=0, target_size=never_full, inside=folder).write(batches)
    return replace(written, partition_values=_texts(group[0]))


def _actions(groups: list[Group], merged: list[WrittenFile]) -> Iterator[AddAction | RemoveAction]:
    now_ms = time.time_ns() // 1_000_000
    for group, written in zip(groups, merged, strict=True):
        for file in group:
            yield RemoveAction(file.path, False, now_ms, file.size, _texts(file))
        yield AddAction(
            path=written.path,
            size=written.size,
            partition_values=written.partition_values,
            modification_time=written.modified_ms,
            data_change=False,
            stats=written.statistics,
        )


def _texts(file: TableFile) -> dict[str, str | None]:
    for name, value in file.partition_values.items():
        if isinstance(value, float | bytes | datetime.datetime):
            raise ClientError(
                f"files of a table partitioned by {name!r}, of such a type, are not merged here"
            )
    return {name: text_of(value) for name, value in file.partition_values.items()}
