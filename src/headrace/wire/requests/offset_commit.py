# SPDX-License-Identifier: Apache-2.0
"""OffsetCommit requests and replies without an object for every partition: consumers send them all the time.

Tests compare it with the general codec (messages.py). Knows no groups.
Read next: offset_commit_codec.py, broker/handlers/group_offsets.py.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headrace.errors import DecodeError
from headrace.wire.api_key import ApiKey
from headrace.wire.kio_codec.decoder import Budget
from headrace.wire.primitives import (
    MALFORMED,
    compact_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tagged_fields,
    string,
    uuid_from_bytes,
    uvarint,
)
from headrace.wire.request_bounds import max_items

_FLEXIBLE_FROM, _IDS_FROM, _INSTANCE_FROM, _EPOCH_FROM = 8, 10, 7, 6
_RETENTION_BEFORE, _THROTTLE_FROM = 5, 3
_NO_EPOCH = -1
_NO_ID = bytes(16)

_new = tuple.__new__
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_PLACE = struct.Struct(">iqi")  # partition, offset, leader epoch
_OLD_PLACE = struct.Struct(">iq")
_RESULT = struct.Struct(">ih")
_FLEXIBLE_RESULT = struct.Struct(">ihx")
_REPLY_HEADER = struct.Struct(">ii")


class CommitTopic(NamedTuple):
    """By name, or by id from version 10 on; partitions with their metadata."""

    name: str
    topic_id: uuid.UUID | None
    partitions: list[tuple[int, str | None]]


class CommitTopics(list[CommitTopic]):
    """The topics of a request. Requests that repeat them share the object and what is stored in it."""

    __slots__ = ("_accepted", "resolved")

    def __init__(self, topics: Iterable[CommitTopic] = ()) -> None:
        super().__init__(topics)
        self.resolved: Any = None
        """For the handler."""
        self._accepted: tuple[int, bytes] = (-1, b"")

    def accepted_reply(self, version: int, correlation_id: int) -> bytes:
        """The whole frame of the reply without errors."""
        known, frame = self._accepted
        if known != version:
            count = sum(len(topic.partitions) for topic in self)
            frame = write_offset_commit_reply(version, 0, self, [0] * count)
            self._accepted = version, frame
        return b"".join((frame[:4], _INT32.pack(correlation_id), frame[8:]))


class OffsetCommitRequest(NamedTuple):
    """`offsets` and `leader_epochs`: of the partitions of all topics in turn."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    """-1: the broker's."""
    topics: CommitTopics
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]

    def with_positions(self, offsets: tuple[int, ...], leader_epochs: tuple[int, ...]) -> OffsetCommitRequest:
        return _new(OffsetCommitRequest, (*self[:-2], offsets, leader_epochs))

    def same_partitions(self, other: OffsetCommitRequest) -> bool:
        return self[:-2] == other[:-2]


def read_offset_commit(version: int, view: memoryview, position: int, end: int) -> OffsetCommitRequest:
    """DecodeError when the bytes are not what they claim to be."""
    try:
        return _read(version, view[:end], position, end)
    except MALFORMED as error:
        raise DecodeError(f"malformed offset_commit request, version {version}: {error}") from None


def _read(version: int, view: memoryview, position: int, end: int) -> OffsetCommitRequest:
    text = read_compact_string if version >= _FLEXIBLE_FROM else read_string
    group_id, position = text(view, position, end)
    (generation,) = _INT32.unpack_from(view, position)
    member_id, position = text(view, position + 4, end)
    if group_id is None or member_id is None:
        raise DecodeError("a group id or member id that is null")
    instance_id, retention_ms = None, -1
    if version >= _INSTANCE_FROM:
        instance_id, position = text(view, position, end)
    elif version < _RETENTION_BEFORE:
        (retention_ms,) = _INT64.unpack_from(view, position)
        position += 8
    budget = Budget(max_items(ApiKey.OFFSET_COMMIT))
    count, position = _count(version, view, position, end, budget)
    topics = CommitTopics()
    offsets: list[int] = []
    epochs: list[int] = []
    for _ in range(count):
        topic, position = _read_topic(version, view, position, end, budget, offsets, epochs)
        topics.append(topic)
    if version >= _FLEXIBLE_FROM:
        skip_tagged_fields(view, position, end)
    return OffsetCommitRequest(
        group_id, generation, member_id, instance_id, retention_ms, topics, tuple(offsets), tuple(epochs)
    )


