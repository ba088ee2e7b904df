"""The Spark type of an Avro schema: given as text, or the newest of a registry's subject.

Read next: columns.py; values/avro_reader.py of the client.
"""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_type

from headrace.client.arrow.values.avro_reader import AvroConverter
from headrace.client.arrow.values.formats import Avro
from headrace.client.errors import ClientError
from pyspark_headrace.columns import Form


def avro_of(name: str, form: Form) -> Avro:
    """What the client is to read. A query's columns are fixed, so that a schema has to be given."""
    if form.schema is None:
        raise ClientError(
            f"{name!r} is read as Avro, but its schema is not given",
            next_step=f'add .option("{name}Schema", …) with the schema as JSON',
        )
    return Avro(schema=form.schema, registry=form.registry)


def spark_type(name: str, form: Form) -> str:
    converter = AvroConverter(name, avro_of(name, form), "")
    return from_arrow_type(converter.field.type).simpleString()
