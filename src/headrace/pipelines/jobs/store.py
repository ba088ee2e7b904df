# SPDX-License-Identifier: Apache-2.0
"""`store`: stores every record of a topic in a table, partitioned by date.

Raw records keep the columns of a topic. Fields of decoded values become columns, and the topic's own columns
get an underscore. Read next: records.py, pipelines/runner.py; store_record.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Store
from headrace.pipelines.jobs.records import RECORD_COLUMNS, quoted, value_fields
from headrace.pipelines.jobs.store_record import StoreRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ZONE_SETTING = "spark.sql.session.timeZone"
_BESIDE_FIELDS = tuple(name for name in RECORD_COLUMNS if name not in ("value", "headers"))


def stored(frame: DataFrame, store: Store) -> DataFrame:
    """The rows of the table."""
    fields = value_fields(frame)
    date = f"to_date({store.time})"
    if not fields:
        return frame.selectExpr("*", f"{date} AS date")
    added = [f"_{name}" for name in (*_BESIDE_FIELDS, "date")]
    taken = {name.lower() for name in fields} & set(added)
    if taken:
        raise ClientError(
            f"pipeline {store.name!r}: the field {min(taken)!r} has the name of a column that store adds",
            next_step="leave it out of the schema, or store the values raw",
        )
    return frame.selectExpr(
        *(f"value.{quoted(name)}" for name in fields),
        *(f"{name} AS _{name}" for name in _BESIDE_FIELDS),
        f"{date} AS _date",
    )


def table_writer(rows: DataFrame, store: Store) -> DataStreamWriter:
    date = rows.columns[-1]
    partition_by = (date,) if store.partition_by is None else store.partition_by
    writer = rows.writeStream.outputMode("append").option("path", store.path)
    if store.format == "parquet":
        return writer.format("parquet").partitionBy(*partition_by)
    record = StoreRecord.of(store, zone=session_zone(rows.sparkSession))
    writer = writer.format("headrace_delta").options(**store.storage.sink_options())
    return writer.options(partitionBy=",".join(partition_by), userMetadata=record.to_text())


def session_zone(spark: SparkSession) -> str:
    """The time zone in which a session takes the date of a time."""
    return str(spark.conf.get(ZONE_SETTING))
