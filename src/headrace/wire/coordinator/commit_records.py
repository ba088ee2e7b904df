# SPDX-License-Identifier: Apache-2.0
"""The offset records of one OffsetCommit request as one value.

A consumer commits the same partitions after every poll: only offsets, epochs and time change. What its
records have in common is encoded once, from the second commit on (`CommitPartitions`); the bytes are those of
single records, which a load finds in the log.
Read next: group_records.py (single records), machines/groups/offsets.py (emits and applies them).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any
from uuid import UUID

from headrace.types import NO_TOPIC_ID
from headrace.wire.coordinator.group_records import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    CommittedOffset,
    OffsetCommitRecord,
    offset_commit_frame,
)
from headrace.wire.coordinator.record import BatchProducer, CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.wire.primitives import varint

_ONE_BYTE_BELOW, _TWO_BYTES_BELOW = 64, 8192
"""Numbers of records whose signed varint is one byte, or two, long."""
_NUMBERS = tuple(varint(number) for number in range(_TWO_BYTES_BELOW))

Partition = tuple[str, int, str | None, UUID]
"""Topic, partition, metadata, topic id."""


class CommitPartitions:
    """The partitions of a commit with their metadata; shared by commits that differ in offsets only."""

    __slots__ = (
        "_templates",
        "_used",
        "by_topic",
        "has_metadata",
        "metadata",
        "names",
        "no_errors",
        "topic_ids",
    )

    def __init__(self, partitions: Iterable[Partition]) -> None:
        listed = list(partitions)
        self.names = tuple([(topic, partition) for topic, partition, _, _ in listed])
        self.metadata = tuple([text or "" for _, _, text, _ in listed])
        self.has_metadata = any(self.metadata)
        self.topic_ids = tuple([topic_id for _, _, _, topic_id in listed])
        self.no_errors = (ErrorCode.none,) * len(listed)
        self.by_topic = tuple(
            (topic, tuple(partition for _, partition in group))
            for topic, group in groupby(self.names, key=lambda name: name[0])
        )
        self._used = False
        self._templates: dict[int, _Template] = {}

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, places: Iterable[int]) -> CommitPartitions:
        return CommitPartitions(
            [(*self.names[place], self.metadata[place], self.topic_ids[place]) for place in places]
        )

    def pack(self, record: OffsetCommitsRecord, number: int) -> bytes | None:
        """All records as they stand in a batch, the first with this number in it.

        None for the first commit, and where numbers of different length follow each other, or long ones.
        """
        end = number + len(self.names)
        if not self._used:
            self._used = True
            return None
        if end <= _ONE_BYTE_BELOW:
            width = 1
        elif number >= _ONE_BYTE_BELOW and end <= _TWO_BYTES_BELOW:
            width = 2
        else:
            return None
        template = self._templates.get(width)
        if template is None:
            template = self._templates[width] = self._template(record.group_id, width)
        return template.pack(_NUMBERS[number:end], record)

    def _template(self, group_id: str, width: int) -> _Template:
        frames = [
            offset_commit_frame(group_id, topic, partition, text, topic_id)
            for (topic, partition), text, topic_id in zip(
                self.names, self.metadata, self.topic_ids, strict=True
            )
        ]
        return _Template(frames, width)


class _Template:
    """Fields of each record: fixed bytes, number, key, offset, epoch, metadata, time; at last the end."""

    __slots__ = ("_fields", "_pack")

    def __init__(self, frames: list[tuple[bytes, bytes, bytes]], width: int) -> None:
        fields: list[Any] = []
        layout = ">"
        before = b""
        for key, text, tail in frames:
            size = 2 + width + len(key) + 12 + len(text) + 8 + len(tail)
            before += varint(size) + b"\0\0"  # no attributes, the batch's timestamp
            layout += f"{len(before)}s{width}s{len(key)}sqi{len(text)}sq"
            fields += (before, b"", key, 0, 0, text, 0)
            before = tail
        self._fields = [*fields, before]
        self._pack = struct.Struct(f"{layout}{len(before)}s").pack

    def pack(self, numbers: tuple[bytes, ...], record: OffsetCommitsRecord) -> bytes:
        fields = self._fields.copy()
        fields[1::7] = numbers
        fields[3::7] = record.offsets
        fields[4::7] = record.leader_epochs
        fields[6::7] = [record.commit_timestamp] * len(numbers)
        return self._pack(*fields)


@dataclass(slots=True)  # not frozen, for speed, like the events of a group
class OffsetCommitsRecord(CoordinatorRecord):
    """Stands for an OffsetCommitRecord of each partition.

    A record with an expiry of its own (old clients) has no place for epoch and topic id.
    """

    group_id: str
    partitions: CommitPartitions
    offsets: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    @property
    def producer(self) -> BatchProducer | None:
        if self.producer_id == NO_PRODUCER_ID:
            return None
        return BatchProducer(self.producer_id, self.producer_epoch)

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The fields of a CommittedOffset for each partition."""
        partitions, expires = self.partitions, self.expire_timestamp != NO_TIMESTAMP
        return zip(
            self.offsets,
            repeat(NO_EPOCH) if expires else self.leader_epochs,
            partitions.metadata,
            repeat(self.commit_timestamp),
            repeat(self.expire_timestamp),
            repeat(NO_TOPIC_ID) if expires else partitions.topic_ids,
            strict=False,
        )

    def each(self) -> Iterator[OffsetCommitRecord]:
        for (topic, partition), value in zip(self.partitions.names, self.values(), strict=True):
            committed = CommittedOffset._make(value)
            yield OffsetCommitRecord(self.group_id, topic, partition, committed, self.producer_id)

    def pack(self, number: int) -> bytes | None:
        """The records as they stand in a batch; None where they have to be encoded one by one."""
        return None if self.expire_timestamp != NO_TIMESTAMP else self.partitions.pack(self, number)
