# SPDX-License-Identifier: Apache-2.0
"""The classic `consumer` protocol: subscriptions and assignments in the opaque bytes of group requests.

Members encode and decode them. A broker decodes them to describe classic groups, and encodes assignments for
classic members of a KIP-848 group. Written in version 3 unless the member speaks an older one; versions newer
than 3 are decoded as version 3, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.wire.fields import Reader, int16, int32, plain_array, plain_bytes, string
from headrace.wire.primitives import MALFORMED

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
NEWEST_VERSION = 3

_OWNED_FROM, _GENERATION_FROM, _RACK_FROM = 1, 2, 3
_NO_USER_DATA = int32(-1)
_NO_RACK = int16(-1)


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]]
    """Partitions that the member still owns; empty before version 1."""
    generation: int = NO_GENERATION
    """The generation in which the member came to own them."""
    rack_id: str | None = None


class Assignment(NamedTuple):
    partitions: Mapping[str, tuple[int, ...]]
    has_user_data: bool


def encode_subscription(subscription: Subscription) -> bytes:
    """In version 3, without a rack. The generation stands also in the user data, where the cooperative
    assignor of version 1 looks for it."""
    generation = int32(subscription.generation)
    return b"".join(
        (
            int16(NEWEST_VERSION),
            plain_array([string(topic) for topic in subscription.topics]),
            plain_bytes(generation),
            _topics_bytes(subscription.owned),
            generation,
            _NO_RACK,
        )
    )


def decode_subscription(metadata: bytes) -> Subscription:
    """DecodeError for bytes of another protocol."""
    try:
        return _subscription(Reader(metadata))
    except MALFORMED as error:
        raise DecodeError(f"malformed subscription: {error}") from error


def encode_assignment(partitions: Mapping[str, Sequence[int]], *, version: int = NEWEST_VERSION) -> bytes:
    return int16(version) + _topics_bytes(partitions) + _NO_USER_DATA


def decode_assignment(assignment: bytes) -> Assignment:
    """No bytes are an assignment of nothing. DecodeError for bytes of another protocol."""
    if not assignment:
        return Assignment({}, has_user_data=False)
    try:
        reader = Reader(assignment)
        _version(reader)
        partitions = _partitions(reader)
        return Assignment(partitions, has_user_data=bool(reader.nullable_bytes()))
    except MALFORMED as error:
        raise DecodeError(f"malformed assignment: {error}") from error


def assignment_version(metadata: bytes) -> int:
    """The version for a member's assignment: that of its subscription, up to the newest."""
    return min(max(int.from_bytes(metadata[:2], "big", signed=True), 0), NEWEST_VERSION)


@lru_cache(maxsize=1024)
def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a member's subscription, None for bytes of another protocol.

    Cached: members of a group mostly send the same bytes, again at every rebalance.
    """
    try:
        reader = Reader(metadata)
        reader.int16()
        return frozenset(reader.array(_text, compact=False))
    except (DecodeError, *MALFORMED):
        return None


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; empty for an empty assignment and for bytes of another protocol."""
    try:
        reader = Reader(assignment)
        reader.int16()
        return _partitions(reader)
    except (DecodeError, *MALFORMED):
        return {}


def _subscription(reader: Reader) -> Subscription:
    version = _version(reader)
    topics = reader.array(_text, compact=False)
    user_data = reader.nullable_bytes()
    owned = _partitions(reader) if version >= _OWNED_FROM else {}
    if version >= _GENERATION_FROM:
        generation = reader.int32()
    else:
        generation = Reader(user_data).int32() if user_data and len(user_data) == 4 else NO_GENERATION
    rack_id = reader.nullable_string(compact=False) if version >= _RACK_FROM else None
    return Subscription(topics, owned, generation, rack_id or None)


def _version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return version


def _partitions(reader: Reader) -> dict[str, tuple[int, ...]]:
    """A topic may come more than once."""
    return _merged(reader.array(_topic_partitions, compact=False))


def _merged(entries: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in entries:
        found[topic] = found.get(topic, ()) + partitions
    return found


def _text(reader: Reader) -> str:
    return reader.string(compact=False)


def _topic_partitions(reader: Reader) -> tuple[str, tuple[int, ...]]:
    return reader.string(compact=False), reader.int32s()


def _topics_bytes(partitions: Mapping[str, Sequence[int]]) -> bytes:
    return plain_array(
        [
            string(topic) + plain_array([int32(number) for number in numbers])
            for topic, numbers in partitions.items()
        ]
    )
