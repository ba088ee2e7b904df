# SPDX-License-Identifier: Apache-2.0
"""Describes messages from kio's generated classes: fields, their types on the wire and their defaults.

Only describes; encoder.py and decoder.py turn the description into code. Modules of kio are imported on
first use: all of them together would take longer than the rest of the broker's start.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import types
import typing
import uuid
from functools import cache
from typing import Any, Literal

from headrace.wire.kio_import import import_kio

Kind = Literal["request", "response"]

_ZERO_BY_KIND: dict[str, Any] = {"string": "", "bytes": b"", "records": None, "uuid": None, "bool": False}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One field. `kind` is Kafka's type, or "struct" with its class in `struct`; for arrays, the item's."""

    name: str
    kind: str
    struct: type | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """As the encoder takes it: durations and times in milliseconds, no struct instances."""


@cache
def message_class(name: str, version: int, kind: Kind) -> Any:
    """kio's class of a message, e.g. ("create_topics", 7, "request")."""
    import_kio()
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + kind.capitalize())


@cache
def message_versions(name: str) -> tuple[int, ...]:
    """Every version that kio knows of a message."""
    import_kio()
    index = importlib.import_module("kio.schema.index")
    return tuple(sorted(index.schema_name_map[name]))


@cache
def fields_of(cls: Any) -> tuple[FieldSpec, ...]:
    return tuple(_describe(field) for field in dataclasses.fields(cls))


def field_names(cls: Any, path: tuple[str, ...]) -> frozenset[str] | None:
    """Names of the fields of the struct reached over `path`; None when there is no such struct."""
    for step in path:
        spec = next((field for field in fields_of(cls) if field.name == step), None)
        if spec is None or spec.struct is None:
            return None
        cls = spec.struct
    return frozenset(field.name for field in fields_of(cls))


def _describe(field: dataclasses.Field[Any]) -> FieldSpec:
    field_type, nullable = _without_none(field.type)
    is_array = typing.get_origin(field_type) is tuple
    if is_array:
        field_type, _item_nullable = _without_none(typing.get_args(field_type)[0])
    struct = field_type if dataclasses.is_dataclass(field_type) else None
    kind = "struct" if struct else field.metadata["kafka_type"]
    return FieldSpec(
        name=field.name,
        kind=kind,
        struct=typing.cast("type | None", struct),
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, kind, is_array),
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return annotation, False
    inner = [item for item in typing.get_args(annotation) if item is not types.NoneType]
    return inner[0], True


def _default(field: dataclasses.Field[Any], kind: str, is_array: bool) -> Any:
    """The schema's default, else the zero value of the type."""
    value = field.default
    if value is dataclasses.MISSING:
        if is_array:
            return ()
        return {} if kind == "struct" else _ZERO_BY_KIND.get(kind, 0)
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, uuid.UUID):
        return value
    if dataclasses.is_dataclass(value):
        return {}
    return -1 if value is None and kind == "datetime_i64" else value
