# SPDX-License-Identifier: Apache-2.0
"""`copy`: copies records to another topic, optionally filtered, transformed and with new keys.

Everything else is copied unchanged, including headers. Read next: records.py, pipelines/runner.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.definitions.definition import Copy
from headrace.pipelines.jobs.records import topic_options, value_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def copied(frame: DataFrame, copy: Copy) -> DataFrame:
    """The output records: key, value, headers."""
    chosen = frame if copy.where is None else frame.where(copy.where)
    return chosen.selectExpr(
        f"{_text_or_bytes(chosen, copy.new_key or 'key')} AS key",
        f"{_value(chosen, copy)} AS value",
        "headers",
    )


def topic_writer(messages: DataFrame, copy: Copy) -> DataStreamWriter:
    options = topic_options(copy, copy.to)
    return messages.writeStream.format("headrace").options(**options).outputMode("append")


def _value(frame: DataFrame, copy: Copy) -> str:
    if copy.select:
        return f"to_json(struct({', '.join(copy.select)}))"
    if copy.expression is not None:
        return _text_or_bytes(frame, copy.expression)
    return "to_json(value)" if value_fields(frame) else _text_or_bytes(frame, "value")


def _text_or_bytes(frame: DataFrame, expression: str) -> str:
    """Numbers and dates are written as text."""
    kind = frame.selectExpr(f"{expression} AS it").schema["it"].dataType.typeName()
    return f"({expression})" if kind in ("binary", "string") else f"CAST(({expression}) AS STRING)"
