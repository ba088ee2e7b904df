# SPDX-License-Identifier: Apache-2.0
"""A topic as one DataFrame: its history from the table of `store`, its tail from the topic.

The two meet at the offsets that the table's newest batch recorded. The tail's rows are made by the code that
makes the table's. Read next: native_rows.py, tails.py, positions.py;
pipelines/jobs/store.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.identity import FILE
from headrace.pipelines.definitions.definition import Source, Storage, Store
from headrace.pipelines.definitions.definition_keys import FORMS, default_checkpoints
from headrace.pipelines.jobs.records import RECORD_COLUMNS, quoted, source_options, with_fields
from headrace.pipelines.jobs.store import ZONE_SETTING, session_zone, stored
from headrace.pipelines.jobs.store_record import StoreRecord, read_record
from headrace.pipelines.tables.native_rows import native_rows, spark_schema
from headrace.pipelines.tables.positions import newest_batch, offsets_of
from headrace.pipelines.tables.session_setting import session_setting
from headrace.pipelines.tables.snapshots import Snapshot, open_snapshot
from headrace.pipelines.tables.tails import find_tail
from pyspark_headrace.options import read_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.delta.table import TablePlace

_ZONE_OF_COMMAND = "UTC"
"""In which `headrace pipeline run` takes dates."""
_RAW_COLUMNS = frozenset({*RECORD_COLUMNS, "date"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """What a caller of `table` says. None: what the table says of itself."""

    topics: tuple[str, ...]
    path: str
    bootstrap: str
    config: str | None = None
    value: str | None = None
    key: str | None = None
    schema: str | None = None
    registry: str | None = None
    time: str | None = None
    columns: tuple[str, ...] | None = None
    on_data_loss: str = "fail"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: Storage = field(default_factory=Storage)


def topic_table(spark: SparkSession, request: TableRequest) -> DataFrame:
    """History and tail as of now. ClientError when they would not fit together."""
    snapshot = open_snapshot(request.path, storage=request.storage)
    batch = newest_batch(snapshot.table, snapshot.path)
    end = offsets_of(batch, snapshot.path)
    record = read_record(batch.user_metadata) or _assumed(snapshot, request)
    store = _store(record, request)
    options = _source_options(store, record, request.columns)
    tail = find_tail(read_settings(options, streaming=False), end, str(snapshot.path))
    history = native_rows(spark, snapshot)
    rows = history
    if tail.ranges:
        reader = spark.read.format("headrace").options(**_unselected(options) | tail.options())
        frame = with_fields(reader.load())
        with _in_zone(spark, record.zone, snapshot.path):
            rows = history.unionAll(_as_in_table(stored(frame, store), snapshot))
    return rows if request.columns is None else selected(rows, request.columns, snapshot.path)


def selected(rows: DataFrame, columns: Sequence[str], path: TablePlace) -> DataFrame:
    missing = [name for name in columns if name not in rows.columns]
    if missing:
        raise ClientError(
            f"the table {path} has no column {missing[0]!r}",
            next_step=f"choose from {', '.join(rows.columns)}",
        )
    return rows.select(*(quoted(name) for name in columns))


def path_on_this_machine(topics: Sequence[str], checkpoints: Path | None = None) -> str:
    """The table of the store pipeline that runs with a checkpoint in the user's own folder."""
    folder = default_checkpoints() if checkpoints is None else checkpoints
    found = set()
    for path in folder.glob(f"*/{FILE}"):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        wanted = {"kind": "store", "format": "delta", "topic": list(topics)}
        if isinstance(document, dict) and wanted.items() <= document.items():
            found.add(str(document["path"]))
    if len(found) == 1:
        return found.pop()
    named = ", ".join(map(repr, topics))
    if found:
        raise ClientError(
            f"topic {named} is stored in several tables: {', '.join(sorted(found))}",
            next_step="choose one: path=…",
        )
    raise ClientError(
        f"no pipeline of this user on this machine stores topic {named} in a Delta table",
        next_step="give path=…, the folder that `headrace pipeline run store` writes to",
    )


# -- what the rows are made of -----------------------------------------------------------------------------


