# SPDX-License-Identifier: Apache-2.0
"""The bytes of `__consumer_offsets`, held against what Apache Kafka 4.3.0's own serialiser wrote."""

from __future__ import annotations

import uuid

import pytest

from headrace.errors import DecodeError, NewerRecordError
from headrace.wire.coordinator.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CurrentMemberAssignment,
    ResolvedRegularExpression,
    TargetAssignmentMetadata,
    TopicPartitions,
)
from headrace.wire.coordinator.group_records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
    decode,
    encode,
)

TOPIC_ID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
TIME = 1234567890123


def group(*, timestamp: int = TIME, rebalance_ms: int = 60000, instance: str | None = "i-1") -> GroupRecord:
    member = MemberMetadata(
        member_id="m-1",
        group_instance_id=instance,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=rebalance_ms,
        session_timeout_ms=6000,
        subscription=b"\1\2",
        assignment=b"\3",
    )
    value = GroupMetadata(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m-1",
        current_state_timestamp=timestamp,
        members=(member,),
    )
    return GroupMetadataRecord(group_id="g", value=value)


def commit(value: CommittedOffset | None) -> GroupRecord:
    return OffsetCommitRecord("g", "t", 3, value)


def consumer_member(value: ConsumerGroupMemberMetadata | None) -> GroupRecord:
    return ConsumerGroupMemberMetadataRecord(group_id="g", member_id="m", value=value)


EMPTY_GROUP = GroupMetadata(
    protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=-1, members=()
)
CURRENT = CurrentMemberAssignment(
    member_epoch=4,
    previous_member_epoch=3,
    state=1,
    assigned_partitions=(TopicPartitions(topic_id=TOPIC_ID, partitions=(1, 2)),),
    partitions_pending_revocation=(
        TopicPartitions(topic_id=TOPIC_ID, partitions=(3,), assignment_epochs=(2,)),
    ),
)

WRITTEN: dict[str, tuple[GroupRecord, str, str | None]] = {
    "a stable group": (
        group(),
        "0002000167",
        (
            "00030008636f6e73756d657200000007000572616e676500036d2d310000011f71fb04cb0000000100036d2d310003692d3100"
            "0163000a2f3132372e302e302e310000ea60000017700000000201020000000103"
        ),
    ),
    "an empty group": (
        GroupMetadataRecord(group_id="g", value=EMPTY_GROUP),
        "0002000167",
        "0003000000000000ffffffffffffffffffffffff00000000",
    ),
    "a group's tombstone": (GroupMetadataRecord(group_id="g", value=None), "0002000167", None),
    "an offset": (
        commit(CommittedOffset(42, 5, "note", TIME)),
        "000100016700017400000003",
        "0004000000000000002a00000005056e6f74650000011f71fb04cb00",
    ),
    "an offset with an expiry of its own": (
        commit(CommittedOffset(42, -1, "note", TIME, 1234567899999)),
        "000100016700017400000003",
        "0001000000000000002a00046e6f74650000011f71fb04cb0000011f71fb2b5f",
    ),
    "an offset with its topic's id": (
        commit(CommittedOffset(42, -1, "", 7, topic_id=TOPIC_ID)),
        "000100016700017400000003",
        "0004000000000000002affffffff0100000000000000070100100102030405060708090a0b0c0d0e0f10",
    ),
    "an offset's tombstone": (commit(None), "000100016700017400000003", None),
    "a consumer group's epoch": (
        ConsumerGroupMetadataRecord(group_id="g", value=ConsumerGroupMetadata(epoch=9)),
        "0003000167",
        "00000000000900",
    ),
    "a consumer group's epoch and topic hash": (
        ConsumerGroupMetadataRecord(group_id="g", value=ConsumerGroupMetadata(epoch=9, metadata_hash=-77)),
        "0003000167",
        "000000000009010008ffffffffffffffb3",
    ),
    "a consumer group's member": (
        consumer_member(
            ConsumerGroupMemberMetadata(
                instance_id="i",
                rack_id="r",
                client_id="c",
                client_host="/h",
                subscribed_topic_names=("a", "b"),
                rebalance_timeout_ms=300,
                server_assignor="uniform",
            )
        ),
        "000500016700016d",
        "0000026902720263032f680302610262000000012c08756e69666f726d01000100",
    ),
    "a classic member of a consumer group": (
        consumer_member(
            ConsumerGroupMemberMetadata(
                instance_id="",
                rack_id="",
                client_id="c",
                client_host="/h",
                subscribed_topic_names=("a",),
                subscribed_topic_regex="x.*",
                rebalance_timeout_ms=300,
                server_assignor="",
                classic=ClassicMemberMetadata(
                    session_timeout_ms=45000, supported_protocols=(("range", b"\x09\x08"),)
                ),
            )
        ),
        "000500016700016d",
        "000001010263032f6802026104782e2a0000012c01010011010000afc8020672616e67650309080000",
    ),
    "a member's tombstone": (consumer_member(None), "000500016700016d", None),
    "a target epoch": (
        ConsumerGroupTargetAssignmentMetadataRecord(
            group_id="g", value=TargetAssignmentMetadata(assignment_epoch=4)
        ),
        "0006000167",
        "00000000000400",
    ),
    "a target epoch with its time": (
        ConsumerGroupTargetAssignmentMetadataRecord(
            group_id="g", value=TargetAssignmentMetadata(assignment_epoch=4, assignment_timestamp=99)
        ),
        "0006000167",
        "0000000000040100080000000000000063",
    ),
    "a member's target": (
        ConsumerGroupTargetAssignmentMemberRecord(
            group_id="g", member_id="m", value=(TopicPartitions(topic_id=TOPIC_ID, partitions=(0, 5)),)
        ),
        "000700016700016d",
        "0000020102030405060708090a0b0c0d0e0f100300000000000000050000",
    ),
    "a member's present assignment": (
        ConsumerGroupCurrentMemberAssignmentRecord(group_id="g", member_id="m", value=CURRENT),
        "000800016700016d",
        (
            "0000000000040000000301020102030405060708090a0b0c0d0e0f1003000000010000000200020102030405060708090a0b0c"
            "0d0e0f100200000003010005020000000200"
        ),
    ),
    "a resolved expression": (
        ConsumerGroupRegularExpressionRecord(
            group_id="g",
            regular_expression="x.*",
            value=ResolvedRegularExpression(topics=("xa", "xb"), version=12, timestamp=34),
        ),
        "00100001670003782e2a",
        "000003037861037862000000000000000c000000000000002200",
    ),
}

