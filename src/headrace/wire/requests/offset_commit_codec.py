# SPDX-License-Identifier: Apache-2.0
"""Decodes the OffsetCommit requests of one connection; a consumer's differ only in offsets and epochs.

When two in a row name the same partitions, later ones are recognised by comparing what they have in common,
and share the `topics` object of the second. A client that encodes the same fields in other bytes is never
recognised, and decoded the usual way. Read next: offset_commit.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader
from headrace.wire.primitives import compact_string, string, uvarint
from headrace.wire.requests.offset_commit import OffsetCommitRequest, read_offset_commit

_OLDEST = 7
"""Older requests have other fields, and few clients send them."""
_FLEXIBLE_FROM, _IDS_FROM = 8, 10
_MOST_BYTES = 16 * 1024
_HEAD = struct.Struct(">hh")  # key, version
_INT32 = struct.Struct(">i")


class CommitShape:
    """Reads a frame that differs from `request` in offsets and epochs only, in one go."""

    __slots__ = ("_fixed", "_head", "_request", "_unpack", "size")

    def __init__(self, fixed: list[bytes], version: int, request: OffsetCommitRequest) -> None:
        """`fixed`: what stands before, between and after the positions, from the client id on."""
        self._request = request
        layout = struct.Struct(f">4s4x{'qi'.join(f'{len(part)}s' for part in fixed)}")
        self.size = layout.size
        self._unpack = layout.unpack_from
        self._head = _HEAD.pack(ApiKey.OFFSET_COMMIT, version)
        self._fixed = tuple(fixed)

    @classmethod
    def of(cls, version: int, client_id: str | None, request: OffsetCommitRequest) -> CommitShape | None:
        """None where recognition is not worth it."""
        if version < _OLDEST:
            return None
        shape = cls(list(_fixed_parts(version, client_id, request)), version, request)
        return shape if shape.size <= _MOST_BYTES else None

    def read(self, view: memoryview, start: int, end: int) -> OffsetCommitRequest | None:
        """None for a frame (without its length) of another shape."""
        if end - start != self.size:
            return None
        found = self._unpack(view, start)
        if found[0] != self._head or found[1::3] != self._fixed:
            return None
        return self._request.with_positions(found[2::3], found[3::3])


class OffsetCommitCodec:
    """Holds the last request of one connection."""

    __slots__ = ("_last", "_last_header", "_shape")

    def __init__(self) -> None:
        self._last: OffsetCommitRequest | None = None
        self._last_header: tuple[int, str | None] = (-1, None)
        self._shape: CommitShape | None = None

    def recognise(self, _version: int, view: memoryview, start: int, end: int) -> OffsetCommitRequest | None:
        """The request of the frame view[start:end], if only offsets and epochs differ from the last one."""
        return None if self._shape is None else self._shape.read(view, start, end)

    def decode(self, header: RequestHeader, view: memoryview, _start: int, end: int) -> OffsetCommitRequest:
        """DecodeError as read_offset_commit."""
        request = read_offset_commit(header.api_version, view, header.body_position, end)
        about = header.api_version, header.client_id
        last, self._last = self._last, request
        if last is not None and about == self._last_header and request.same_partitions(last):
            self._shape = CommitShape.of(header.api_version, header.client_id, request)
        else:
            self._last_header, self._shape = about, None
        return request


def _fixed_parts(version: int, client_id: str | None, request: OffsetCommitRequest) -> Iterator[bytes]:
    flexible = version >= _FLEXIBLE_FROM
    text, end = (compact_string, b"\0") if flexible else (string, b"")
    before = b"".join(
        (
            string(client_id),
            end,  # tags of the header
            text(request.group_id),
            _INT32.pack(request.generation),
            text(request.member_id),
            text(request.instance_id),
            _count(len(request.topics), flexible),
        )
    )
    for topic in request.topics:
        named = topic.topic_id.bytes if version >= _IDS_FROM and topic.topic_id else text(topic.name)
        before += named + _count(len(topic.partitions), flexible)
        for partition, metadata in topic.partitions:
            yield before + _INT32.pack(partition)
            before = text(metadata) + end
        before += end
    yield before + end


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)
