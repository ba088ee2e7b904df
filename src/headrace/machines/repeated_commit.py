"""Commits of the same partitions by the same consumer, one after the other: only positions change.

What they share is made once (`CommitPlaces`); one event and one record stand for all partitions of a commit.
The record's bytes are those of the single records that it stands for, which is what a load finds in the log.
Read next: offsets.py (who decides and applies), broker/commit_run.py (who sees that commits are repeated).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any

from headrace.machines.group_events import OffsetCommit, OffsetCommitReply
from headrace.machines.group_records import (
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetCommitRecord,
    offset_commit_frame,
)
from headrace.machines.machine import Event, Record, ReplyToken
from headrace.wire.error_codes import ErrorCode
from headrace.wire.primitives import varint

_ONE_BYTE_BELOW, _TWO_BYTES_BELOW = 64, 8192
"""Numbers of records whose signed varint is one byte, or two, long."""
_NUMBERS = tuple(varint(number) for number in range(_TWO_BYTES_BELOW))


class CommitPlaces:
    """The partitions that a commit names, and what its records are but for the positions."""

    __slots__ = ("_notes", "_templates", "_topic_ids", "accepted", "by_topic", "first", "where")

    def __init__(self, group_id: str, first: OffsetCommit) -> None:
        """`first` came the usual way and was accepted whole; not transactional, without its own retention."""
        offsets = first.offsets
        self.first = first
        self.where = tuple((each.topic, each.partition) for each in offsets)
        self.accepted = OffsetCommitReply(errors=(ErrorCode.none,) * len(offsets))
        self.by_topic = tuple(
            (topic, tuple(partition for _, partition in group))
            for topic, group in groupby(self.where, key=lambda place: place[0])
        )
        self._notes = tuple(each.metadata or "" for each in offsets)
        self._topic_ids = tuple(each.topic_id for each in offsets)
        frames = [
            offset_commit_frame(group_id, topic, partition, note, topic_id)
            for (topic, partition), note, topic_id in zip(
                self.where, self._notes, self._topic_ids, strict=True
            )
        ]
        self._templates = {width: _Template(frames, width) for width in (1, 2)}

    def values(self, record: RepeatedCommitRecord) -> Iterator[tuple[Any, ...]]:
        """The fields of a CommittedOffset for each place."""
        times, never = repeat(record.commit_timestamp), repeat(NO_TIMESTAMP)
        offsets, epochs = record.offsets, record.leader_epochs
        return zip(offsets, epochs, self._notes, times, never, self._topic_ids, strict=False)

    def pack(self, record: RepeatedCommitRecord, number: int) -> bytes | None:
        """The records as they stand in a batch, the first with this number in it.

        None where numbers of different length follow each other, or long ones: rare, and told one by one.
        """
        end = number + len(self.where)
        if end <= _ONE_BYTE_BELOW:
            width = 1
        elif number >= _ONE_BYTE_BELOW and end <= _TWO_BYTES_BELOW:
            width = 2
        else:
            return None
        return self._templates[width].pack(_NUMBERS[number:end], record)


class _Template:
    """Fields of the records in turn: what is fixed, number, key, offset, epoch, note, time; then the end."""

    __slots__ = ("_fields", "_pack")

    def __init__(self, frames: list[tuple[bytes, bytes, bytes]], width: int) -> None:
        fields: list[Any] = []
        layout = ">"
        before = b""
        for key, note, tail in frames:
            size = 2 + width + len(key) + 12 + len(note) + 8 + len(tail)
            before += varint(size) + b"\0\0"  # no attributes, the batch's timestamp
            layout += f"{len(before)}s{width}s{len(key)}sqi{len(note)}sq"
            fields += (before, b"", key, 0, 0, note, 0)
            before = tail
        self._fields = [*fields, before]
        self._pack = struct.Struct(f"{layout}{len(before)}s").pack

    def pack(self, numbers: tuple[bytes, ...], record: RepeatedCommitRecord) -> bytes:
        fields = self._fields.copy()
        fields[1::7] = numbers
        fields[3::7] = record.offsets
        fields[4::7] = record.leader_epochs
        fields[6::7] = [record.commit_timestamp] * len(numbers)
        return self._pack(*fields)


@dataclass(frozen=True, slots=True)
class RepeatedCommit(Event):
    """`places.first` again, with these positions."""

    token: ReplyToken
    places: CommitPlaces
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepeatedCommitRecord(Record):
    """Stands for an OffsetCommitRecord of each place."""

    group_id: str
    places: CommitPlaces
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    commit_timestamp: int

    def each(self) -> Iterator[OffsetCommitRecord]:
        for (topic, partition), value in zip(self.places.where, self.places.values(self), strict=True):
            yield OffsetCommitRecord(self.group_id, topic, partition, CommittedOffset._make(value))
