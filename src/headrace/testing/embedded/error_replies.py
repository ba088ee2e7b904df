"""The reply that says one error for everything that a request asks for.

A reply has the shape of its request: for each list in the reply there is one in the request whose items have
the same identity (topic, partition, group). So one walk over both makes the reply of almost every API.
Read next: client_link.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from headrace.wire.api_table import APIS
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.schema import message_class
from headrace.wire.messages import encode_reply

_SAME = {"index": "partition_index", "partition": "partition_index", "topic": "name", "id": "name"}
"""Field names that mean the same in requests and replies of one API."""
_IDENTITY = ("name", "topic_id", "partition_index", "group_id", "key", "resource_name", "resource_type")


def error_reply(api_key: int, version: int, correlation_id: int, request: Any, error: ErrorCode) -> bytes:
    """The whole frame. Raises ValueError when the reply of this API has no place for an error."""
    reply = message_class(APIS[api_key].name, version, "response")
    fields = _mirror(request, reply, error)
    if not _has_error(fields):
        raise ValueError(f"the reply of {APIS[api_key].name} version {version} cannot carry an error")
    return encode_reply(api_key, version, correlation_id, fields)


def _mirror(request: Any, reply: type, error: ErrorCode) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, kind in _types(reply).items():
        item = _item_class(kind)
        if name == "error_code":
            fields[name] = error
        elif item is not None:
            fields[name] = [_mirror(each, item, error) for each in _items_like(request, item)]
        elif (found := _value(request, name)) is not None:
            fields[name] = found
    return fields


def _items_like(request: Any, item: type) -> Iterable[Any]:
    """The list of the request whose items have the identity of this item of the reply."""
    wanted = {_canonical(name) for name in _types(item)}.intersection(_IDENTITY)
    fields = _fields(request) if wanted else {}
    for name, kind in fields.items():
        inner = _item_class(kind)
        if inner is not None and wanted & {_canonical(each) for each in _types(inner)}:
            return tuple(getattr(request, name) or ())
    for name, kind in fields.items():
        if get_origin(kind) is tuple and _item_class(kind) is None:
            return tuple(getattr(request, name) or ())  # of plain names, as in DeleteGroups
    return ()


def _value(request: Any, name: str) -> Any:
    canonical = _canonical(name)
    if canonical not in _IDENTITY:
        return None
    fields = _fields(request)
    if not fields:
        return request  # a plain name
    return next((getattr(request, each) for each in fields if _canonical(each) == canonical), None)


def _fields(request: Any) -> dict[str, Any]:
    message: type[Any] = type(request)
    return _types(message) if dataclasses.is_dataclass(message) else {}


def _canonical(name: str) -> str:
    return _SAME.get(name, name)


@cache
def _types(message: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(message)
    return {field.name: hints[field.name] for field in dataclasses.fields(message)}


def _item_class(kind: Any) -> type | None:
    """Of a list of structures."""
    for each in (kind, *get_args(kind)):
        if get_origin(each) is tuple:
            inner: Sequence[Any] = get_args(each)
            if inner and dataclasses.is_dataclass(inner[0]):
                return inner[0] if isinstance(inner[0], type) else None
    return None


def _has_error(fields: dict[str, Any]) -> bool:
    lists = (value for value in fields.values() if isinstance(value, list))
    return "error_code" in fields or any(_has_error(each) for items in lists for each in items)
