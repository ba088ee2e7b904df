# SPDX-License-Identifier: Apache-2.0
"""Produce requests and replies, versions 3 to 13, written by hand for speed.

Reads only as far as each partition's record bytes and never copies them. Bytes after the body are ignored,
as Kafka does. tests/property/wire compares it with kio.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
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
    read_uvarint,
    skip_tagged_fields,
    string,
    uvarint,
)
from headrace.wire.requests.topic_entries import (
    MAX_PARTITIONS_PER_PRODUCE,
    REPLY_HEADER,
    NodeEndpoint,
    node_endpoint_tags,
    read_topic,
    spend,
)

_new = tuple.__new__
_NO_RECORDS: Mapping[int, str | None] = MappingProxyType({})
_INT32 = struct.Struct(">i")
_INDEX_AND_SIZE = struct.Struct(">ii")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_unpack_acks_and_timeout = _ACKS_AND_TIMEOUT.unpack_from
_unpack_index_and_size = struct.Struct(">iBB").unpack_from
"""A partition's index and the first two bytes of the length of its records, which are seldom fewer."""


class ProducePartition(NamedTuple):
    """The record bytes of a partition are [start, end) of the frame; equal when null or empty."""

    index: int  # type: ignore[assignment]  # hides tuple.index on purpose
    start: int
    end: int


class ProduceTopic(NamedTuple):
    """Versions to 12 name the topic, later ones give its id; the other is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProduceResult(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index on purpose
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    refused_records: Mapping[int, str | None] = _NO_RECORDS
    """Positions in the batch of the records in error, each with a message; None: that of the whole batch."""


def read_produce(view: memoryview, position: int, end: int, version: int) -> ProduceRequest:
    """The request body in [position, end) of `view`. DecodeError on anything malformed."""
    if not 3 <= version <= 13:
        raise DecodeError(f"Produce version {version} is not read")
    try:
        if version >= 9:
            return _read_produce_flexible(view[:end], position, end, version >= 13)
        return _read_produce_legacy(view[:end], position, end)
    except MALFORMED as error:
        raise DecodeError(f"malformed Produce request: {error}") from None


def _read_produce_flexible(view: memoryview, position: int, end: int, by_id: bool) -> ProduceRequest:
    transactional_id = None
    if view[position]:
        transactional_id, position = read_compact_string(view, position, end)
    else:
        position += 1
    acks, timeout_ms = _unpack_acks_and_timeout(view, position)
    topic_count, position = read_compact_count(view, position + 6, end)
    topics = []
    budget = MAX_PARTITIONS_PER_PRODUCE
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, end, by_id)
        partition_count, position = read_compact_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        partitions = []
        for _ in range(partition_count):
            index, size, more = _unpack_index_and_size(view, position)
            if size < 0x80:
                start = position + 5
            elif more < 0x80:
                size, start = size & 0x7F | more << 7, position + 6
            else:
                size, start = read_uvarint(view, position + 4)
            stop = start + size - 1 if size else start
            if stop > end:
                raise DecodeError(f"records of {size - 1} bytes, {end - start} left")
            partitions.append(_new(ProducePartition, (index, start, stop)))
            position = stop + 1 if not view[stop] else skip_tagged_fields(view, stop, end)
        position = position + 1 if not view[position] else skip_tagged_fields(view, position, end)
        topics.append(_new(ProduceTopic, (name, topic_id, partitions)))
    if view[position]:
        skip_tagged_fields(view, position, end)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _read_produce_legacy(view: memoryview, position: int, end: int) -> ProduceRequest:
    transactional_id, position = read_string(view, position, end)
    acks, timeout_ms = _unpack_acks_and_timeout(view, position)
    topic_count, position = read_count(view, position + 6, end)
    topics = []
    budget = MAX_PARTITIONS_PER_PRODUCE
    for _ in range(topic_count):
        name, position = read_string(view, position, end)
        if name is None:
            raise DecodeError("topic name may not be null")
        partition_count, position = read_count(view, position, end)
        budget = spend(budget, partition_count + 1)
        partitions = []
        for _ in range(partition_count):
            index, size = _INDEX_AND_SIZE.unpack_from(view, position)
            start = position + 8
            position = start + size if size > 0 else start
            if position > end:
                raise DecodeError(f"records of {size} bytes, {end - start} left")
            partitions.append(_new(ProducePartition, (index, start, position)))
        topics.append(_new(ProduceTopic, (name, None, partitions)))
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


_PRODUCE_V3 = struct.Struct(">ihqq")
_PRODUCE_V5 = struct.Struct(">ihqqq")
_PRODUCE_V9_PLAIN = struct.Struct(">ihqqqBBB")
_LEADER_TAGS = struct.Struct(">BBBiiB")


def write_produce_reply(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | None, UUID | None, Sequence[ProduceResult]]],
    *,
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole frame. Leader hints and node endpoints are left out before version 10."""
    if version < 9:
        return _write_produce_legacy(version, correlation_id, topics, throttle_ms)
    parts = [b"", uvarint(len(topics) + 1)]
    for name, topic_id, results in topics:
        parts.append(compact_string(name) if version < 13 else (topic_id or NO_TOPIC_ID).bytes)
        parts.append(uvarint(len(results) + 1))
        for result in results:
            index, error_code, base_offset, append_time, start_offset, message, leader_id, epoch, refused = (
                result
            )
            if message is None and not refused and (leader_id < 0 or version < 10):
                # No record errors (1), null message (0), no tagged fields (0).
                parts.append(
                    _PRODUCE_V9_PLAIN.pack(index, error_code, base_offset, append_time, start_offset, 1, 0, 0)
                )
                continue
            parts.append(_PRODUCE_V5.pack(index, error_code, base_offset, append_time, start_offset))
            text = compact_string(message)
            parts.append(uvarint(len(refused) + 1))
            for place, own in refused.items():
                parts.append(_INT32.pack(place) + (text if own is None else compact_string(own)) + b"\0")
            parts.append(text)
            hint = leader_id >= 0 and version >= 10
            parts.append(_LEADER_TAGS.pack(1, 0, 9, leader_id, epoch, 0) if hint else b"\0")
        parts.append(b"\0")
    parts.append(_INT32.pack(throttle_ms))
    parts.append(node_endpoint_tags(node_endpoints) if node_endpoints and version >= 10 else b"\0")
    body = b"".join(parts)
    return REPLY_HEADER.pack(len(body) + 5, correlation_id) + b"\0" + body


def _write_produce_legacy(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str | None, UUID | None, Sequence[ProduceResult]]],
    throttle_ms: int,
) -> bytes:
    parts = [_INT32.pack(len(topics))]
    for name, _topic_id, results in topics:
        parts.append(string(name))
        parts.append(_INT32.pack(len(results)))
        for result in results:
            if version < 5:
                parts.append(_PRODUCE_V3.pack(*result[:4]))
                continue
            parts.append(_PRODUCE_V5.pack(*result[:5]))
            if version >= 8:
                text = string(result.error_message)
                parts.append(_INT32.pack(len(result.refused_records)))
                for place, own in result.refused_records.items():
                    parts.append(_INT32.pack(place) + (text if own is None else string(own)))
                parts.append(text)
    parts.append(_INT32.pack(throttle_ms))
    body = b"".join(parts)
    return REPLY_HEADER.pack(len(body) + 4, correlation_id) + body
