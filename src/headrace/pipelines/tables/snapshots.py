# SPDX-License-Identifier: Apache-2.0
"""One version of a Delta table: which one is asked for, and whether Parquet files alone give its rows.

Independent of Spark. Read next: native_rows.py (reads it), positions.py (where it ends in its topic).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Storage
from headrace.pipelines.delta.folders import table_folder
from headrace.pipelines.delta.recorded_batches import commits
from headrace.pipelines.delta.scan import TableFile, files_of
from headrace.pipelines.delta.table import TablePlace, open_table, reason_of
from headrace.pipelines.tables.positions import version_at

if TYPE_CHECKING:
    from deltalake import DeltaTable

_READABLE = frozenset({"timestampNtz"})
"""Reader features without a meaning for whoever reads whole files."""

Ends = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    path: TablePlace
    table: DeltaTable
    """Opened at this version."""
    storage: Storage = field(default_factory=Storage)

    @property
    def version(self) -> int:
        return int(self.table.version())

    @property
    def schema(self) -> dict[str, Any]:
        """As Spark writes schemas in JSON."""
        document: dict[str, Any] = json.loads(self.table.schema().to_json())
        return document

    @property
    def partition_columns(self) -> list[str]:
        return list(self.table.metadata().partition_columns)

    def files(self) -> list[TableFile]:
        """The files of this version and no other; ClientError when one of them was removed."""
        files = files_of(self.table)
        self.check_files(files)
        return files

    def check_files(self, files: Sequence[TableFile]) -> None:
        """ClientError when one of them was removed."""
        for file in files:
            if "://" in file.path or file.path.startswith("/"):
                raise ClientError(
                    f"the table {self.path} refers to the file {file.path} of another table",
                    next_step="read a table that has its own files, not a shallow clone",
                )
        sizes = table_folder(self.path).sizes([file.path for file in files])
        for file, size in zip(files, sizes, strict=True):
            if size is None:
                raise ClientError(
                    f"version {self.version} of the table {self.path} needs the file {file.path}, which was "
                    "removed: a version is complete for as long as vacuum (headrace pipeline optimize "
                    "--retain) keeps its files",
                    next_step="read a later version",
                )


def open_snapshot(
    path: str,
    *,
    storage: Storage | None = None,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    offset: Mapping[str, Mapping[str, int]] | None = None,
) -> Snapshot:
    """The newest version, or the one asked for. ClientError when there is none, or it is not readable."""
    given = {"version": version, "timestamp": timestamp, "offset": offset}
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise ClientError(f"{' and '.join(asked)} are given", next_step="choose the version by one of them")
    storage = storage or Storage()
    place = storage.place(path)
    table = open_table(place)
    if table is None:
        raise ClientError(f"there is no Delta table in {place}", next_step="check the path")
    newest = int(table.version())
    if timestamp is not None:
        _load(table, place, newest, _time(timestamp))
    elif version is not None:
        _load(table, place, newest, version)
    elif offset is not None:
        _load(table, place, newest, version_at(table, place, ends_of(offset)))
    _check_readable(table, place)
    return Snapshot(path=place, table=table, storage=storage)


def ends_of(offset: Mapping[str, Mapping[str, int]]) -> Ends:
    """`{"orders": {"0": 23}}`"""
    try:
        ends = {
            str(topic): {int(partition): _whole(end) for partition, end in partitions.items()}
            for topic, partitions in offset.items()
        }
    except (AttributeError, TypeError, ValueError):
        ends = {}
    if not any(ends.values()):
        raise ClientError(f"offset cannot be {offset!r}", next_step='write it like {"orders": {"0": 23}}')
    return ends


def _whole(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(number)
    return number


def _time(given: str | datetime) -> datetime:
    """Times without a zone are UTC."""
    try:
        time = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise ClientError(
            f"timestamp cannot be {given!r}", next_step="write it like 2026-01-31T12:00:00Z"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _load(table: DeltaTable, place: TablePlace, newest: int, wanted: int | datetime) -> None:
    from deltalake.exceptions import DeltaError

    if isinstance(wanted, int) and not 0 <= wanted <= newest:
        raise ClientError(
            f"the table {place} has no version {wanted}: the newest is {newest}",
            next_step="choose one of 0 to the newest",
        )
    try:
        table.load_as_version(wanted)
    except (DeltaError, ValueError) as error:
        raise ClientError(
            f"the table {place} cannot be opened as of {wanted}: {reason_of(error, place)}",
            next_step="choose a later one: entries of a table's log are removed after a time",
        ) from error
    if isinstance(wanted, datetime):
        _check_begun(table, place, wanted)


def _check_begun(table: DeltaTable, place: TablePlace, wanted: datetime) -> None:
    """For times before the first version the library opens that one."""
    version, info = next(commits(table), (0, {}))
    begun = datetime.fromtimestamp(int(info.get("timestamp", 0)) / 1000, UTC)
    if begun > wanted:
        raise ClientError(
            f"the table {place} has no version of {wanted.isoformat()}: version {version}, the first that "
            f"its log has, is of {begun.isoformat()}",
            next_step="choose a later time",
        )


def _check_readable(table: DeltaTable, place: TablePlace) -> None:
    """Only what makes a row other than it is in its Parquet file."""
    unread = set(table.protocol().reader_features or ()) - _READABLE
    if "deletionVectors" in unread and not _has_deletion_vectors(table):
        unread.discard("deletionVectors")
    if table.metadata().configuration.get("delta.columnMapping.mode") in (None, "none"):
        unread.discard("columnMapping")
    else:
        unread.add("columnMapping")
    if unread:
        raise ClientError(
            f"the table {place} needs unsupported reader features: {', '.join(sorted(unread))}",
            next_step="read it with Delta's own connector, or drop the feature from the table",
        )


def _has_deletion_vectors(table: DeltaTable) -> bool:
    """The feature may be on and none in use. One that cannot be read is there, too."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        return bool(pa.table(table.deletion_vectors()).num_rows)
    except DeltaError:
        return True
