# SPDX-License-Identifier: Apache-2.0
"""Serializes columns to the bytes of keys or values: raw, Kafka's numbers, JSON, Avro.

Read next: formats.py , sources.py (JSON and Avro), plain.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.errors import RowRefused
from headrace.client.arrow.values.avro.derive import derived_schema
from headrace.client.arrow.values.avro.registry import MAGIC, Registry
from headrace.client.arrow.values.avro.schema import parse_schema
from headrace.client.arrow.values.avro.sources import avro_source
from headrace.client.arrow.values.converter_factory import no_such_format
from headrace.client.arrow.values.formats import Avro, Format, Json
from headrace.client.arrow.values.json.sources import json_source, plain_form
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.nodes import Fault
from headrace.client.arrow.values.plain import NUMBERS, write_numbers
from headrace.client.arrow.values.sources import RowUnfit, write_rows
from headrace.client.arrow.values.write_row_wise import avro_row, json_row
from headrace.client.errors import ClientError

ColumnChoice = str | Sequence[str] | None
"""A column, several that make one object, or none."""
_TEXTS = {
    Fault.RANGE: "its value does not fit {form}",
    Fault.NULL: "it is null, which the Avro schema does not allow",
}
_WORD_OF_TYPE = {kind: word for word, (kind, _) in NUMBERS.items()}
_BYTES_LIKE = (
    *(pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string),
    *(pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary, pa.types.is_null),
)

Write = Callable[[Any], Any]


def bytes_writer(
    role: str, choice: ColumnChoice, form: Format | None, schema: Any, topic: str
) -> Write | None:
    """For keys or values of this topic: a batch to a binary column. ClientError for other types."""
    if choice is None:
        return None
    names = [choice] if isinstance(choice, str) else list(choice)
    if not names:
        raise ClientError(f"no column is named for the {role}", next_step=f"give {role}=None for none")
    for name in names:
        if name not in schema.names:
            raise no_such_column(name, schema)
    if isinstance(choice, str):
        kind = schema.field(choice).type
        write = _column_writer(role, choice, form, kind, topic)
        return lambda batch: write(batch.column(choice))
    fields = [schema.field(name) for name in names]
    form = "json" if form is None else form
    write = _column_writer(role, ", ".join(names), form, pa.struct(fields), topic, path="")
    return lambda batch: write(
        pa.StructArray.from_arrays([batch.column(name) for name in names], fields=fields)
    )


def is_bytes_like(kind: Any) -> bool:
    return any(fits(kind) for fits in _BYTES_LIKE)


def no_such_column(name: str, schema: Any) -> ClientError:
    return ClientError(f"the table has no column {name!r}", next_step=f"it has {', '.join(schema.names)}")


def _column_writer(
    role: str, name: str, form: Format | None, kind: Any, topic: str, *, path: str | None = None
) -> Write:
    """`path` comes before the names of fields in errors; None: the column's name."""
    path = name if path is None else path
    plain = plain_form(pa.nulls(0, kind)).type
    if form is None:
        form = _usual_form(role, name, plain)
    if isinstance(form, Json) and form.schema is not None:
        raise ClientError(
            f"the {role} is written with the columns' own types", next_step=f'cast them; {role}_format="json"'
        )
    if isinstance(form, Json) or form == "json":
        json_source(pa.nulls(0, plain), path)  # raises now for types that cannot be JSON
        return lambda column: _written(
            column, name, "JSON", lambda array: json_source(array, path), "write_json", json_row
        )
    if isinstance(form, Avro) or form == "avro":
        return _avro_writer(role, name, form if isinstance(form, Avro) else Avro(), plain, topic)
    if form == "raw":
        _must(is_bytes_like(plain), name, kind, "binary or string")
        return lambda column: plain_form(column).cast(pa.binary())
    if form == "string":
        nested = pa.types.is_nested(plain) or pa.types.is_binary(plain)
        _must(not nested, name, kind, "something that has a text")
        return lambda column: plain_form(column).cast(pa.string()).cast(pa.binary())
    if form in NUMBERS:
        _must(pa.types.is_integer(plain) or pa.types.is_floating(plain), name, kind, "a number")
        return lambda column: write_numbers(_as_number(plain_form(column), form, name), form)
    raise no_such_format(form)


def _usual_form(role: str, name: str, kind: Any) -> Format:
    """The default format of a type."""
    if is_bytes_like(kind):
        return "raw"
    if kind in _WORD_OF_TYPE:
        return _WORD_OF_TYPE[kind]  # type: ignore[return-value]
    if pa.types.is_nested(kind):
        return "json"
    raise ClientError(
        f"column {name!r} is {kind}, of which Kafka's clients have no usual form",
        next_step=f'say how to write it: {role}_format="string", "int64", "json", …',
    )


def _as_number(column: Any, word: str, name: str) -> Any:
    """Nothing may be lost but the last digits of a float."""
    wanted = NUMBERS[word][0]
    try:
        return column.cast(wanted, safe=not pa.types.is_floating(wanted))
    except pa.ArrowInvalid:
        rough = column.cast(wanted, safe=False)
        lost = pc.fill_null(pc.not_equal(rough.cast(column.type, safe=False), column), False)
        row = max(pc.index(lost, True).as_py(), 0)
        why = ClientError(f"{column[row].as_py()!r} in column {name!r} does not fit {word}")
        raise RowRefused(row, why) from None


def _avro_writer(role: str, name: str, form: Avro, kind: Any, topic: str) -> Write:
    schema = derived_schema(kind, role.capitalize()) if form.schema is None else form.schema
    parsed = parse_schema(schema)
    avro_source(pa.nulls(0, kind), parsed, "")  # raises now for types that do not fit
    prefix = b""
    if form.registry is not None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_id = Registry(form.registry).register(form.subject or f"{topic}-{role}", text)
        prefix = bytes([MAGIC]) + schema_id.to_bytes(4, "big")
    return lambda column: _written(
        column,
        name,
        "the Avro schema",
        lambda array: avro_source(array, parsed),
        "write_avro",
        avro_row,
        prefix,
    )


def _written(
    column: Any, name: str, form: str, prepare: Any, kernel: str, row_wise: Any, prefix: bytes = b""
) -> Any:
    source = prepare(column)
    try:
        return write_rows(source, value_kernel(kernel), row_wise, prefix)
    except RowUnfit as error:
        what = _TEXTS[error.fault].format(form=form)
        raise RowRefused(error.row, ClientError(f"column {error.path or name!r}: {what}")) from None


def _must(fits: bool, name: str, kind: Any, wanted: str) -> None:
    if not fits:
        raise ClientError(
            f"column {name!r} is {kind}, but must be {wanted}", next_step="cast it before writing"
        )
