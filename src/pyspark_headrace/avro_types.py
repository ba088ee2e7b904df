# SPDX-License-Identifier: Apache-2.0
"""The Spark type of an Avro schema.

A separate module because it loads the Avro reader, which only Avro columns need. Read next:
values/avro/reader.py of the client.
"""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_type

from headrace.client.arrow.values.avro.reader import AvroConverter
from headrace.client.arrow.values.formats import Avro
from headrace.client.errors import ClientError


def avro_of(name: str, schema: str | None, registry: str | None) -> Avro:
    """The client's Avro format. A query's columns are fixed, so the schema must be set."""
    if schema is None:
        raise ClientError(
            f"{name!r} is read as Avro, but its schema is not set",
            next_step=f'add .option("{name}Schema", …) with the schema as JSON',
        )
    return Avro(schema=schema, registry=registry)


def spark_type(name: str, schema: str | None, registry: str | None) -> str:
    converter = AvroConverter(name, avro_of(name, schema, registry), "")
    return from_arrow_type(converter.field.type).simpleString()