def _assumed(snapshot: Snapshot, request: TableRequest) -> StoreRecord:
    """Of a table of an earlier release, which does not tell how its rows were made."""
    names = {field["name"] for field in snapshot.schema["fields"]}
    if request.value is None and names != _RAW_COLUMNS:
        raise ClientError(
            f"the table {snapshot.path} does not say how its rows were made from the topic, and they are "
            f"not the raw records: its columns are {', '.join(sorted(names))}",
            next_step='give the options of the pipeline that stored it: value="json", schema="…"',
        )
    value = request.value or "raw"
    return StoreRecord(
        topics=request.topics,
        pattern=None,
        value=value,
        key=request.key or ("raw" if value == "raw" else "string"),
        schema=request.schema,
        time=request.time or "timestamp",
        zone=_ZONE_OF_COMMAND,
        isolation="read_committed",
        registry=request.registry is not None,
        rejects=False,
    )


def _store(record: StoreRecord, request: TableRequest) -> Store:
    """The pipeline, as far as its rows are concerned."""
    for name in ("value", "key", "time"):
        given, known = getattr(request, name), getattr(record, name)
        if given is not None and given != known:
            raise ClientError(
                f"the table {request.path} was stored with {name}={known!r}, and {name}={given!r} is given",
                next_step=f"leave {name} out",
            )
    if record.value not in FORMS:
        raise ClientError(f"value cannot be {record.value!r}", next_step=f"use one of {', '.join(FORMS)}")
    if record.registry and request.registry is None:
        raise ClientError(
            f"the table {request.path} was stored with a schema registry, whose address it does not keep",
            next_step="give registry=…",
        )
    if record.pattern is None and set(record.topics) != set(request.topics):
        raise ClientError(
            f"the table {request.path} is stored from {', '.join(map(repr, record.topics))}, not from "
            f"{', '.join(map(repr, request.topics))}",
            next_step="name the topics of the table",
        )
    source = Source(
        bootstrap=request.bootstrap,
        topics=() if record.pattern is not None else record.topics,
        pattern=record.pattern,
        value=record.value,
        key=record.key,
        schema=request.schema or record.schema,
        registry=request.registry,
        on_data_loss=request.on_data_loss,
        config=request.config,
        options=request.options,
    )
    return Store(
        name="table",
        source=source,
        group="",
        checkpoint=Path(),
        path=request.path,
        time=record.time,
    )


def _source_options(store: Store, record: StoreRecord, columns: Sequence[str] | None) -> dict[str, str]:
    options = {"isolation": record.isolation, **source_options(store)}
    if columns is not None and not store.source.typed and store.time == "timestamp":
        needed = {*columns, "timestamp"}  # of the date
        options["columns"] = ",".join(name for name in RECORD_COLUMNS if name in needed)
    if record.rejects:
        options["reportRejects"] = "false"
    return {name: value for name, value in options.items() if name != "startingOffsets"}


def _unselected(options: Mapping[str, str]) -> dict[str, str]:
    """The tail names its partitions itself."""
    return {name: value for name, value in options.items() if not name.startswith("subscribe")}


@contextmanager
def _in_zone(spark: SparkSession, zone: str, path: TablePlace) -> Iterator[None]:
    """Spark takes dates in the time zone that the session has when it analyzes their expression."""
    before = session_zone(spark)
    analyzes_later = type(spark).__module__.startswith("pyspark.sql.connect")
    if before != zone and analyzes_later:
        raise ClientError(
            f"the dates in the table {path} are those of time zone {zone}; this session's is {before}, and "
            "new records would get other dates",
            next_step=f'spark.conf.set("{ZONE_SETTING}", "{zone}")',
        )
    with session_setting(spark, ZONE_SETTING, zone):
        yield


def _as_in_table(tail: DataFrame, snapshot: Snapshot) -> DataFrame:
    """The tail's columns in the table's order; those that the topic has no more are null."""
    made = {field.name: field.dataType for field in tail.schema.fields}
    columns = []
    for column in spark_schema(snapshot).fields:
        name, kind = quoted(column.name), column.dataType.simpleString()
        found = made.pop(column.name, None)
        if found is not None and found.simpleString() != kind:
            raise ClientError(
                f"column {column.name!r} is {kind} in the table {snapshot.path}, and "
                f"{found.simpleString()} in the topic's new records",
                next_step="give the options that the table was stored with: value=…, key=…, schema=…",
            )
        columns.append(name if found is not None else f"CAST(NULL AS {kind}) AS {name}")
    if made:
        raise ClientError(
            f"the table {snapshot.path} has no column {min(made)!r}, which the topic's new records have",
            next_step="give the schema that the table was stored with: schema=…",
        )
    return tail.selectExpr(*columns)
