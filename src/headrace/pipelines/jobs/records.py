# SPDX-License-Identifier: Apache-2.0
"""A pipeline's source as a streaming DataFrame: topic columns and the fields of decoded values.

Read next: definitions/definition.py; store.py, analyze.py and copying.py use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.security_options import is_security_option
from headrace.pipelines.definitions.definition import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def records(spark: SparkSession, pipeline: Pipeline, *, group: str | None, stop_file: str) -> DataFrame:
    options = source_options(pipeline, group=group, stop_file=stop_file)
    return with_fields(spark.readStream.format("headrace").options(**options).load())


def with_fields(frame: DataFrame) -> DataFrame:
    """The topic's columns, and the fields of decoded values beside them."""
    fields = value_fields(frame)
    hidden = {name.lower() for name in RECORD_COLUMNS}
    return frame.select("*", *(f"value.{quoted(name)}" for name in fields if name.lower() not in hidden))


def source_options(
    pipeline: Pipeline, *, group: str | None = None, stop_file: str | None = None
) -> dict[str, str]:
    source = pipeline.source
    given = {
        "bootstrap": source.bootstrap,
        "config": source.config,
        "subscribe": ",".join(source.topics) or None,
        "subscribePattern": source.pattern,
        "columns": ",".join(RECORD_COLUMNS),
        "startingOffsets": source.begin,
        "value": source.value,
        "valueSchema": source.schema,
        "key": source.key,
        "registry": source.registry,
        "rejectsTopic": source.rejects,
        "maxOffsetsPerTrigger": None if source.max_rows is None else str(source.max_rows),
        "onDataLoss": source.on_data_loss,
        "group": group,
        "stopFile": stop_file,
    }
    return {name: value for name, value in given.items() if value is not None} | dict(source.options)


def topic_options(pipeline: Pipeline, topic: str) -> dict[str, str]:
    """Options of a topic sink on the same cluster, with the same security."""
    return {"bootstrap": pipeline.source.bootstrap, "topic": topic, **security_options(pipeline)}


def security_options(pipeline: Pipeline) -> dict[str, str]:
    """Those options of the source that say how to connect."""
    config = {} if pipeline.source.config is None else {"config": pipeline.source.config}
    options = pipeline.source.options
    return config | {name: value for name, value in options.items() if is_security_option(name)}


def value_fields(frame: DataFrame) -> list[str]:
    """Fields of decoded values; raw ones, and rows without their values, have none."""
    from pyspark.sql.types import StructType

    if "value" not in frame.columns:
        return []
    kind = frame.schema["value"].dataType
    return kind.fieldNames() if isinstance(kind, StructType) else []


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return f"`{name.replace('`', '``')}`"
