# SPDX-License-Identifier: Apache-2.0
"""Records of KIP-848 groups in `__consumer_offsets`: values and their bytes, as Apache Kafka 4.3 writes them.

A record whose `value` is None is a tombstone. Order inside a value is kept as given, so equal states have
equal bytes only when the writer sorts. Read next: group_records.py, which finds the codec of a record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.fields import (
    Reader,
    compact_array,
    compact_bytes,
    compact_string,
    int8,
    int32,
    int64,
    string,
    tagged_fields,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """The group's epoch, and the hash of the topics it was last computed from (0: not known)."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """JoinGroup fields of a member that uses the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadata:
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadata:
    assignment_epoch: int
    assignment_timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """`assignment_epochs`: the member epoch at which each partition was assigned, if known."""

    topic_id: uuid.UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberAssignment:
    """`state` is Kafka's number: 0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS, 127 UNKNOWN."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegularExpression:
    """Which topics a regular expression matched at metadata version `version`."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataRecord(CoordinatorRecord):
    group_id: str
    value: ConsumerGroupMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataRecord(CoordinatorRecord):
    group_id: str
    member_id: str
    value: ConsumerGroupMemberMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataRecord(CoordinatorRecord):
    group_id: str
    value: TargetAssignmentMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberRecord(CoordinatorRecord):
    group_id: str
    member_id: str
    value: tuple[TopicPartitions, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentRecord(CoordinatorRecord):
    group_id: str
    member_id: str
    value: CurrentMemberAssignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionRecord(CoordinatorRecord):
    group_id: str
    regular_expression: str
    value: ResolvedRegularExpression | None


ConsumerGroupRecord = (
    ConsumerGroupMetadataRecord
    | ConsumerGroupMemberMetadataRecord
    | ConsumerGroupTargetAssignmentMetadataRecord
    | ConsumerGroupTargetAssignmentMemberRecord
    | ConsumerGroupCurrentMemberAssignmentRecord
    | ConsumerGroupRegularExpressionRecord
)

METADATA, MEMBER_METADATA, TARGET_METADATA, TARGET_MEMBER, CURRENT_MEMBER = 3, 5, 6, 7, 8
REGULAR_EXPRESSION = 16
RECORD_TYPES = frozenset(
    {METADATA, MEMBER_METADATA, TARGET_METADATA, TARGET_MEMBER, CURRENT_MEMBER, REGULAR_EXPRESSION}
)


def encode_key(record: ConsumerGroupRecord) -> tuple[int, bytes]:
    """(record type, bytes of the key after the type)."""
    group = string(record.group_id)
    match record:
        case ConsumerGroupMetadataRecord():
            return METADATA, group
        case ConsumerGroupMemberMetadataRecord():
            return MEMBER_METADATA, group + string(record.member_id)
        case ConsumerGroupTargetAssignmentMetadataRecord():
            return TARGET_METADATA, group
        case ConsumerGroupTargetAssignmentMemberRecord():
            return TARGET_MEMBER, group + string(record.member_id)
        case ConsumerGroupCurrentMemberAssignmentRecord():
            return CURRENT_MEMBER, group + string(record.member_id)
        case ConsumerGroupRegularExpressionRecord():
            return REGULAR_EXPRESSION, group + string(record.regular_expression)


def encode_value(record: ConsumerGroupRecord) -> bytes:
    """Bytes of the value after its version, which is 0 for all of these. The value is not None."""
    match record.value:
        case ConsumerGroupMetadata() as value:
            return int32(value.epoch) + _tagged_int64(value.metadata_hash)
        case TargetAssignmentMetadata() as value:
            return int32(value.assignment_epoch) + _tagged_int64(value.assignment_timestamp)
        case ConsumerGroupMemberMetadata() as value:
            return _member_bytes(value)
        case CurrentMemberAssignment() as value:
            return _current_bytes(value)
        case ResolvedRegularExpression() as value:
            topics = compact_array(compact_string(topic) for topic in value.topics)
            return topics + int64(value.version) + int64(value.timestamp) + tagged_fields()
        case tuple() as value:
            return compact_array(map(_topic_bytes, value)) + tagged_fields()
        case None:
            raise ValueError("a tombstone has no value to encode")


def _tagged_int64(value: int) -> bytes:
    return tagged_fields([(0, int64(value))] if value else [])


def _member_bytes(value: ConsumerGroupMemberMetadata) -> bytes:
    return b"".join(
        (
            compact_string(value.instance_id),
            compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_array(compact_string(topic) for topic in value.subscribed_topic_names),
            compact_string(value.subscribed_topic_regex),
            int32(value.rebalance_timeout_ms),
            compact_string(value.server_assignor),
            tagged_fields([(0, _classic_bytes(value.classic))]),
        )
    )


def _classic_bytes(classic: ClassicMemberMetadata | None) -> bytes:
    """A tagged struct that may be null begins with a byte that says whether it is there.

    Always written: Kafka reads a missing field as a classic member without protocols.
    """
    if classic is None:
        return int8(0)
    protocols = compact_array(
        compact_string(name) + compact_bytes(metadata) + tagged_fields()
        for name, metadata in classic.supported_protocols
    )
    return int8(1) + int32(classic.session_timeout_ms) + protocols + tagged_fields()


def _topic_bytes(topic: TopicPartitions) -> bytes:
    epochs = topic.assignment_epochs
    return b"".join(
        (
            topic.topic_id.bytes,
            compact_array(map(int32, topic.partitions)),
            tagged_fields([(0, compact_array(map(int32, epochs)))] if epochs is not None else []),
        )
    )


def _current_bytes(value: CurrentMemberAssignment) -> bytes:
    return b"".join(
        (
            int32(value.member_epoch),
            int32(value.previous_member_epoch),
            int8(value.state),
            compact_array(map(_topic_bytes, value.assigned_partitions)),
            compact_array(map(_topic_bytes, value.partitions_pending_revocation)),
            tagged_fields(),
        )
    )


def decode(record_type: int, key: Reader, value: Reader | None) -> ConsumerGroupRecord:
    """A record of one of RECORD_TYPES; `key` stands after the type, `value` after the version."""
    group_id = key.string(compact=False)
    if record_type == METADATA:
        return ConsumerGroupMetadataRecord(group_id=group_id, value=_unless_tombstone(value, _read_metadata))
    if record_type == TARGET_METADATA:
        target = _unless_tombstone(value, _read_target_metadata)
        return ConsumerGroupTargetAssignmentMetadataRecord(group_id=group_id, value=target)
    second = key.string(compact=False)
    if record_type == MEMBER_METADATA:
        member = _unless_tombstone(value, _read_member)
        return ConsumerGroupMemberMetadataRecord(group_id=group_id, member_id=second, value=member)
    if record_type == TARGET_MEMBER:
        topics = _unless_tombstone(value, _read_target)
        return ConsumerGroupTargetAssignmentMemberRecord(group_id=group_id, member_id=second, value=topics)
    if record_type == CURRENT_MEMBER:
        current = _unless_tombstone(value, _read_current)
        return ConsumerGroupCurrentMemberAssignmentRecord(group_id=group_id, member_id=second, value=current)
    resolved = _unless_tombstone(value, _read_regular_expression)
    return ConsumerGroupRegularExpressionRecord(group_id=group_id, regular_expression=second, value=resolved)


def _unless_tombstone(value: Reader | None, read: Callable[[Reader], T]) -> T | None:
    return None if value is None else read(value)


def _read_tagged_int64(value: Reader) -> int:
    tagged = value.tagged_fields().get(0)
    return tagged.int64() if tagged else 0


def _read_metadata(value: Reader) -> ConsumerGroupMetadata:
    return ConsumerGroupMetadata(epoch=value.int32(), metadata_hash=_read_tagged_int64(value))


def _read_target_metadata(value: Reader) -> TargetAssignmentMetadata:
    return TargetAssignmentMetadata(
        assignment_epoch=value.int32(), assignment_timestamp=_read_tagged_int64(value)
    )


def _compact_text(reader: Reader) -> str:
    return reader.string(compact=True)


def _read_member(value: Reader) -> ConsumerGroupMemberMetadata:
    return ConsumerGroupMemberMetadata(
        instance_id=value.nullable_string(compact=True),
        rack_id=value.nullable_string(compact=True),
        client_id=value.string(compact=True),
        client_host=value.string(compact=True),
        subscribed_topic_names=value.array(_compact_text, compact=True),
        subscribed_topic_regex=value.nullable_string(compact=True),
        rebalance_timeout_ms=value.int32(),
        server_assignor=value.nullable_string(compact=True),
        classic=_read_classic(value.tagged_fields().get(0)),
    )


def _read_classic(value: Reader | None) -> ClassicMemberMetadata | None:
    if value is None or value.int8() <= 0:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=value.int32(), supported_protocols=value.array(_read_protocol, compact=True)
    )


