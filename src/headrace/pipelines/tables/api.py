# SPDX-License-Identifier: Apache-2.0
"""`table`, `view` and `delta` of headrace.spark: arguments as callers write them.

Read next: topic_table.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Storage
from headrace.pipelines.jobs.records import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    path: str | Path | None = None,
    bootstrap: str | None = None,
    config: str | Path | None = None,
    value: str | None = None,
    key: str | None = None,
    schema: str | None = None,
    registry: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    on_data_loss: str = "fail",
    options: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    storage_config: str | Path | None = None,
) -> DataFrame:
    """A topic as a table: what `headrace pipeline run store` has stored, and what came since, split exactly.

    The files and offsets are those of this call: call it again for newer records.

    topic: its name, or names. path: the table; by default that of the store pipeline of this user.
    bootstrap, config: as for `headrace.read`. columns: those that are needed; default: all.
    value, key, schema, time: how the rows are made; the table knows it, but for tables of earlier releases.
    registry: the address of the schema registry, if there is one.
    on_data_loss: `fail`, `skip` or `earliest`: records were removed, or the topic was recreated.
    options: further options of the source, for the tail.
    storage, storage_config: options of the object store with the table, by deltalake's names, and a file with
        others, its login above all.

    ClientError says what does not fit together.
    """
    from headrace.pipelines.tables.topic_table import TableRequest, path_on_this_machine, topic_table

    topics = _names(topic)
    request = TableRequest(
        topics=topics,
        path=str(path) if path is not None else path_on_this_machine(topics),
        bootstrap=chosen_bootstrap(bootstrap),
        config=None if config is None else str(Path(config).expanduser().absolute()),
        value=value,
        key=key,
        schema=schema,
        registry=registry,
        time=time,
        columns=None if columns is None else tuple(columns),
        on_data_loss=on_data_loss,
        options=dict(options or {}),
        storage=_storage(storage, storage_config),
    )
    return topic_table(spark, request)


def view(
    spark: SparkSession, topic: str | Sequence[str], *, name: str | None = None, **arguments: Any
) -> DataFrame:
    """The same as a temporary view for SQL, named like the topic; call it again for newer records.

    name: another name. arguments: those of `table`.
    """
    topics = _names(topic)
    if name is None and len(topics) > 1:
        raise ClientError("a view of several topics needs a name", next_step='give name="…"')
    frame = table(spark, topics, **arguments)
    frame.createOrReplaceTempView(quoted(topics[0] if name is None else name))
    return frame


def delta(
    spark: SparkSession,
    path: str | Path,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    offset: Mapping[str, Mapping[str, int]] | None = None,
    columns: Sequence[str] | None = None,
    storage: Mapping[str, str] | None = None,
    storage_config: str | Path | None = None,
) -> DataFrame:
    """Any Delta table without deletion vectors and column mapping, read by Spark's own Parquet reader.

    version: a version instead of the newest. timestamp: the newest version at that time.
    offset: the newest version without records at or after these: `{"orders": {"0": 23}}`.
    storage, storage_config: as for `table`. A table in an object store is read through Arrow.
    """
    from headrace.pipelines.tables.native_rows import native_rows
    from headrace.pipelines.tables.snapshots import open_snapshot
    from headrace.pipelines.tables.topic_table import selected

    reached_by = _storage(storage, storage_config)
    snapshot = open_snapshot(
        str(path), storage=reached_by, version=version, timestamp=timestamp, offset=offset
    )
    rows = native_rows(spark, snapshot)
    return rows if columns is None else selected(rows, columns, snapshot.path)


def _storage(options: Mapping[str, str] | None, config: str | Path | None) -> Storage:
    file = None if config is None else str(Path(config).expanduser().absolute())
    return Storage(options=dict(options or {}), config=file)


def _names(topic: str | Sequence[str]) -> tuple[str, ...]:
    names = (topic,) if isinstance(topic, str) else tuple(topic)
    if not names or not all(names):
        raise ClientError("no topic is named", next_step='name one: table(spark, "orders")')
    return names
