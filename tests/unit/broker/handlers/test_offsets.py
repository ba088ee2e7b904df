# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import StorageError
from headrace.log.log_config import LogConfig
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, FakePartition, topic

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)


def broker_with(**figures: Any) -> FakeBroker:
    return FakeBroker([topic("t")], partitions=[FakePartition("t", 0, **figures)])


def list_one(
    broker: FakeBroker, timestamp: int, version: int = 11, name: str = "t", index: int = 0, **fields: Any
) -> Any:
    asked = {"partition_index": index, "timestamp": timestamp}
    if version >= 4:
        asked["current_leader_epoch"] = fields.pop("current_leader_epoch", -1)
    reply = broker.ask(
        ApiKey.LIST_OFFSETS, version, topics=[{"name": name, "partitions": [asked]}], replica_id=-1, **fields
    )
    (answered,) = reply.topics[0].partitions
    assert answered.partition_index == index
    return answered


# ListOffsets


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_is_the_high_watermark_and_earliest_the_log_start(version: int) -> None:
    broker = broker_with()
    latest = list_one(broker, LATEST, version)
    earliest = list_one(broker, EARLIEST, version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (ErrorCode.none, 100, -1)
    assert (earliest.offset, earliest.timestamp) == (10, -1)
    if version >= 4:
        assert (latest.leader_epoch, earliest.leader_epoch) == (3, 2)


@pytest.mark.parametrize("replica_id", [-2, 5])
def test_no_consumer_sees_offsets_above_the_high_watermark(replica_id: int) -> None:
    broker = broker_with()
    reply = broker.ask(
        ApiKey.LIST_OFFSETS,
        11,
        replica_id=replica_id,
        topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": LATEST}]}],
    )
    assert reply.topics[0].partitions[0].offset == 100


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    broker = broker_with(times={5: (7, 89), 8: (9, 95)})
    assert list_one(broker, LATEST, isolation_level=READ_COMMITTED).offset == 90
    assert list_one(broker, 5, isolation_level=READ_COMMITTED).offset == 89
    assert list_one(broker, 8, isolation_level=READ_COMMITTED).offset == -1
    assert list_one(broker, 8).offset == 95


def test_by_timestamp_the_first_record_not_older_with_its_own_time_and_epoch() -> None:
    broker = broker_with(times={1000: (1007, 42), 2000: (2000, 60)})
    first, second = list_one(broker, 1000), list_one(broker, 2000)
    assert (first.timestamp, first.offset, first.leader_epoch) == (1007, 42, 2)
    assert (second.timestamp, second.offset, second.leader_epoch) == (2000, 60, 3)


def test_a_time_after_the_last_record_has_no_offset_and_no_error() -> None:
    found = list_one(broker_with(), 9999)
    assert (found.error_code, found.timestamp, found.offset) == (ErrorCode.none, -1, -1)


def test_the_largest_timestamp_is_served_from_version_7_on() -> None:
    broker = broker_with(max_time=(5000, 70))
    found = list_one(broker, MAX_TIMESTAMP, 7)
    assert (found.timestamp, found.offset) == (5000, 70)
    assert list_one(broker, MAX_TIMESTAMP, 6).error_code is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("timestamp", "since", "offset"),
    [(EARLIEST_LOCAL, 8, 10), (LATEST_TIERED, 9, -1), (EARLIEST_PENDING_UPLOAD, 11, -1)],
)
def test_questions_about_tiers_are_answered_from_their_version_on(
    timestamp: int, since: int, offset: int
) -> None:
    served, too_early = (
        list_one(broker_with(), timestamp, since),
        list_one(broker_with(), timestamp, since - 1),
    )
    assert (served.error_code, served.offset) == (ErrorCode.none, offset)
    assert too_early.error_code is ErrorCode.unsupported_version


def test_an_unknown_negative_timestamp_is_unsupported() -> None:
    assert list_one(broker_with(), -7).error_code is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (2, ErrorCode.fenced_leader_epoch),
        (3, ErrorCode.none),
        (4, ErrorCode.unknown_leader_epoch),
        (-1, ErrorCode.none),
    ],
)
def test_another_leader_epoch_is_fenced(epoch: int, error: ErrorCode) -> None:
    assert list_one(broker_with(), LATEST, current_leader_epoch=epoch).error_code is error


def test_a_partition_is_unknown_elsewhere_or_offline() -> None:
    broker = FakeBroker(
        [topic("t"), topic("elsewhere", leader=2), topic("offline")],
        partitions=[FakePartition("t", 0), FakePartition("offline", 0, online=False)],
    )
    assert list_one(broker, LATEST, name="nowhere").error_code is ErrorCode.unknown_topic_or_partition
    assert list_one(broker, LATEST, index=1).error_code is ErrorCode.unknown_topic_or_partition
    assert list_one(broker, LATEST, index=-1).error_code is ErrorCode.unknown_topic_or_partition
    assert list_one(broker, LATEST, name="elsewhere").error_code is ErrorCode.not_leader_or_follower
    assert list_one(broker, LATEST, name="offline").error_code is ErrorCode.kafka_storage_error


