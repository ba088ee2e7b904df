# SPDX-License-Identifier: Apache-2.0
"""Fetch requests and replies, versions 4 to 18, written by hand for speed.

A reply comes in chunks, so that records go from file to socket without passing through here. Bytes after the
body are ignored, as Kafka does. tests/property/wire compares it with kio.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.errors import DecodeError
from headrace.types import NO_TOPIC_ID
from headrace.wire.primitives import (
    MALFORMED,
    compact_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    read_tagged_fields,
    skip_tagged_fields,
    string,
    uvarint,
)
from headrace.wire.requests.topic_entries import (
    MAX_PARTITIONS_PER_REQUEST,
    REPLY_HEADER,
    NodeEndpoint,
    node_endpoint_tags,
    read_topic,
    spend,
)

_new = tuple.__new__
_INT32 = struct.Struct(">i")

Forgotten = list[tuple[str | None, UUID | None, list[int]]]
"""Partitions that leave a fetch session: name or id of the topic, indexes."""


class FetchPartition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index on purpose
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: Forgotten
    rack_id: str
    cluster_id: str | None


class FetchResult(NamedTuple):
    """`size` bytes of records follow in the reply. `diverging` is (epoch, end offset)."""

    index: int  # type: ignore[assignment]  # hides tuple.index on purpose
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None
    preferred_read_replica: int = -1
    size: int = 0
    leader_id: int = -1
    leader_epoch: int = -1
    diverging: tuple[int, int] | None = None


_FETCH_V4 = struct.Struct(">iiiib")
_FETCH_V7 = struct.Struct(">iiiibii")
_FETCH_V15 = struct.Struct(">iiibii")
_FETCH_PARTITION_V4 = struct.Struct(">iqi")
_FETCH_PARTITION_V5 = struct.Struct(">iqqi")
_FETCH_PARTITION_V9 = struct.Struct(">iiqqi")
_FETCH_PARTITION_V12 = struct.Struct(">iiqiqi")
_REPLICA_STATE = struct.Struct(">iq")


def read_fetch(view: memoryview, position: int, end: int, version: int) -> FetchRequest:
    """The request body in [position, end) of `view`. DecodeError on anything malformed."""
    if not 4 <= version <= 18:
        raise DecodeError(f"Fetch version {version} is not read")
    try:
        if version >= 12:
            return _read_fetch_flexible(view[:end], position, end, version)
        return _read_fetch_legacy(view[:end], position, end, version)
    except MALFORMED as error:
        raise DecodeError(f"malformed Fetch request: {error}") from None


def _read_fetch_flexible(view: memoryview, position: int, end: int, version: int) -> FetchRequest:
    replica_id = replica_epoch = -1
    if version < 15:
        replica_id, *fixed = _FETCH_V7.unpack_from(view, position)
        position += _FETCH_V7.size
    else:
        fixed = list(_FETCH_V15.unpack_from(view, position))
        position += _FETCH_V15.size
    by_id = version >= 13
    topics, position = _read_fetch_topics_flexible(view, position, end, by_id)
    forgotten: Forgotten = []
    if view[position] == 1:  # none
        position += 1
    else:
        forgotten, position = _read_forgotten_flexible(view, position, end, by_id)
    rack_id, position = read_compact_string(view, position, end)
    if rack_id is None:
        raise DecodeError("rack id may not be null")
    cluster_id = None
    if view[position]:
        tags, position = read_tagged_fields(view, position, end)
        if 0 in tags:
            cluster_id, _ = read_compact_string(view, *tags[0])
        if 1 in tags and version >= 15:
            replica_id, replica_epoch = _read_replica_state(view, *tags[1])
    return _new(FetchRequest, (replica_id, replica_epoch, *fixed, topics, forgotten, rack_id, cluster_id))


def _read_fetch_topics_flexible(
    view: memoryview, position: int, end: int, by_id: bool
) -> tuple[list[FetchTopic], int]:
    topic_count, position = read_compact_count(view, position, end)
    topics = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, end, by_id)
        partition_count, position = read_compact_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        partitions = []
        for _ in range(partition_count):
            partitions.append(_new(FetchPartition, _FETCH_PARTITION_V12.unpack_from(view, position)))
            position += 32
            position = position + 1 if not view[position] else skip_tagged_fields(view, position, end)
        position = position + 1 if not view[position] else skip_tagged_fields(view, position, end)
        topics.append(_new(FetchTopic, (name, topic_id, partitions)))
    return topics, position


def _read_forgotten_flexible(view: memoryview, position: int, end: int, by_id: bool) -> tuple[Forgotten, int]:
    topic_count, position = read_compact_count(view, position, end)
    forgotten = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, end, by_id)
        partition_count, position = read_compact_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        indexes, position = _read_int32s(view, position, end, partition_count)
        position = skip_tagged_fields(view, position, end)
        forgotten.append((name, topic_id, indexes))
    return forgotten, position


def _read_int32s(view: memoryview, position: int, end: int, count: int) -> tuple[list[int], int]:
    if count * 4 > end - position:
        raise DecodeError(f"{count} partition indexes in {end - position} bytes")
    return list(struct.unpack_from(f">{count}i", view, position)), position + count * 4


def _read_replica_state(view: memoryview, start: int, end: int) -> tuple[int, int]:
    if end - start < _REPLICA_STATE.size:
        raise DecodeError("replica state is cut off")
    replica_id, replica_epoch = _REPLICA_STATE.unpack_from(view, start)
    return replica_id, replica_epoch


def _read_fetch_legacy(view: memoryview, position: int, end: int, version: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, *fixed, session_id, session_epoch = _FETCH_V7.unpack_from(view, position)
        position += _FETCH_V7.size
    else:
        replica_id, *fixed = _FETCH_V4.unpack_from(view, position)
        position += _FETCH_V4.size
    topics, position = _read_fetch_topics_legacy(view, position, end, version)
    forgotten: Forgotten = []
    if version >= 7:
        forgotten, position = _read_forgotten_legacy(view, position, end)
    rack_id: str | None = ""
    if version >= 11:
        rack_id, position = read_string(view, position, end)
        if rack_id is None:
            raise DecodeError("rack id may not be null")
    values = (replica_id, -1, *fixed, session_id, session_epoch, topics, forgotten, rack_id, None)
    return _new(FetchRequest, values)


def _read_fetch_topics_legacy(
    view: memoryview, position: int, end: int, version: int
) -> tuple[list[FetchTopic], int]:
    topic_count, position = read_count(view, position, end)
    topics = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for _ in range(topic_count):
        name, position = _read_name_legacy(view, position, end)
        partition_count, position = read_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        partitions = []
        for _ in range(partition_count):
            partition, position = _read_fetch_partition_legacy(view, position, version)
            partitions.append(partition)
        topics.append(FetchTopic(name, None, partitions))
    return topics, position


def _read_fetch_partition_legacy(view: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    epoch = start_offset = -1
    if version >= 9:
        index, epoch, offset, start_offset, max_bytes = _FETCH_PARTITION_V9.unpack_from(view, position)
        position += 28
    elif version >= 5:
        index, offset, start_offset, max_bytes = _FETCH_PARTITION_V5.unpack_from(view, position)
        position += 24
    else:
        index, offset, max_bytes = _FETCH_PARTITION_V4.unpack_from(view, position)
        position += 16
    return FetchPartition(index, epoch, offset, -1, start_offset, max_bytes), position


def _read_name_legacy(view: memoryview, position: int, end: int) -> tuple[str, int]:
    name, position = read_string(view, position, end)
    if name is None:
        raise DecodeError("topic name may not be null")
    return name, position


def _read_forgotten_legacy(view: memoryview, position: int, end: int) -> tuple[Forgotten, int]:
    topic_count, position = read_count(view, position, end)
    forgotten: Forgotten = []
    budget = MAX_PARTITIONS_PER_REQUEST
    for _ in range(topic_count):
        name, position = _read_name_legacy(view, position, end)
        partition_count, position = read_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        indexes, position = _read_int32s(view, position, end, partition_count)
        forgotten.append((name, None, indexes))
    return forgotten, position


_FETCH_RESULT_V4 = struct.Struct(">ihqq")
_FETCH_RESULT_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqB")
_DIVERGING_TAG = struct.Struct(">BBiqB")
_LEADER_TAG = struct.Struct(">BBiiB")
_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")


def write_fetch_reply(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[str | None, UUID | None, Sequence[FetchResult]]],
    *,
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes]:
    """The frame in chunks: the records of the i-th result with size > 0 go between chunk i and i + 1.

    The frame's length counts those records. Fields that an older version lacks are left out.
    """
    flexible = version >= 12
    chunks: list[bytes] = []
    out = bytearray(REPLY_HEADER.pack(0, correlation_id))
    if flexible:
        out.append(0)
    if version >= 7:
        out += _THROTTLE_ERROR_SESSION.pack(throttle_ms, error_code, session_id)
    else:
        out += _INT32.pack(throttle_ms)
    out += uvarint(len(topics) + 1) if flexible else _INT32.pack(len(topics))
    total = 0
    for name, topic_id, results in topics:
        if flexible:
            out += compact_string(name) if version < 13 else (topic_id or NO_TOPIC_ID).bytes
            out += uvarint(len(results) + 1)
        else:
            out += string(name) + _INT32.pack(len(results))
        for result in results:
            out += _fetch_result_flexible(result) if flexible else _fetch_result_legacy(version, result)
            if result.size > 0:
                chunks.append(bytes(out))
                total += len(out) + result.size
                out = bytearray()
            if flexible:
                out += _fetch_result_tags(result)
        if flexible:
            out.append(0)
    if flexible:
        out += node_endpoint_tags(node_endpoints) if node_endpoints and version >= 16 else b"\0"
    chunks.append(bytes(out))
    chunks[0] = _INT32.pack(total + len(out) - 4) + chunks[0][4:]
    return chunks


def _fetch_result_flexible(result: FetchResult) -> bytes:
    """Everything before the records, their length included."""
    head = _FETCH_RESULT_V5.pack(*result[:5])
    aborted = result.aborted
    if aborted is None:
        head += b"\0"
    else:
        head += uvarint(len(aborted) + 1)
        head += b"".join([_ABORTED_FLEXIBLE.pack(producer, first, 0) for producer, first in aborted])
    return head + _INT32.pack(result.preferred_read_replica) + uvarint(result.size + 1)


def _fetch_result_tags(result: FetchResult) -> bytes:
    """Tag 0: the diverging epoch. Tag 1: the current leader."""
    if result.diverging is None:
        if result.leader_id < 0:
            return b"\0"
        return b"\1" + _LEADER_TAG.pack(1, 9, result.leader_id, result.leader_epoch, 0)
    diverging = _DIVERGING_TAG.pack(0, 13, *result.diverging, 0)
    if result.leader_id < 0:
        return b"\1" + diverging
    return b"\2" + diverging + _LEADER_TAG.pack(1, 9, result.leader_id, result.leader_epoch, 0)


def _fetch_result_legacy(version: int, result: FetchResult) -> bytes:
    head = _FETCH_RESULT_V5.pack(*result[:5]) if version >= 5 else _FETCH_RESULT_V4.pack(*result[:4])
    aborted = result.aborted
    if aborted is None:
        head += b"\xff\xff\xff\xff"
    else:
        head += _INT32.pack(len(aborted))
        head += b"".join([_ABORTED.pack(producer, first) for producer, first in aborted])
    if version >= 11:
        head += _INT32.pack(result.preferred_read_replica)
    return head + _INT32.pack(result.size)
