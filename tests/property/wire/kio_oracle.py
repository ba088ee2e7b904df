# SPDX-License-Identifier: Apache-2.0
"""kio as the oracle: encode and decode with it, draw any of its messages, turn them into our dict trees.

kio's native reader is only ever given bytes that kio or our encoder wrote: on garbage it may end the process.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from functools import cache
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.schema import FieldSpec, Kind, fields_of, message_class

QUICK = settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
EVERY_VERSION = [(api.key, version) for api in APIS.values() for version in api.accepted]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
UNKNOWN_TAG = 77

_WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 50}
"""Of 64 bits a timedelta holds fewer."""


def name_of(case: tuple[int, int]) -> str:
    return f"{APIS[case[0]].name}-v{case[1]}"


def class_of(case: tuple[int, int], kind: Kind) -> Any:
    return message_class(APIS[case[0]].name, case[1], kind)


def encode(entity: Any) -> bytes:
    from kio.serial import entity_writer

    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()


def decode(cls: Any, data: bytes) -> Any:
    """The message that fills `data` exactly."""
    from kio.serial import entity_reader

    entity, used = entity_reader(cls)(data, 0)
    assert used == len(data)
    return entity


def reply_body(cls: Any, frame: bytes, correlation_id: int) -> bytes:
    """The body of a reply's frame, its length and header checked."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big", signed=True) == correlation_id
    if cls.__header_schema__.__version__ == 0:
        return frame[8:]
    assert frame[8] == 0
    return frame[9:]


@cache
def entities(cls: Any) -> st.SearchStrategy[Any]:
    """Any content that the message can hold."""
    return st.builds(cls, **{spec.name: _field(spec) for spec in fields_of(cls)})


def _field(spec: FieldSpec) -> st.SearchStrategy[Any]:
    value = entities(spec.struct) if spec.struct is not None else _primitive(spec)
    if spec.is_array:
        value = st.lists(value, max_size=3).map(tuple)
    elif spec.kind in ("uuid", "datetime_i64"):
        return value
    if spec.nullable and (spec.tag is None or spec.struct is None):
        return st.none() | value
    return value


def _primitive(spec: FieldSpec) -> st.SearchStrategy[Any]:
    if spec.kind in _WIDTHS:
        edge = 1 << (_WIDTHS[spec.kind] - 1)
        numbers = st.integers(-edge, edge - 1)
        if spec.kind.startswith("timedelta"):
            return numbers.map(lambda value: datetime.timedelta(milliseconds=value))
        return numbers
    if spec.kind == "datetime_i64":
        times = st.integers(0, 1 << 42).map(lambda value: EPOCH + datetime.timedelta(milliseconds=value))
        return st.none() | times if spec.nullable else times
    return _SIMPLE[spec.kind]


_SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 0xFFFF),
    "uint32": st.integers(0, 0xFFFFFFFF),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=20) | st.text(min_size=120, max_size=140),
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40) | st.binary(min_size=120, max_size=140),
    "uuid": st.none() | st.uuids().filter(lambda value: value.int != 0),
    "error_code": st.sampled_from(list(ErrorCode)),
}


@cache
def filled(cls: Any) -> Any:
    """One message with something in every field."""
    return cls(**{spec.name: _filled_field(spec) for spec in fields_of(cls)})


def _filled_field(spec: FieldSpec) -> Any:
    value = filled(spec.struct) if spec.struct is not None else _FILLED.get(spec.kind, 5)
    return (value, value) if spec.is_array else value


_FILLED: dict[str, Any] = {
    "bool": True,
    "string": "name",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": uuid.UUID(int=5),
    "error_code": ErrorCode.invalid_request,
    "timedelta_i32": datetime.timedelta(milliseconds=5),
    "timedelta_i64": datetime.timedelta(milliseconds=5),
    "datetime_i64": EPOCH + datetime.timedelta(milliseconds=5),
    "float64": 0.5,
}


def tree_of(entity: Any) -> Any:
    """The same content as the dict tree that our encoder takes."""
    if dataclasses.is_dataclass(entity):
        specs = fields_of(type(entity))
        return {spec.name: _tree_of_field(spec, getattr(entity, spec.name)) for spec in specs}
    if isinstance(entity, tuple):
        return [tree_of(item) for item in entity]
    if isinstance(entity, datetime.timedelta):
        return entity // datetime.timedelta(milliseconds=1)
    if isinstance(entity, datetime.datetime):
        return (entity - EPOCH) // datetime.timedelta(milliseconds=1)
    return entity


def _tree_of_field(spec: FieldSpec, value: Any) -> Any:
    return -1 if value is None and spec.kind == "datetime_i64" else tree_of(value)


@cache
def with_unknown_tag(cls: Any) -> Any:
    """A class like `cls` whose structs all carry a tagged field that no reader knows."""
    fields = [
        (field.name, _annotation(field.type), _like(field))
        for field in dataclasses.fields(cls)
        if "tag" not in field.metadata
    ]
    unknown = dataclasses.field(metadata={"kafka_type": "bytes", "tag": UNKNOWN_TAG}, default=b"")
    constants = {name: getattr(cls, name) for name in ("__type__", "__version__", "__flexible__")}
    return dataclasses.make_dataclass(
        cls.__name__, [*fields, ("unknown", bytes, unknown)], namespace=constants, frozen=True, kw_only=True
    )


def _like(field: dataclasses.Field[Any]) -> Any:
    return dataclasses.field(metadata=field.metadata)


def _annotation(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return with_unknown_tag(annotation)
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return tuple[_annotation(typing.get_args(annotation)[0]), ...]
    if origin in (types.UnionType, typing.Union):
        inner = [item for item in typing.get_args(annotation) if item is not types.NoneType]
        return _annotation(inner[0]) | None
    return annotation


def add_unknown_tags(entity: Any, data: bytes) -> Any:
    """The entity again, with an unknown tagged field of these bytes in every struct."""
    if isinstance(entity, tuple):
        return tuple(add_unknown_tags(item, data) for item in entity)
    if not dataclasses.is_dataclass(entity):
        return entity
    values = {
        field.name: add_unknown_tags(getattr(entity, field.name), data)
        for field in dataclasses.fields(entity)
        if "tag" not in field.metadata
    }
    return with_unknown_tag(type(entity))(**values, unknown=data)


def without_tags(entity: Any) -> Any:
    """The entity with every tagged field at its default."""
    if isinstance(entity, tuple):
        return tuple(without_tags(item) for item in entity)
    if not dataclasses.is_dataclass(entity):
        return entity
    values = {
        field.name: without_tags(getattr(entity, field.name))
        for field in dataclasses.fields(entity)
        if "tag" not in field.metadata
    }
    return type(entity)(**values)
