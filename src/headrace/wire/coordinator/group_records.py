# SPDX-License-Identifier: Apache-2.0
"""Records of `__consumer_offsets`: values and their bytes, as Apache Kafka 4.3 writes them.

A key begins with its record type, a value with its version. Written: GroupMetadata value version 3 and
OffsetCommit value version 4 (1 where an old client set an expiry). Read: every version.
A record whose `value` is None is a tombstone. What a record means to a group is machines/groups'. Read next:
consumer_group_records.py (KIP-848).
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from headrace.errors import DecodeError, NewerRecordError, newer_format
from headrace.types import NO_TOPIC_ID
from headrace.wire.coordinator import consumer_group_records as consumer
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.fields import (
    Reader,
    int16,
    int32,
    int64,
    plain_array,
    plain_bytes,
    string,
)
from headrace.wire.primitives import (
    MALFORMED,
    read_compact_string,
    read_string,
    uuid_from_bytes,
    uvarint,
    varint,
)

NO_TIMESTAMP = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1

OFFSET_COMMIT, GROUP_METADATA = 1, 2
_PRESENT_OFFSET = b"\0\4"


class MemberMetadata(NamedTuple):
    """One member of a classic group as its last finished generation left it; a tuple, since a rebalance makes
    one of every member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A classic group: empty, or stable with an assignment for each member."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataRecord(CoordinatorRecord):
    group_id: str
    value: GroupMetadata | None


class CommittedOffset(NamedTuple):
    """`expire_timestamp`: only where an old client (OffsetCommit 2 to 4) asked for its own retention."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: uuid.UUID = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class OffsetCommitRecord(CoordinatorRecord):
    """`producer_id` is that of the batch."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None
    producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarkerRecord(CoordinatorRecord):
    """A transaction marker: pending offsets of the producer become committed, or are dropped.

    Written by the transaction coordinator; applies to every group of the partition.
    """

    producer_id: int
    committed: bool


