# SPDX-License-Identifier: Apache-2.0
"""Fetch as followers speak it, version 16: requests written and replies read by hand, records left in place.

The leader reads and answers with fetch.py; tests/property/wire compares the two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.errors import DecodeError
from headrace.wire.primitives import (
    MALFORMED,
    read_compact_count,
    read_tagged_fields,
    read_uvarint,
    skip_tagged_fields,
    uuid_from_bytes,
    uvarint,
)

REPLICA_FETCH_VERSION = 16

_FIXED = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
_REPLICA_STATE_TAG = struct.Struct(">BBiqB")
_REPLY = struct.Struct(">ihi")
_RESULT = struct.Struct(">ihqqq")
_DIVERGING = struct.Struct(">iq")
_NO_SESSION, _SESSIONLESS = 0, -1
_ABORTED_SIZE, _PREFERRED_SIZE = 17, 4


class ReplicaQuestion(NamedTuple):
    """As FetchPartition of fetch.py."""

    index: int  # type: ignore[assignment]  # hides tuple.index on purpose
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    max_bytes: int


class ReplicaAnswer(NamedTuple):
    error_code: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None
    records: memoryview


def write_replica_fetch(
    node: int,
    node_epoch: int,
    topics: Iterable[tuple[UUID, Sequence[ReplicaQuestion]]],
    *,
    max_wait_ms: int,
    max_bytes: int,
) -> bytes:
    """All that follows the client id in the request's frame."""
    out = bytearray(b"\0")
    out += _FIXED.pack(max_wait_ms, 1, max_bytes, 0, _NO_SESSION, _SESSIONLESS)
    listed = list(topics)
    out += uvarint(len(listed) + 1)
    for topic_id, questions in listed:
        out += topic_id.bytes
        out += uvarint(len(questions) + 1)
        for question in questions:
            out += _PARTITION.pack(*question, 0)
        out.append(0)
    out += b"\1\1\1"  # nothing forgotten, no rack, one tagged field
    out += _REPLICA_STATE_TAG.pack(1, _REPLICA_STATE_TAG.size - 2, node, node_epoch, 0)
    return bytes(out)


def read_replica_fetch_reply(frame: memoryview) -> tuple[int, dict[tuple[UUID, int], ReplicaAnswer]]:
    """(error code of the whole, answers by topic and partition) of a frame without its length."""
    try:
        return _read_reply(frame)
    except MALFORMED as error:
        raise DecodeError(f"malformed Fetch reply: {error}") from None


def _read_reply(view: memoryview) -> tuple[int, dict[tuple[UUID, int], ReplicaAnswer]]:
    end = len(view)
    position = skip_tagged_fields(view, 4, end)
    _, error_code, _ = _REPLY.unpack_from(view, position)
    position += _REPLY.size
    answers: dict[tuple[UUID, int], ReplicaAnswer] = {}
    topic_count, position = read_compact_count(view, position, end)
    for _ in range(topic_count):
        if position + 16 > end:
            raise DecodeError("a topic id is cut off")
        topic_id = uuid_from_bytes(bytes(view[position : position + 16]))
        position += 16
        count, position = read_compact_count(view, position, end)
        for _ in range(count):
            index, answer, position = _read_answer(view, position, end)
            answers[topic_id, index] = answer
        position = skip_tagged_fields(view, position, end)
    return error_code, answers


def _read_answer(view: memoryview, position: int, end: int) -> tuple[int, ReplicaAnswer, int]:
    index, error_code, high_watermark, _, log_start = _RESULT.unpack_from(view, position)
    position += _RESULT.size
    aborted, position = read_uvarint(view, position)
    position += max(aborted - 1, 0) * _ABORTED_SIZE + _PREFERRED_SIZE
    size, position = read_uvarint(view, position)
    stop = position + max(size - 1, 0)
    if stop > end:
        raise DecodeError(f"records of {size - 1} bytes, {end - position} left")
    records, position = view[position:stop], stop
    diverging = None
    if view[position]:
        tags, position = read_tagged_fields(view, position, end)
        if 0 in tags:
            epoch, end_offset = _DIVERGING.unpack_from(view, tags[0][0])
            diverging = (epoch, end_offset)
    else:
        position += 1
    return index, ReplicaAnswer(error_code, high_watermark, log_start, diverging, records), position
