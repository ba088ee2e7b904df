# SPDX-License-Identifier: Apache-2.0
"""OffsetFetch replies in straight code: every consumer asks for its offsets when it is assigned partitions.

Takes the same fields as the general codec (messages.py), which tests compare it with, but all of them must be
there. Read next: write_reply.py, broker/handlers/group_offsets.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.wire.primitives import compact_string, string, uvarint

_ERROR_FROM, _THROTTLE_FROM, _EPOCH_FROM, _FLEXIBLE_FROM = 2, 3, 5, 6
_GROUPS_FROM, _IDS_FROM = 8, 10
_NO_ID = bytes(16)
_NO_TAGS = b"\0"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PLACE = struct.Struct(">iqi")  # partition, offset, leader epoch
_OLD_PLACE = struct.Struct(">iq")
_ERROR = struct.Struct(">hx")  # and no tags
_REPLY_HEADER = struct.Struct(">ii")

Fields = Mapping[str, Any]


def write_offset_fetch_reply(version: int, correlation_id: int, fields: Fields) -> bytes:
    """The whole frame. `throttle_time` may be left out; it is 0 then."""
    flexible = version >= _FLEXIBLE_FROM
    parts = [_NO_TAGS] if flexible else []  # of the header
    if version >= _THROTTLE_FROM:
        parts.append(_INT32.pack(fields.get("throttle_time", 0)))
    if version >= _GROUPS_FROM:
        parts.append(_count(fields["groups"], flexible))
        for group in fields["groups"]:
            parts.append(compact_string(group["group_id"]))
            _add_topics(parts, version, group["topics"])
            parts.append(_ERROR.pack(group["error_code"]))
    else:
        _add_topics(parts, version, fields["topics"])
        if version >= _ERROR_FROM:
            parts.append(_INT16.pack(fields["error_code"]))
    if flexible:
        parts.append(_NO_TAGS)
    body = b"".join(parts)
    return _REPLY_HEADER.pack(len(body) + 4, correlation_id) + body


def _add_topics(parts: list[bytes], version: int, topics: Sequence[Fields]) -> None:
    flexible = version >= _FLEXIBLE_FROM
    text = compact_string if flexible else string
    parts.append(_count(topics, flexible))
    for topic in topics:
        if version >= _IDS_FROM:
            topic_id = topic["topic_id"]
            parts.append(_NO_ID if topic_id is None else topic_id.bytes)
        else:
            parts.append(text(topic["name"]))
        parts.append(_count(topic["partitions"], flexible))
        if flexible:
            for each in topic["partitions"]:
                parts += _place(each), compact_string(each["metadata"]), _ERROR.pack(each["error_code"])
            parts.append(_NO_TAGS)
        else:
            place = _place if version >= _EPOCH_FROM else _old_place
            for each in topic["partitions"]:
                parts += place(each), string(each["metadata"]), _INT16.pack(each["error_code"])


def _place(each: Fields) -> bytes:
    return _PLACE.pack(each["partition_index"], each["committed_offset"], each["committed_leader_epoch"])


def _old_place(each: Fields) -> bytes:
    return _OLD_PLACE.pack(each["partition_index"], each["committed_offset"])


def _count(items: Sequence[Any], flexible: bool) -> bytes:
    return uvarint(len(items) + 1) if flexible else _INT32.pack(len(items))