GroupRecord = GroupMetadataRecord | OffsetCommitRecord | consumer.ConsumerGroupRecord


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value) for the log; the value of a tombstone is None."""
    match record:
        case OffsetCommitRecord():
            key = _offset_commit_key(record.group_id, record.topic, record.partition)
            return key, _offset_commit_value(record.value)
        case GroupMetadataRecord():
            key = int16(GROUP_METADATA) + string(record.group_id)
            return key, None if record.value is None else _group_metadata_value(record.value)
        case _:
            record_type, key = consumer.encode_key(record)
            value = None if record.value is None else int16(0) + consumer.encode_value(record)
            return int16(record_type) + key, value


def decode(key: bytes, value: bytes | None, *, producer_id: int = NO_PRODUCER_ID) -> GroupRecord | None:
    """The record, or None for a type that is not served here (share and Streams groups).

    DecodeError: malformed bytes; NewerRecordError: a version newer than this code.
    """
    try:
        return _decode(key, value, producer_id)
    except MALFORMED as problem:
        raise DecodeError(f"record of __consumer_offsets with key {key.hex()}: {problem}") from problem


def _decode(key: bytes, value: bytes | None, producer_id: int) -> GroupRecord | None:
    record_type = int.from_bytes(key[:2], "big", signed=True)
    if record_type in (0, OFFSET_COMMIT):  # 0: the same key, written by Kafka before 0.9
        return _read_offset_commit(key, value, producer_id)
    if record_type == GROUP_METADATA:
        group_id, _ = read_string(memoryview(key), 2, len(key))
        return GroupMetadataRecord(
            group_id=group_id or "", value=None if value is None else _read_group_metadata(Reader(value))
        )
    if record_type in consumer.RECORD_TYPES:
        body = None
        if value is not None:
            body = Reader(value)
            _refuse_newer(body.int16(), 0, record_type)
        return consumer.decode(record_type, Reader(key, 2), body)
    return None


def _refuse_newer(version: int, newest: int, record_type: int) -> None:
    if version > newest:
        what = f"the value of a record of type {record_type} in __consumer_offsets"
        raise NewerRecordError(newer_format(what, version, newest))
    if version < 0:
        raise DecodeError(f"value version {version} of record type {record_type} in __consumer_offsets")


def _group_metadata_value(value: GroupMetadata) -> bytes:
    return b"".join(
        (
            int16(3),
            string(value.protocol_type),
            int32(value.generation),
            string(value.protocol),
            string(value.leader),
            int64(value.current_state_timestamp),
            plain_array([_member_bytes(member) for member in value.members]),
        )
    )


def _member_bytes(member: MemberMetadata) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            int32(member.rebalance_timeout_ms),
            int32(member.session_timeout_ms),
            plain_bytes(member.subscription),
            plain_bytes(member.assignment),
        )
    )


def _read_group_metadata(value: Reader) -> GroupMetadata:
    version = value.int16()
    _refuse_newer(version, 4, GROUP_METADATA)
    compact = version >= 4
    return GroupMetadata(
        protocol_type=value.string(compact=compact),
        generation=value.int32(),
        protocol=value.nullable_string(compact=compact),
        leader=value.nullable_string(compact=compact),
        current_state_timestamp=value.int64() if version >= 2 else NO_TIMESTAMP,
        members=value.array(lambda reader: _read_member(reader, version), compact=compact),
    )


def _read_member(reader: Reader, version: int) -> MemberMetadata:
    compact = version >= 4
    member_id = reader.string(compact=compact)
    instance_id = reader.nullable_string(compact=compact) if version >= 3 else None
    client_id, client_host = reader.string(compact=compact), reader.string(compact=compact)
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = MemberMetadata(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 had one time-out for both.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.bytes(compact=compact),
        assignment=reader.bytes(compact=compact),
    )
    if compact:
        reader.tagged_fields()
    return member


# Offset commits are the bulk of the topic, written at every commit and read at every start: straight code.

_OFFSET_KEY_HEAD = int16(OFFSET_COMMIT)
_OFFSET_VALUE_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_OFFSET_VALUE_OLD = struct.Struct(">hq")  # before version 3
_INT64 = struct.Struct(">q")
_INT64_PAIR = struct.Struct(">qq")
_PLAIN_VALUE = struct.Struct(">hqiBqBBB16s")
"""The usual one: version, offset, leader epoch, no metadata, time, one tag (0, 16 bytes): the topic id."""
_PLAIN_BYTES = _PLAIN_VALUE.size


@lru_cache(maxsize=16_384)
def _offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    """Cached: a consumer commits the same partitions repeatedly."""
    return _OFFSET_KEY_HEAD + string(group_id) + string(topic) + int32(partition)


def offset_commit_frame(
    group_id: str, topic: str, partition: int, note: str, topic_id: uuid.UUID
) -> tuple[bytes, bytes, bytes]:
    """The constant bytes of a record in version 4: before offset and epoch, before the timestamp, after it.

    From the key's length to the empty headers, for writers of many such records.
    """
    key = _offset_commit_key(group_id, topic, partition)
    text = note.encode()
    note_bytes = uvarint(len(text) + 1) + text
    tags = _tags(topic_id)
    size = _OFFSET_VALUE_HEAD.size + len(note_bytes) + _INT64.size + len(tags)
    return varint(len(key)) + key + varint(size) + int16(4), note_bytes, tags + b"\0"


def _tags(topic_id: uuid.UUID) -> bytes:
    return b"\0" if topic_id == NO_TOPIC_ID else b"\x01\x00\x10" + topic_id.bytes


def _offset_commit_value(value: CommittedOffset | None) -> bytes | None:
    if value is None:
        return None
    offset, leader_epoch, note, commit_timestamp, expire_timestamp, topic_id = value
    if not note and expire_timestamp == NO_TIMESTAMP and topic_id.int:
        raw_id = topic_id.int.to_bytes(16, "big")
        return _PLAIN_VALUE.pack(4, offset, leader_epoch, 1, commit_timestamp, 1, 0, 16, raw_id)
    metadata = note.encode()
    if value.expire_timestamp != NO_TIMESTAMP:
        times = _INT64_PAIR.pack(value.commit_timestamp, value.expire_timestamp)
        return _OFFSET_VALUE_OLD.pack(1, value.offset) + int16(len(metadata)) + metadata + times
    head = _OFFSET_VALUE_HEAD.pack(4, value.offset, value.leader_epoch)
    return head + uvarint(len(metadata) + 1) + metadata + int64(value.commit_timestamp) + _tags(topic_id)


def _read_offset_commit(key: bytes, value: bytes | None, producer_id: int) -> OffsetCommitRecord:
    group_id, topic = _group_and_topic(key[2:-4])
    return OffsetCommitRecord(
        group_id,
        topic,
        int.from_bytes(key[-4:], "big", signed=True),
        None if value is None else _read_committed_offset(value),
        producer_id,
    )


@lru_cache(maxsize=4096)
def _group_and_topic(raw: bytes) -> tuple[str, str]:
    """Cached: group and topic repeat for every partition, and share one string each."""
    topic_at = 2 + int.from_bytes(raw[:2], "big")
    end = topic_at + 2 + int.from_bytes(raw[topic_at : topic_at + 2], "big")
    if len(raw) != end:
        raise DecodeError(f"offset commit key of {len(raw) + 6} bytes should have {end + 6}")
    return _text(raw[2:topic_at]), _text(raw[topic_at + 2 :])


@lru_cache(maxsize=4096)
def _text(raw: bytes) -> str:
    return raw.decode()


def _read_committed_offset(value: bytes) -> CommittedOffset:
    if value[:2] == _PRESENT_OFFSET:
        return _read_present_offset(value)
    _refuse_newer(int.from_bytes(value[:2], "big", signed=True), 4, OFFSET_COMMIT)  # whatever comes behind it
    version, offset = _OFFSET_VALUE_OLD.unpack_from(value)
    reader = Reader(value, _OFFSET_VALUE_OLD.size)
    return CommittedOffset(
        offset,
        reader.int32() if version == 3 else NO_EPOCH,
        reader.string(compact=False),
        reader.int64(),
        reader.int64() if version == 1 else NO_TIMESTAMP,
    )


def _read_present_offset(value: bytes) -> CommittedOffset:
    if len(value) == _PLAIN_BYTES:
        _, offset, leader_epoch, note, time, tags, tag, size, topic_id = _PLAIN_VALUE.unpack(value)
        if (note, tags, tag, size) == (1, 1, 0, 16):
            return CommittedOffset(offset, leader_epoch, "", time, NO_TIMESTAMP, uuid_from_bytes(topic_id))
    _version, offset, leader_epoch = _OFFSET_VALUE_HEAD.unpack_from(value)
    position = _OFFSET_VALUE_HEAD.size
    if value[position] == 1:  # most consumers send no metadata
        metadata, position = "", position + 1
    else:
        text, position = read_compact_string(memoryview(value), position, len(value))
        metadata = text or ""
    (commit_timestamp,) = _INT64.unpack_from(value, position)
    topic_id = NO_TOPIC_ID
    if value[position + 8] != 0:
        tagged = Reader(value, position + 8).tagged_fields().get(0)
        topic_id = tagged.uuid() if tagged else NO_TOPIC_ID
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp, NO_TIMESTAMP, topic_id)