def test_one_partition_that_fails_does_not_spoil_the_others() -> None:
    def broken(timestamp_ms: int, ask: object) -> None:
        raise StorageError("bad sector")

    broker = FakeBroker(
        [topic("t", 2)],
        partitions=[
            FakePartition("t", 0, offset_for_timestamp=broken),
            FakePartition("t", 1, times={1: (1, 20)}),
        ],
    )
    reply = broker.ask(
        ApiKey.LIST_OFFSETS,
        11,
        replica_id=-1,
        topics=[
            {
                "name": "t",
                "partitions": [{"partition_index": index, "timestamp": 1} for index in (0, 1)],
            }
        ],
    )
    assert [(each.error_code, each.offset) for each in reply.topics[0].partitions] == [
        (ErrorCode.kafka_storage_error, -1),
        (ErrorCode.none, 20),
    ]
    assert broker.metrics.errors == {(2, ErrorCode.kafka_storage_error): 1}


def test_a_partition_asked_for_twice_is_an_invalid_request() -> None:
    twice = [{"partition_index": 0, "timestamp": LATEST}] * 2
    topics = [{"name": "t", "partitions": twice}]
    reply = broker_with().ask(ApiKey.LIST_OFFSETS, 11, replica_id=-1, topics=topics)
    assert [each.error_code for each in reply.topics[0].partitions] == [ErrorCode.invalid_request] * 2


# OffsetForLeaderEpoch


def end_of(broker: FakeBroker, version: int, epoch: int, current: int = -1, index: int = 0) -> Any:
    asked = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    topics = [{"topic": "t", "partitions": [asked]}]
    reply = broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics)
    (answered,) = reply.topics[0].partitions
    assert answered.partition == index
    return answered


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch(version: int) -> None:
    broker = broker_with(epoch_ends={2: (2, 50), 3: (3, 120)})
    found = end_of(broker, version, 2)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, 2, 50)


def test_an_epoch_that_never_was_has_no_end() -> None:
    found = end_of(broker_with(), 4, 9)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.none, -1, -1)


def test_the_end_of_an_epoch_is_fenced_like_a_fetch() -> None:
    broker = broker_with()
    assert end_of(broker, 4, 2, current=1).error_code is ErrorCode.fenced_leader_epoch
    assert end_of(broker, 4, 2, current=9).error_code is ErrorCode.unknown_leader_epoch
    assert end_of(broker, 4, 2, index=5).error_code is ErrorCode.unknown_topic_or_partition


# DeleteRecords


def delete(broker: FakeBroker, offset: int, version: int = 2, name: str = "t") -> Any:
    reply = broker.ask(
        ApiKey.DELETE_RECORDS,
        version,
        timeout=1000,
        topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}],
    )
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_below_an_offset(version: int) -> None:
    deleted = delete(broker_with(), 60, version)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.none, 60)


def test_minus_one_deletes_up_to_the_high_watermark() -> None:
    assert delete(broker_with(), -1).low_watermark == 100


def test_deleting_what_is_gone_already_changes_nothing() -> None:
    assert delete(broker_with(), 3).low_watermark == 10


@pytest.mark.parametrize("offset", [101, -2])
def test_an_offset_beyond_the_high_watermark_is_out_of_range(offset: int) -> None:
    deleted = delete(broker_with(), offset)
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.offset_out_of_range, -1)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({"compact"}, ErrorCode.policy_violation),
        ({"compact", "delete"}, ErrorCode.none),
        ({"delete"}, ErrorCode.none),
    ],
)
def test_a_topic_that_is_only_compacted_loses_no_records(policy: set[str], error: ErrorCode) -> None:
    settings = SimpleNamespace(log=LogConfig(cleanup_policy=frozenset(policy)))
    assert delete(broker_with(settings=settings), 60).error_code is error


def test_records_of_internal_and_unknown_topics_are_not_deleted() -> None:
    broker = FakeBroker([topic("__consumer_offsets")])
    assert delete(broker, 1, name="__consumer_offsets").error_code is ErrorCode.invalid_topic_exception
    assert delete(broker, 1, name="nowhere").error_code is ErrorCode.unknown_topic_or_partition


def test_a_partition_named_twice_is_refused_and_keeps_its_records() -> None:
    broker = broker_with()
    named = [{"partition_index": 0, "offset": offset} for offset in (60, 70)]
    reply = broker.ask(ApiKey.DELETE_RECORDS, 2, timeout=1000, topics=[{"name": "t", "partitions": named}])
    assert [answer.error_code for answer in reply.topics[0].partitions] == [ErrorCode.invalid_request] * 2
    assert delete(broker, 3).low_watermark == 10
