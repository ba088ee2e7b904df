"""What `.option(…)` may say of writes to a table, checked.

Pure. Names are those of Delta's own Spark connector where it has them. Read next: source.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import local_path
from headrace.pipelines.sizes import parse_size
from pyspark_headrace.option_values import Given

NAMES = ("path", "partitionBy", "mergeSchema", "targetFileSize", "txnAppId", "txnVersion")
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})

DEFAULT_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    path: Path
    partition_by: tuple[str, ...]
    merge_schema: bool
    target_file_size: int
    txn_app_id: str | None
    txn_version: int | None


def table_settings(options: Mapping[str, str], *, streaming: bool) -> TableSettings:
    """ClientError names the option that is missing, unknown or cannot be what it is."""
    given = Given(options, names=NAMES, aliases={}, ignored=_OF_SPARK)
    app_id, version = given.text("txnAppId"), given.integer("txnVersion", least=0)
    if streaming and version is not None:
        raise ClientError(
            "option 'txnVersion' has no meaning in a stream, whose batches are numbered by Spark",
            next_step="leave it out",
        )
    if not streaming and (app_id is None) != (version is None):
        raise ClientError(
            "options 'txnAppId' and 'txnVersion' only work together in a batch write",
            next_step="give both, to have the same version written once however often it is tried, or none",
        )
    if app_id == "":
        raise given.wrong("txnAppId", "give it a name, or leave it out")
    return TableSettings(
        path=_path(given),
        partition_by=given.names("partitionBy") or (),
        merge_schema=given.boolean("mergeSchema", False),
        target_file_size=_size(given),
        txn_app_id=app_id,
        txn_version=version,
    )


def table_path(options: Mapping[str, str]) -> Path:
    """Of a read, which has no other option."""
    return _path(Given(options, names=("path",), aliases={}))


def _path(given: Given) -> Path:
    written = given.text("path")
    if not written:
        raise ClientError("no table is given", next_step='name one: .option("path", "/data/orders")')
    return local_path(written)


def _size(given: Given) -> int:
    text = given.text("targetFileSize")
    if text is None:
        return DEFAULT_FILE_SIZE
    size = parse_size(text)
    if size is None:
        raise given.wrong("targetFileSize", "write it like 128m or 134217728")
    return size
