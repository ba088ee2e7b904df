# SPDX-License-Identifier: Apache-2.0
"""JoinGroup and SyncGroup in straight code: all members of a group send both in every rebalance.

Tests compare it with the general codec (messages.py). Knows no groups.
Read next: broker/handlers/group_members.py, machines/groups/events.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

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
    read_uvarint,
    skip_tagged_fields,
    string,
    uvarint,
)
from headrace.wire.request_bounds import max_items

_JOIN_FLEXIBLE_FROM, _SYNC_FLEXIBLE_FROM = 6, 4
_REBALANCE_TIMEOUT_FROM, _JOIN_THROTTLE_FROM, _JOIN_INSTANCE_FROM = 1, 2, 5
_JOIN_TYPE_FROM, _REASON_FROM, _SKIP_FROM = 7, 8, 9
_SYNC_THROTTLE_FROM, _SYNC_INSTANCE_FROM, _SYNC_TYPE_FROM = 1, 3, 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_ERROR_AND_GENERATION = struct.Struct(">hi")
_REPLY_HEADER = _TWO_INT32
"""Length and correlation id."""
_NO_THROTTLE = bytes(4)
_NO_TAGS = b"\0"

NamedBytes = tuple[tuple[str, bytes], ...]
"""Pairs of a name and opaque bytes: protocols of a member, or shares of members."""


class JoinGroupRequest(NamedTuple):
    """`rebalance_timeout_ms`: None in version 0."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int | None
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: NamedBytes
    reason: str | None


