# SPDX-License-Identifier: Apache-2.0
"""Well-formed requests with hostile values: extreme numbers, empty and overlong names, unknown ids.

Built from kio's description of each message, for every API and version. The choices come from a `Random`,
so that Hypothesis shrinks them and a seed repeats them. Read next: frames.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from headrace.wire.api_table import APIS
from headrace.wire.kio_codec.schema import FieldSpec, fields_of, message_class
from headrace.wire.messages import encode_request
from headrace.wire.records import Record, build_batch

EVERY_VERSION = [(api.key.value, version) for api in APIS.values() for version in api.accepted]
NAMES = (
    "t", "t", "t", "g", "", ".", "..", "../t", "a" * 249, "a" * 250, "x" * 5000, "with space", "nul\0", "\n",
    "ümlaut", "__consumer_offsets", "__headrace_events", "0", "1", "-1", "retention.ms",
    "min.insync.replicas", "cleanup.policy", "range", "uniform", "consumer", "99999999999999999999", "\ud7ff",
    "[a-z]*", "(((((((((",
)  # fmt: skip
"""Topic `t` exists; the others are names of other things, or of nothing."""
IDS = (None, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1), uuid.UUID(int=0xABCDEF))
BITS = {
    "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "timedelta_i32": 32, "timedelta_i64": 64, "datetime_i64": 64, "error_code": 7,
}  # fmt: skip
_NO_WAIT = frozenset({"max_wait", "timeout", "rebalance_timeout", "session_timeout"})
"""Seldom long, since the answer may wait as long."""


def hostile_request(key: int, version: int, chance: Random, *, correlation_id: int = 1) -> bytes:
    """A whole frame."""
    client = chance.choice(("fuzz", None, "", "c" * 300))
    return encode_request(key, version, correlation_id, client, hostile_fields(key, version, chance))


def hostile_fields(key: int, version: int, chance: Random) -> dict[str, Any]:
    return _struct(message_class(APIS[key].name, version, "request"), chance, 0)


def _struct(cls: Any, chance: Random, depth: int) -> dict[str, Any]:
    return {spec.name: _field(spec, chance, depth) for spec in fields_of(cls) if chance.random() < 0.97}


def _field(spec: FieldSpec, chance: Random, depth: int) -> Any:
    if spec.is_array:
        return _array(spec, chance, depth)
    if spec.nullable and spec.struct is None and chance.random() < 0.15:
        return None if spec.kind != "datetime_i64" else -1
    return _value(spec, chance, depth)


def _array(spec: FieldSpec, chance: Random, depth: int) -> Sequence[Any] | None:
    if spec.nullable and chance.random() < 0.1:
        return None
    items = [_value(spec, chance, depth + 1) for _ in range(chance.choice((0, 1, 1, 1, 2, 3)))]
    if items and chance.random() < 0.1:
        items += items[:1] * chance.choice((1, 20 if depth else 200))
    return items


def _value(spec: FieldSpec, chance: Random, depth: int) -> Any:
    if spec.struct is not None:
        return _struct(spec.struct, chance, depth)
    if spec.kind in BITS:
        return _number(spec, chance)
    if spec.kind == "bool":
        return chance.random() < 0.5
    if spec.kind == "string":
        return chance.choice(NAMES)
    if spec.kind == "uuid":
        return chance.choice(IDS)
    if spec.kind in ("uint16", "uint32"):
        return chance.choice((0, 1, 2 ** (16 if spec.kind == "uint16" else 32) - 1))
    if spec.kind == "float64":
        return chance.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
    return chance.choice(_blobs())


def _number(spec: FieldSpec, chance: Random) -> int:
    edge = 1 << (BITS[spec.kind] - 1)
    if spec.name in _NO_WAIT and chance.random() < 0.9:
        return chance.choice((0, 1, 100))
    if chance.random() < 0.6:
        return chance.choice((-1, 0, 0, 0, 1, 2, 3))
    return chance.choice((-edge, -edge + 1, -2, edge - 1, edge - 2, chance.randrange(-edge, edge)))


@cache
def _blobs() -> tuple[bytes, ...]:
    """What stands in fields of bytes: records, subscriptions, nothing."""
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    return (
        batch,
        batch,
        b"",
        b"\0",
        b"\xff" * 8,
        batch[:-1],
        batch + batch,
        b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff",
    )


def plain_fields(key: int) -> Mapping[str, Any]:
    """A sound request with something in its arrays, so that damage reaches the inner structures."""
    return _PLAIN.get(key, {})


_TOPIC = {
    "name": "t",
    "num_partitions": 1,
    "replication_factor": 1,
    "configs": [{"name": "retention.ms", "value": "1"}],
}

_PLAIN: dict[int, Mapping[str, Any]] = {
    2: {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
    1: {"topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0}]}], "session_epoch": -1},
    3: {"topics": [{"name": "t"}]},
    8: {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "topics": [
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}],
            }
        ],
    },
    9: {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}]},
    10: {"key": "g", "key_type": 0},
    11: {
        "group_id": "g",
        "session_timeout": 6000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"}],
    },
    12: {"group_id": "g", "member_id": "m", "generation_id": 1},
    13: {"group_id": "g", "member_id": "m"},
    14: {
        "group_id": "g",
        "member_id": "m",
        "generation_id": 1,
        "assignments": [{"member_id": "m", "assignment": b"\0\1\0\0\0\0"}],
    },
    15: {"groups": ["g", "h"]},
    19: {"topics": [_TOPIC], "validate_only": True},
    68: {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    },
}