def _count(version: int, view: memoryview, position: int, end: int, budget: Budget) -> tuple[int, int]:
    read = read_compact_count if version >= _FLEXIBLE_FROM else read_count
    count, position = read(view, position, end)
    budget.spend(count)
    return count, position


def _read_topic(
    version: int,
    view: memoryview,
    position: int,
    end: int,
    budget: Budget,
    offsets: list[int],
    epochs: list[int],
) -> tuple[CommitTopic, int]:
    name: str | None = ""
    topic_id = None
    if version >= _IDS_FROM:
        raw = bytes(view[position : position + 16])
        if len(raw) < 16:
            raise DecodeError("uuid is cut off")
        topic_id = None if raw == _NO_ID else uuid_from_bytes(raw)
        position += 16
    else:
        text = read_compact_string if version >= _FLEXIBLE_FROM else read_string
        name, position = text(view, position, end)
    if name is None:
        raise DecodeError("a topic name that is null")
    count, position = _count(version, view, position, end, budget)
    if version < _FLEXIBLE_FROM:
        partitions, position = _read_old_offsets(version, count, view, position, end, offsets, epochs)
        return CommitTopic(name, topic_id, partitions), position
    partitions, position = _read_offsets(count, view, position, end, offsets, epochs)
    return CommitTopic(name, topic_id, partitions), skip_tagged_fields(view, position, end)


def _read_offsets(
    count: int, view: memoryview, position: int, end: int, offsets: list[int], epochs: list[int]
) -> tuple[list[tuple[int, str | None]], int]:
    partitions: list[tuple[int, str | None]] = []
    unpack, size = _PLACE.unpack_from, _PLACE.size
    for _ in range(count):
        partition, offset, epoch = unpack(view, position)
        position += size
        if view[position] == 1:  # most consumers send no metadata
            metadata: str | None = ""
            position += 1
        else:
            metadata, position = read_compact_string(view, position, end)
        if view[position]:
            position = skip_tagged_fields(view, position, end)
        else:
            position += 1
        partitions.append((partition, metadata))
        offsets.append(offset)
        epochs.append(epoch)
    return partitions, position


def _read_old_offsets(
    version: int,
    count: int,
    view: memoryview,
    position: int,
    end: int,
    offsets: list[int],
    epochs: list[int],
) -> tuple[list[tuple[int, str | None]], int]:
    partitions: list[tuple[int, str | None]] = []
    for _ in range(count):
        epoch = _NO_EPOCH
        if version >= _EPOCH_FROM:
            partition, offset, epoch = _PLACE.unpack_from(view, position)
            position += _PLACE.size
        else:
            partition, offset = _OLD_PLACE.unpack_from(view, position)
            position += _OLD_PLACE.size
        metadata, position = read_string(view, position, end)
        partitions.append((partition, metadata))
        offsets.append(offset)
        epochs.append(epoch)
    return partitions, position


def write_offset_commit_reply(
    version: int, correlation_id: int, topics: Sequence[CommitTopic], codes: Iterable[int]
) -> bytes:
    """The whole frame; `codes` for every partition of the request, in its order."""
    flexible = version >= _FLEXIBLE_FROM
    parts = [b"\0"] if flexible else []  # tags of the header
    if version >= _THROTTLE_FROM:
        parts.append(bytes(4))
    parts.append(_array_length(len(topics), flexible))
    remaining = iter(codes)
    for topic in topics:
        parts += _topic_result(version, topic, remaining, flexible)
    if flexible:
        parts.append(b"\0")
    body = b"".join(parts)
    return _REPLY_HEADER.pack(len(body) + 4, correlation_id) + body


def _topic_result(version: int, topic: CommitTopic, codes: Iterator[int], flexible: bool) -> Iterator[bytes]:
    if version >= _IDS_FROM:
        yield _NO_ID if topic.topic_id is None else topic.topic_id.bytes
    else:
        yield compact_string(topic.name) if flexible else string(topic.name)
    yield _array_length(len(topic.partitions), flexible)
    pack = (_FLEXIBLE_RESULT if flexible else _RESULT).pack
    for partition, _ in topic.partitions:
        yield pack(partition, next(codes))
    if flexible:
        yield b"\0"


def _array_length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)