def _read_protocol(reader: Reader) -> tuple[str, bytes]:
    protocol = reader.string(compact=True), reader.bytes(compact=True)
    reader.tagged_fields()
    return protocol


def _read_topic(reader: Reader) -> TopicPartitions:
    topic_id, partitions = reader.uuid(), reader.array(Reader.int32, compact=True)
    epochs = reader.tagged_fields().get(0)
    return TopicPartitions(
        topic_id=topic_id,
        partitions=partitions,
        assignment_epochs=epochs.array(Reader.int32, compact=True) if epochs else None,
    )


def _read_topics(reader: Reader) -> tuple[TopicPartitions, ...]:
    return reader.array(_read_topic, compact=True)


def _read_target(value: Reader) -> tuple[TopicPartitions, ...]:
    topics = _read_topics(value)
    value.tagged_fields()
    return topics


def _read_current(value: Reader) -> CurrentMemberAssignment:
    current = CurrentMemberAssignment(
        member_epoch=value.int32(),
        previous_member_epoch=value.int32(),
        state=value.int8(),
        assigned_partitions=_read_topics(value),
        partitions_pending_revocation=_read_topics(value),
    )
    value.tagged_fields()
    return current


def _read_regular_expression(value: Reader) -> ResolvedRegularExpression:
    resolved = ResolvedRegularExpression(
        topics=value.array(_compact_text, compact=True), version=value.int64(), timestamp=value.int64()
    )
    value.tagged_fields()
    return resolved