OLDER_VALUES: dict[str, tuple[GroupRecord, str, str]] = {
    "group version 0": (
        group(timestamp=-1, rebalance_ms=6000, instance=None),
        "0002000167",
        (
            "00000008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e"
            "31000017700000000201020000000103"
        ),
    ),
    "group version 1": (
        group(timestamp=-1, instance=None),
        "0002000167",
        (
            "00010008636f6e73756d657200000007000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e"
            "310000ea60000017700000000201020000000103"
        ),
    ),
    "group version 2": (
        group(instance=None),
        "0002000167",
        (
            "00020008636f6e73756d657200000007000572616e676500036d2d310000011f71fb04cb0000000100036d2d31000163000a2f"
            "3132372e302e302e310000ea60000017700000000201020000000103"
        ),
    ),
    "group version 4": (
        group(),
        "0002000167",
        (
            "000409636f6e73756d6572000000070672616e6765046d2d310000011f71fb04cb02046d2d3104692d3102630b2f3132372e30"
            "2e302e310000ea600000177003010202030000"
        ),
    ),
    "offset version 0": (
        commit(CommittedOffset(42, -1, "note", TIME)),
        "000100016700017400000003",
        "0000000000000000002a00046e6f74650000011f71fb04cb",
    ),
    "offset version 2": (
        commit(CommittedOffset(42, -1, "note", TIME)),
        "000100016700017400000003",
        "0002000000000000002a00046e6f74650000011f71fb04cb",
    ),
    "offset version 3": (
        commit(CommittedOffset(42, 5, "note", TIME)),
        "000100016700017400000003",
        "0003000000000000002a0000000500046e6f74650000011f71fb04cb",
    ),
    "offset under the oldest key": (
        commit(CommittedOffset(42, -1, "note", TIME)),
        "000000016700017400000003",
        "0000000000000000002a00046e6f74650000011f71fb04cb",
    ),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_written_as_kafka_writes(what: str) -> None:
    record, key, value = WRITTEN[what]
    made_key, made_value = encode(record)
    assert (made_key.hex(), made_value and made_value.hex()) == (key, value)


@pytest.mark.parametrize("what", WRITTEN)
def test_what_was_written_is_read_back(what: str) -> None:
    record, key, value = WRITTEN[what]
    assert decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value)) == record


@pytest.mark.parametrize("what", OLDER_VALUES)
def test_every_older_version_is_read(what: str) -> None:
    record, key, value = OLDER_VALUES[what]
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_a_null_server_assignor_stays_null() -> None:
    member = ConsumerGroupMemberMetadata(client_id="c", client_host="h")
    assert decode(*encode(consumer_member(member))) == consumer_member(member)


def test_the_producer_of_a_transactional_commit_comes_from_its_batch() -> None:
    key, value = encode(commit(CommittedOffset(42)))
    record = decode(key, value, producer_id=7)
    assert isinstance(record, OffsetCommitRecord)
    assert record.producer_id == 7


@pytest.mark.parametrize("record_type", [4, 10, 15, 17, 23, 99])
def test_records_of_groups_that_are_not_served_are_passed_over(record_type: int) -> None:
    assert decode(record_type.to_bytes(2, "big") + b"\0\1g", b"\0\0") is None


@pytest.mark.parametrize("what", ["a stable group", "an offset", "a consumer group's member"])
def test_a_value_of_a_newer_version_is_refused_by_name(what: str) -> None:
    _record, key, value = WRITTEN[what]
    assert value is not None
    with pytest.raises(NewerRecordError, match="written by a newer Headrace"):
        decode(bytes.fromhex(key), b"\0\5" + bytes.fromhex(value)[2:])


@pytest.mark.parametrize("what", WRITTEN)
def test_bytes_cut_short_are_a_decode_error(what: str) -> None:
    _record, key, value = WRITTEN[what]
    raw_key, raw_value = bytes.fromhex(key), bytes.fromhex(value or "")
    for length in range(len(raw_value)):
        if value is not None:
            with pytest.raises(DecodeError):
                decode(raw_key, raw_value[:length])
    for length in range(2, len(raw_key)):
        with pytest.raises(DecodeError):
            decode(raw_key[:length], None)
