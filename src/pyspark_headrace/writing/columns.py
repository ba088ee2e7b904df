# SPDX-License-Identifier: Apache-2.0
"""The input columns of a sink, as in Spark's own Kafka connector; checked when a write is planned.

Pure. Read next: batch_writer.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from headrace.client.errors import ClientError
from pyspark_headrace.columns import HEADERS

_ALLOWED: dict[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "headers": (HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The known columns that the rows have; other columns are not written."""

    names: frozenset[str]

    @classmethod
    def of(cls, schema: StructType, *, topic_given: bool) -> SinkColumns:
        """ClientError at planning names the column that is missing or of another type."""
        types = {field.name: field.dataType for field in schema.fields}
        if "value" not in types:
            raise ClientError(
                f"there is no column 'value' to write, only {', '.join(types) or 'none'}",
                next_step='name one: df.selectExpr("to_json(struct(*)) AS value")',
            )
        if "topic" not in types and not topic_given:
            raise ClientError("no topic is set", next_step='add .option("topic", …), or a column named topic')
        for name, allowed in _ALLOWED.items():
            if name in types and types[name].simpleString() not in {each.simpleString() for each in allowed}:
                wanted = " or ".join(each.simpleString() for each in allowed)
                raise ClientError(
                    f"column {name!r} is {types[name].simpleString()}, but must be {wanted}",
                    next_step=f"cast it before writing: CAST({name} AS {allowed[-1].simpleString()})",
                )
        return cls(names=frozenset(types) & frozenset(_ALLOWED))

    def optional(self, name: str) -> str | None:
        return name if name in self.names else None
