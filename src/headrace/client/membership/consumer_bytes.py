"""What members of a classic group tell each other through the broker: subscriptions and assignments.

Written in version 3, read in any. Reading an assignment: ../group_calls.py. Pure; read next: classic.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.assignors.subscriptions import NO_GENERATION
from headrace.errors import DecodeError

_VERSION = 3
_HAS_OWNED, _HAS_GENERATION = 1, 2
_NO_RACK = struct.pack(">h", -1)
_NO_USER_DATA = struct.pack(">i", -1)


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: Mapping[str, Sequence[int]]
    generation: int
    """In which generation the member came to own these."""


def encode_subscription(subscription: Subscription) -> bytes:
    """Readers of version 1 find the generation where the cooperative assignor used to put it."""
    topics = [_text(topic) for topic in subscription.topics]
    generation = struct.pack(">i", subscription.generation)
    user_data = struct.pack(">i", len(generation)) + generation
    return (
        struct.pack(">hi", _VERSION, len(topics))
        + b"".join(topics)
        + user_data
        + _topic_partitions(subscription.owned)
        + generation
        + _NO_RACK
    )


def encode_assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    return struct.pack(">h", _VERSION) + _topic_partitions(partitions) + _NO_USER_DATA


def decode_subscription(data: bytes) -> Subscription:
    """DecodeError for bytes of somebody else's making."""
    reader = _Reader(data)
    try:
        version = reader.number(">h")
        topics = tuple(reader.text() for _ in range(reader.count()))
        user_data = reader.take(max(reader.number(">i"), 0))
        owned = reader.topic_partitions() if version >= _HAS_OWNED else {}
        if version >= _HAS_GENERATION:
            generation = reader.number(">i")
        else:
            generation = struct.unpack(">i", user_data)[0] if len(user_data) == 4 else NO_GENERATION
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"a subscription that cannot be read: {error}") from error
    return Subscription(topics, owned, generation)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise struct.error(f"{size} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def count(self) -> int:
        """Of items, each of which takes two bytes or more."""
        found = self.number(">i")
        if found > (len(self._data) - self._position) // 2:
            raise struct.error(f"{found} items in {len(self._data) - self._position} bytes")
        return max(found, 0)

    def text(self) -> str:
        return self.take(max(self.number(">h"), 0)).decode()

    def topic_partitions(self) -> dict[str, list[int]]:
        return {self.text(): [self.number(">i") for _ in range(self.count())] for _ in range(self.count())}


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _topic_partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    entries = [
        _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in partitions.items()
    ]
    return struct.pack(">i", len(entries)) + b"".join(entries)