class SyncGroupRequest(NamedTuple):
    """`protocol_type` and `protocol`: None before version 5."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: NamedBytes


def read_join_group(version: int, view: memoryview, position: int, end: int) -> JoinGroupRequest:
    """DecodeError when the bytes are not what they claim to be."""
    try:
        return _read_join(version, view[:end], position, end)
    except MALFORMED as error:
        raise DecodeError(f"malformed join_group request, version {version}: {error}") from None


def read_sync_group(version: int, view: memoryview, position: int, end: int) -> SyncGroupRequest:
    """DecodeError when the bytes are not what they claim to be."""
    try:
        return _read_sync(version, view[:end], position, end)
    except MALFORMED as error:
        raise DecodeError(f"malformed sync_group request, version {version}: {error}") from None


def _read_join(version: int, view: memoryview, position: int, end: int) -> JoinGroupRequest:
    flexible = version >= _JOIN_FLEXIBLE_FROM
    text = read_compact_string if flexible else read_string
    group_id, position = text(view, position, end)
    rebalance_ms: int | None = None
    if version >= _REBALANCE_TIMEOUT_FROM:
        session_ms, rebalance_ms = _TWO_INT32.unpack_from(view, position)
        position += _TWO_INT32.size
    else:
        (session_ms,) = _INT32.unpack_from(view, position)
        position += _INT32.size
    member_id, position = text(view, position, end)
    instance_id = reason = None
    if version >= _JOIN_INSTANCE_FROM:
        instance_id, position = text(view, position, end)
    protocol_type, position = text(view, position, end)
    if group_id is None or member_id is None or protocol_type is None:
        raise DecodeError("a group id, member id or protocol type that is null")
    protocols, position = _read_named_bytes(ApiKey.JOIN_GROUP, flexible, view, position, end)
    if version >= _REASON_FROM:
        reason, position = text(view, position, end)
    if flexible:
        skip_tagged_fields(view, position, end)
    return JoinGroupRequest(
        group_id, session_ms, rebalance_ms, member_id, instance_id, protocol_type, protocols, reason
    )


def _read_sync(version: int, view: memoryview, position: int, end: int) -> SyncGroupRequest:
    flexible = version >= _SYNC_FLEXIBLE_FROM
    text = read_compact_string if flexible else read_string
    group_id, position = text(view, position, end)
    (generation,) = _INT32.unpack_from(view, position)
    member_id, position = text(view, position + _INT32.size, end)
    if group_id is None or member_id is None:
        raise DecodeError("a group id or member id that is null")
    instance_id = protocol_type = protocol = None
    if version >= _SYNC_INSTANCE_FROM:
        instance_id, position = text(view, position, end)
    if version >= _SYNC_TYPE_FROM:
        protocol_type, position = text(view, position, end)
        protocol, position = text(view, position, end)
    assignments, position = _read_named_bytes(ApiKey.SYNC_GROUP, flexible, view, position, end)
    if flexible:
        skip_tagged_fields(view, position, end)
    return SyncGroupRequest(
        group_id, generation, member_id, instance_id, protocol_type, protocol, assignments
    )


def _read_named_bytes(
    api_key: int, flexible: bool, view: memoryview, position: int, end: int
) -> tuple[NamedBytes, int]:
    count, position = (read_compact_count if flexible else read_count)(view, position, end)
    if not count:  # all members but the leader send no assignments
        return (), position
    Budget(max_items(api_key)).spend(count)
    text, found = read_compact_string if flexible else read_string, []
    for _ in range(count):
        name, position = text(view, position, end)
        if flexible:
            length, position = read_uvarint(view, position)
            length -= 1
        else:
            (length,) = _INT32.unpack_from(view, position)
            position += _INT32.size
        stop = position + length
        if name is None or length < 0 or stop > end:
            raise DecodeError(f"{length} bytes of {name!r} announced, {end - position} left")
        found.append((name, bytes(view[position:stop])))
        position = skip_tagged_fields(view, stop, end) if flexible else stop
    return tuple(found), position


def write_join_group_reply(
    version: int,
    correlation_id: int,
    *,
    error: int,
    generation: int,
    protocol_type: str | None,
    protocol: str | None,
    leader: str,
    skip_assignment: bool,
    member_id: str,
    members: Iterable[tuple[str, str | None, bytes]],
) -> bytes:
    """The whole frame; `members`: id, group instance id and metadata. Before version 7 a missing protocol is
    the empty one."""
    flexible = version >= _JOIN_FLEXIBLE_FROM
    text = compact_string if flexible else string
    parts = [_NO_TAGS] if flexible else []  # of the header
    if version >= _JOIN_THROTTLE_FROM:
        parts.append(_NO_THROTTLE)
    parts.append(_ERROR_AND_GENERATION.pack(error, generation))
    if version >= _JOIN_TYPE_FROM:
        parts += text(protocol_type), text(protocol), text(leader)
    else:
        parts += text(protocol or ""), text(leader)
    if version >= _SKIP_FROM:
        parts.append(b"\1" if skip_assignment else b"\0")
    parts.append(text(member_id))
    listed = list(members)
    parts.append(uvarint(len(listed) + 1) if flexible else _INT32.pack(len(listed)))
    for each_id, instance_id, metadata in listed:
        parts.append(text(each_id))
        if version >= _JOIN_INSTANCE_FROM:
            parts.append(text(instance_id))
        parts += _length(metadata, flexible), metadata
        if flexible:
            parts.append(_NO_TAGS)
    if flexible:
        parts.append(_NO_TAGS)
    return _frame(correlation_id, parts)


def write_sync_group_reply(
    version: int,
    correlation_id: int,
    *,
    error: int,
    protocol_type: str | None,
    protocol: str | None,
    assignment: bytes,
) -> bytes:
    """The whole frame."""
    flexible = version >= _SYNC_FLEXIBLE_FROM
    parts = [_NO_TAGS] if flexible else []  # of the header
    if version >= _SYNC_THROTTLE_FROM:
        parts.append(_NO_THROTTLE)
    parts.append(_INT16.pack(error))
    if version >= _SYNC_TYPE_FROM:
        parts += compact_string(protocol_type), compact_string(protocol)
    parts += _length(assignment, flexible), assignment
    if flexible:
        parts.append(_NO_TAGS)
    return _frame(correlation_id, parts)


def _length(data: bytes, flexible: bool) -> bytes:
    return uvarint(len(data) + 1) if flexible else _INT32.pack(len(data))


def _frame(correlation_id: int, parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    return _REPLY_HEADER.pack(len(body) + 4, correlation_id) + body
