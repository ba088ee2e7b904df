"""OffsetCommit requests of one consumer that differ only in their positions, as they come all day long.

What they have in common is compared, not read again. Made from a request that was read; a client that writes
the same fields in other bytes is never recognised, and read the usual way. Knows no groups.
Read next: offset_commit.py (the usual way), broker/commit_run.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace.wire.error_codes import ErrorCode
from headrace.wire.offset_commit import OFFSET_COMMIT_KEY, AskedCommit, AskedTopic, write_offset_commit_reply
from headrace.wire.primitives import compact_string, string, uvarint

_OLDEST = 7
"""Older requests have other fields, and few clients send them."""
_FLEXIBLE_FROM, _IDS_FROM = 8, 10
_MOST_BYTES = 16 * 1024
_HEAD = struct.Struct(">ihh")  # length of the frame, key, version
_INT32 = struct.Struct(">i")
_CORRELATION_AT = 4


class Positions(NamedTuple):
    correlation_id: int
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]


class CommitShape:
    """Reads a frame of this shape in one go; writes the reply to it when all was accepted."""

    __slots__ = ("_fixed", "_head", "_reply", "_unpack", "size")

    def __init__(self, fixed: list[bytes], version: int, topics: list[AskedTopic]) -> None:
        """`fixed`: what stands before, between and after the positions, from the client id on."""
        layout = struct.Struct(f">8si{'qi'.join(f'{len(part)}s' for part in fixed)}")
        self.size = layout.size
        self._unpack = layout.unpack_from
        self._head = _HEAD.pack(layout.size - 4, OFFSET_COMMIT_KEY, version)
        self._fixed = tuple(fixed)
        count = sum(len(topic.offsets) for topic in topics)
        self._reply = write_offset_commit_reply(version, 0, topics, [ErrorCode.none] * count)

    @classmethod
    def of(cls, version: int, client_id: str | None, request: AskedCommit) -> CommitShape | None:
        """None where it would not be worth the while."""
        if version < _OLDEST:
            return None
        shape = cls(list(_fixed_parts(version, client_id, request)), version, request.topics)
        return shape if shape.size <= _MOST_BYTES else None

    def read(self, view: memoryview, position: int, end: int) -> Positions | None:
        """None for a frame of another shape, or one that is not whole."""
        if end - position < self.size:
            return None
        found = self._unpack(view, position)
        if found[0] != self._head or found[2::3] != self._fixed:
            return None
        return Positions(found[1], found[3::3], found[4::3])

    def accepted(self, correlation_id: int) -> bytes:
        reply = self._reply
        return reply[:_CORRELATION_AT] + _INT32.pack(correlation_id) + reply[_CORRELATION_AT + 4 :]


def _fixed_parts(version: int, client_id: str | None, request: AskedCommit) -> Iterator[bytes]:
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
        before += named + _count(len(topic.offsets), flexible)
        for partition, _, _, note in topic.offsets:
            yield before + _INT32.pack(partition)
            before = text(note) + end
        before += end
    yield before + end


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)
