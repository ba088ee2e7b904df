# SPDX-License-Identifier: Apache-2.0
"""Delta schemas of rows, and whether they fit the schema of a table.

Pure. Delta schemas are Spark schemas in JSON. All columns are nullable in tables created here, as with
Delta's own connector. Read next: commit.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructType

from headrace.client.errors import ClientError

Document = dict[str, Any]

_TYPES = frozenset(
    {
        *("string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)
_DECIMAL = re.compile(r"decimal\(\d+,\s*-?\d+\)")
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
_PARTITION_TYPES = frozenset({"string", "long", "integer", "short", "byte", "boolean", "date"})


def table_schema(schema: StructType, partition_by: Sequence[str]) -> Document:
    """The table schema of these rows; ClientError names a column whose type Delta does not support."""
    document: Document = _nullable(json.loads(schema.json()), "")
    names = [field["name"] for field in document["fields"]]
    for name in names:
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise ClientError(f"there are two columns {name!r}", next_step="rename one: names ignore case")
    types = {field["name"]: field["type"] for field in document["fields"]}
    for name in partition_by:
        _check_partition_column(name, types)
    if names and set(names) == set(partition_by):
        raise ClientError(
            "the table would be partitioned by all of its columns", next_step="leave one out of partitionBy"
        )
    return document


def new_columns(table: Document, rows: Document) -> list[Document]:
    """Fields of the rows that the table lacks; ClientError when types conflict."""
    known = {field["name"]: field for field in table["fields"]}
    by_lower = {name.lower(): name for name in known}
    added = []
    for field in rows["fields"]:
        name = field["name"]
        if name not in known:
            if name.lower() in by_lower:
                raise ClientError(
                    f"column {name!r} is written {by_lower[name.lower()]!r} in the table",
                    next_step="rename it",
                )
            added.append(field)
            continue
        wanted = _nullable({"type": "struct", "fields": [known[name]]}, "", checked=False)["fields"][0]
        if wanted["type"] != field["type"]:
            raise ClientError(
                f"column {name!r} is {_shown(field['type'])}, but {_shown(wanted['type'])} in the table",
                next_step="cast it before writing",
            )
    return added


def required_columns(table: Document) -> list[str]:
    return [field["name"] for field in table["fields"] if not field["nullable"]]


def _nullable(part: Any, where: str, *, checked: bool = True) -> Any:
    """The same type with nulls allowed everywhere and without metadata."""
    if not isinstance(part, Mapping):
        if checked and part not in _TYPES and _DECIMAL.fullmatch(str(part)) is None:
            raise ClientError(
                f"column {where!r} is {part}, which Delta does not support",
                next_step="cast it to another type, or leave it out",
            )
        return part
    kind = part["type"]
    if kind == "struct":
        return {"type": kind, "fields": [_field(field, where, checked=checked) for field in part["fields"]]}
    if kind == "array":
        element = _nullable(part["elementType"], where, checked=checked)
        return {"type": kind, "elementType": element, "containsNull": True}
    if kind == "map":
        return {
            "type": kind,
            "keyType": _nullable(part["keyType"], where, checked=checked),
            "valueType": _nullable(part["valueType"], where, checked=checked),
            "valueContainsNull": True,
        }
    raise ClientError(f"column {where!r} is of type {kind}, which Delta does not support")


def _field(field: Mapping[str, Any], where: str, *, checked: bool) -> Document:
    name = field["name"]
    inside = f"{where}.{name}" if where else name
    if checked and (not name or _NOT_IN_NAMES.search(name)):
        raise ClientError(
            f"a column cannot be named {inside!r}", next_step="rename it without spaces and any of ,;{}()="
        )
    kind = _nullable(field["type"], inside, checked=checked)
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _check_partition_column(name: str, types: Mapping[str, Any]) -> None:
    if name not in types:
        raise ClientError(
            f"there is no column {name!r} to partition by, only {', '.join(types)}",
            next_step="correct option 'partitionBy'",
        )
    if not isinstance(types[name], str) or types[name] not in _PARTITION_TYPES:
        raise ClientError(
            f"tables cannot be partitioned by {name!r}, which is {_shown(types[name])}",
            next_step="partition by a string, a whole number, a boolean or a date: CAST(… AS DATE)",
        )


def _shown(kind: Any) -> str:
    """Roughly as SQL writes the type."""
    if not isinstance(kind, Mapping):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{_shown(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_shown(kind['keyType'])},{_shown(kind['valueType'])}>"
    return f"struct<{','.join(field['name'] + ':' + _shown(field['type']) for field in kind['fields'])}>"
