# SPDX-License-Identifier: Apache-2.0
"""The `.option(…)` names of writes to a Delta table, parsed and checked.

Pure. Names are those of Delta's own Spark connector where it has them. Read next: source.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.keys import parse_size
from headrace.pipelines.delta.storage_options import split_storage_options, table_place
from headrace.pipelines.delta.table import TablePlace
from pyspark_headrace.option_values import OptionValues
from pyspark_headrace.options import replay_check
from pyspark_headrace.replays import ReplayCheck

NAMES = (
    "path",
    "partitionBy",
    "mergeSchema",
    "targetFileSize",
    "txnAppId",
    "txnVersion",
    "checkpointLocation",
    "replayCheck",
    "userMetadata",
)
STORAGE_NAMES = ("storageConfig",)
"""Taken out before; named for the hints of misspelled options."""
_READ_NAMES = ("path", "versionAsOf", "timestampAsOf")
_IGNORED = frozenset({"queryname", "outputmode"})

DEFAULT_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    path: TablePlace
    partition_by: tuple[str, ...]
    merge_schema: bool
    target_file_size: int
    txn_app_id: str | None
    txn_version: int | None
    checkpoint: str | None
    """The checkpoint of a stream, where the query names it as an option."""
    replay_check: ReplayCheck
    user_metadata: str | None
    """Text that every commit of the write keeps in the table's log."""


def table_settings(options: Mapping[str, str], *, streaming: bool) -> TableSettings:
    """Parse options; ClientError names the option that is missing, unknown or invalid."""
    storage, others = split_storage_options(options)
    values = OptionValues(others, names=(*NAMES, *STORAGE_NAMES), aliases={}, ignored=_IGNORED)
    app_id, version = values.text("txnAppId"), values.integer("txnVersion", least=0)
    if streaming and version is not None:
        raise ClientError(
            "option 'txnVersion' has no meaning in a stream, whose batches are numbered by Spark",
            next_step="leave it out",
        )
    if not streaming and (app_id is None) != (version is None):
        raise ClientError(
            "options 'txnAppId' and 'txnVersion' only work together in a batch write",
            next_step="set both, so that repeated writes of a version are skipped, or none",
        )
    if app_id == "":
        raise values.wrong("txnAppId", "set a name, or leave it out")
    return TableSettings(
        path=_path(values, storage),
        partition_by=values.names("partitionBy") or (),
        merge_schema=values.boolean("mergeSchema", False),
        target_file_size=_size(values),
        txn_app_id=app_id,
        txn_version=version,
        checkpoint=values.text("checkpointLocation"),
        replay_check=replay_check(values),
        user_metadata=values.text("userMetadata") or None,
    )


def append_settings(place: TablePlace) -> TableSettings:
    """Of rows that are added without any option."""
    return replace(table_settings({"path": "/"}, streaming=False), path=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """What a read opens."""

    place: TablePlace
    version: int | datetime.datetime | None
    """A version, the last one before a time, or the latest."""


def table_version(options: Mapping[str, str]) -> TableVersion:
    """The options of a read."""
    storage, others = split_storage_options(options)
    values = OptionValues(others, names=(*_READ_NAMES, *STORAGE_NAMES), aliases={})
    number, time = values.integer("versionAsOf", least=0), values.text("timestampAsOf")
    if number is not None and time is not None:
        raise ClientError(
            "options 'versionAsOf' and 'timestampAsOf' are both set", next_step="set only one of them"
        )
    return TableVersion(place=_path(values, storage), version=number if time is None else _time(values, time))


def _time(values: OptionValues, text: str) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise values.wrong("timestampAsOf", "write it like 2026-11-18T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _path(values: OptionValues, storage: Mapping[str, str]) -> TablePlace:
    written = values.text("path")
    if not written:
        raise ClientError("no table is set", next_step='name one: .option("path", "/data/orders")')
    return table_place(written, storage)


def _size(values: OptionValues) -> int:
    text = values.text("targetFileSize")
    if text is None:
        return DEFAULT_FILE_SIZE
    size = parse_size(text)
    if size is None:
        raise values.wrong("targetFileSize", "write it like 128m or 134217728")
    return size
