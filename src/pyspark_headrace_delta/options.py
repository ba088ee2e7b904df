# SPDX-License-Identifier: Apache-2.0
"""The `.option(…)` names of writes to a Delta table, parsed and checked.

Pure. Names are those of Delta's own Spark connector where it has them. Read next: source.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import local_path
from headrace.pipelines.keys import parse_size
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
)
_IGNORED = frozenset({"queryname", "outputmode"})

DEFAULT_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    path: Path
    partition_by: tuple[str, ...]
    merge_schema: bool
    target_file_size: int
    txn_app_id: str | None
    txn_version: int | None
    checkpoint: str | None
    """The checkpoint of a stream, where the query names it as an option."""
    replay_check: ReplayCheck


def table_settings(options: Mapping[str, str], *, streaming: bool) -> TableSettings:
    """Parse options; ClientError names the option that is missing, unknown or invalid."""
    values = OptionValues(options, names=NAMES, aliases={}, ignored=_IGNORED)
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
        path=_path(values),
        partition_by=values.names("partitionBy") or (),
        merge_schema=values.boolean("mergeSchema", False),
        target_file_size=_size(values),
        txn_app_id=app_id,
        txn_version=version,
        checkpoint=values.text("checkpointLocation"),
        replay_check=replay_check(values),
    )


def table_path(options: Mapping[str, str]) -> Path:
    """The path of a read, which has no other option."""
    return _path(OptionValues(options, names=("path",), aliases={}))


def _path(values: OptionValues) -> Path:
    written = values.text("path")
    if not written:
        raise ClientError("no table is set", next_step='name one: .option("path", "/data/orders")')
    return local_path(written)


def _size(values: OptionValues) -> int:
    text = values.text("targetFileSize")
    if text is None:
        return DEFAULT_FILE_SIZE
    size = parse_size(text)
    if size is None:
        raise values.wrong("targetFileSize", "write it like 128m or 134217728")
    return size
