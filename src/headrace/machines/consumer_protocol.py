"""What the classic `consumer` protocol puts into its opaque bytes: topics subscribed to, partitions assigned.

A classic group reads them only to say what it subscribes to and what a rebalance moved; there the bytes pass
through untouched. A KIP-848 group reads and writes them for its members of the classic protocol. Newer
versions are read as the newest known one, as clients do. Read next: group_classic.py, consumer_classic.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.machines.record_bytes import Reader, int16, int32, plain_array, string
from headrace.wire.primitives import MALFORMED

PROTOCOL_TYPE = "consumer"

HAS_OWNED, HAS_GENERATION, HAS_RACK = 1, 2, 3
NEWEST_VERSION = 3

_NO_USER_DATA = int32(-1)


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    """What the member says it still holds; nothing before version 1."""
    rack_id: str | None


class AssignedBytes(NamedTuple):
    partitions: Mapping[str, tuple[int, ...]]
    has_user_data: bool
    """The assignor sends its members something of its own."""


def read_subscription(metadata: bytes) -> Subscription | None:
    """None for bytes of somebody else's making."""
    try:
        return _subscription(Reader(metadata))
    except (DecodeError, *MALFORMED):
        return None


def _subscription(reader: Reader) -> Subscription:
    version = _version(reader)
    topics = reader.array(_text, compact=False)
    reader.nullable_bytes()
    owned = reader.array(_topic_partitions, compact=False) if version >= HAS_OWNED else ()
    if version >= HAS_GENERATION:
        reader.int32()
    rack_id = reader.nullable_string(compact=False) if version >= HAS_RACK else None
    return Subscription(topics, dict(owned), rack_id or None)


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return version


def read_assignment(assignment: bytes) -> AssignedBytes | None:
    """None for bytes of somebody else's making; no bytes at all are an assignment of nothing."""
    if not assignment:
        return AssignedBytes({}, has_user_data=False)
    try:
        reader = Reader(assignment)
        _version(reader)
        partitions = dict(reader.array(_topic_partitions, compact=False))
        return AssignedBytes(partitions, has_user_data=bool(reader.nullable_bytes()))
    except (DecodeError, *MALFORMED):
        return None


def encode_assignment(partitions: Mapping[str, Sequence[int]], *, like: bytes) -> bytes:
    """In the version that the member's subscription, `like`, is written in."""
    version = min(max(int.from_bytes(like[:2], "big", signed=True), 0), NEWEST_VERSION)
    topics = [
        string(name) + plain_array([int32(number) for number in numbers])
        for name, numbers in partitions.items()
    ]
    return int16(version) + plain_array(topics) + _NO_USER_DATA


def _text(reader: Reader) -> str:
    return reader.string(compact=False)


@lru_cache(maxsize=1024)
def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a member's subscription, or None for bytes of somebody else's making.

    Members of a group mostly send the same bytes, again at every rebalance.
    """
    try:
        reader = Reader(metadata)
        reader.int16()
        return frozenset(reader.array(_text, compact=False))
    except (DecodeError, *MALFORMED):
        return None


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; empty for an empty assignment and for bytes of somebody else's making."""
    try:
        reader = Reader(assignment)
        reader.int16()
        return dict(reader.array(_topic_partitions, compact=False))
    except (DecodeError, *MALFORMED):
        return {}


def _topic_partitions(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(compact=False), reader.int32s()
