# SPDX-License-Identifier: Apache-2.0
"""Messages of Kafka's protocol as plain Python values: fields by name, topics with their partitions, groups.

Knows no API by name. Read next: received.py, error_replies.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from headrace.wire.kio_codec.schema import FieldSpec, fields_of

TopicName = Callable[[UUID], str | None]
"""The name of a topic by its id; None when there is no such topic."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_PARTITION = ("partition_index", "partition", "index")


def field_specs(message: Any) -> tuple[FieldSpec, ...]:
    """Of a message or a structure in it; none of a plain value."""
    kind: Any = type(message)
    return fields_of(kind) if hasattr(message, "__dataclass_fields__") else ()


def plain_fields(message: Any) -> dict[str, Any]:
    """Lists and dicts of plain values; durations and times are milliseconds."""
    return {spec.name: _plain(getattr(message, spec.name)) for spec in field_specs(message)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    return plain_fields(value) if hasattr(value, "__dataclass_fields__") else value


def topics_of(message: Any, name_of: TopicName) -> dict[str, tuple[int, ...]]:
    """The topics that a request names, with the partitions that it names of each."""
    found: dict[str, set[int]] = {}
    for topic, partitions in _named(message, name_of):
        found.setdefault(topic, set()).update(partitions)
    return {topic: tuple(sorted(partitions)) for topic, partitions in found.items()}


def _named(message: Any, name_of: TopicName) -> Iterator[tuple[str, list[int]]]:
    for spec in field_specs(message):
        if not spec.is_array or spec.name.startswith("forgotten"):
            continue
        for item in getattr(message, spec.name) or ():
            if spec.struct is None:
                if spec.name == "topic_names":
                    yield item, []
            elif "topic" in spec.name:
                yield _topic_name(item, name_of), list(_partitions(item))
            else:
                yield from _named(item, name_of)  # of groups and transactions


def _topic_name(item: Any, name_of: TopicName) -> str:
    name = getattr(item, "name", None) or getattr(item, "topic", None)
    topic_id = getattr(item, "topic_id", None)
    if name is None and topic_id is not None:
        name = name_of(topic_id) or str(topic_id)
    return name or ""


def _partitions(item: Any) -> Iterator[int]:
    for spec in field_specs(item):
        if spec.is_array and spec.name.startswith("partition"):
            for each in getattr(item, spec.name) or ():
                yield each if spec.struct is None else _number(each, fields_of(spec.struct))


def _number(partition: Any, specs: tuple[FieldSpec, ...]) -> int:
    names = {spec.name for spec in specs}
    return next((int(getattr(partition, name)) for name in _PARTITION if name in names), -1)


def first_value(message: Any, name: str) -> Any:
    """Of the first field with this name, here or in a list: `group_id` of any request of groups."""
    for spec in field_specs(message):
        value = getattr(message, spec.name)
        if spec.name == name or spec.name == f"v3_and_below_{name}":
            return value
        if spec.struct is not None and spec.is_array and value and "topic" not in spec.name:
            found = first_value(value[0], name)
            if found is not None:
                return found
    return None
