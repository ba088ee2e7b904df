# SPDX-License-Identifier: Apache-2.0
"""Which micro-batches a table's log has, and where in its sources each of them ended. Without Spark.

The sink writes them into the commit's own metadata (`commitInfo`); other commits, such as merges, have none.
Read next: pyspark_headrace/replays.py, which makes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

if TYPE_CHECKING:
    from deltalake import DeltaTable

APP_ID, BATCH_ID, SOURCES = "appId", "batchId", "headrace.sources"
USER_METADATA = "userMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBatch:
    """`sources`: one line per source of the query, as in its checkpoint; empty: not recorded.

    `user_metadata`: the sink's option of this name.
    """

    version: int
    timestamp_ms: int
    app_id: str
    number: int
    sources: tuple[str, ...]
    user_metadata: str | None = None


def offsets_app_id(app_id: str) -> str:
    """Keeps the fingerprint of the last batch's offsets: a table has numbers by application id only."""
    return f"{app_id}#offsets"


def query_app_id(app_id: str, query: str) -> str:
    """Says which query uses an application id that was chosen by the user."""
    return f"{app_id}/{query}"


def recorded_batches(table: DeltaTable) -> Iterator[RecordedBatch]:
    """From the opened version backwards, as far as the log is kept.

    The library's own history() counts from the newest commit, which may be later than the opened version.
    """
    for version, info in commits(table):
        batch = batch_of(version, info)
        if batch is not None:
            yield batch


def commits(table: DeltaTable) -> Iterator[tuple[int, dict[str, Any]]]:
    """Versions with what the log says of their commits, from the opened version backwards."""
    for version in range(table.version(), -1, -1):
        actions = _entry(table, version)
        if actions is None:
            return
        yield version, next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def batch_of(version: int, info: dict[str, Any]) -> RecordedBatch | None:
    """None: the commit is no micro-batch."""
    return _batch(version, info) if APP_ID in info and BATCH_ID in info else None


def added_files(table: DeltaTable, version: int) -> set[str]:
    """The files that one version added; empty when it does not exist or its entry was removed."""
    added = [action["add"] for action in _entry(table, version) or () if "add" in action]
    return {unquote(each["path"]) for each in added}


def _entry(table: DeltaTable, version: int) -> list[dict[str, Any]] | None:
    """The actions of one version; None: its entry was removed from the log."""
    try:
        with filesystem_of(table).open_input_stream(f"_delta_log/{version:020}.json") as entry:
            return [json.loads(line) for line in entry.read().splitlines()]
    except FileNotFoundError:
        return None


def filesystem_of(table: DeltaTable) -> PyFileSystem:
    """The files of the table, with the credentials that it was opened with."""
    return PyFileSystem(DeltaStorageHandler.from_table(table._table))


def _batch(version: int, info: dict[str, Any]) -> RecordedBatch:
    return RecordedBatch(
        version=version,
        timestamp_ms=int(info["timestamp"]),
        app_id=str(info[APP_ID]),
        number=int(info[BATCH_ID]),
        sources=tuple(map(str, json.loads(info.get(SOURCES, "[]")))),
        user_metadata=None if info.get(USER_METADATA) is None else str(info[USER_METADATA]),
    )
