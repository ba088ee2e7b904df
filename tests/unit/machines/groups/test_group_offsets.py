# SPDX-License-Identifier: Apache-2.0
"""Offsets of a group: who may commit, what is found again, what may be deleted, what expires."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from headrace.machines.groups.events import (
    DeleteGroup,
    ErrorReply,
    OffsetCommit,
    OffsetCommitReply,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
    RetentionCheck,
    TopicsDeleted,
)
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.groups.offsets import OffsetsSettings
from headrace.machines.machine import ReplyToken
from headrace.types import ClusterView
from headrace.wire.coordinator.group_records import (
    CommittedOffset,
    GroupMetadataRecord,
    OffsetCommitRecord,
    TransactionMarkerRecord,
)
from headrace.wire.coordinator.record import BatchProducer
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import SESSION_MS, ClassicHarness, protocols

RETENTION_MS = 60_000
SETTINGS = GroupSettings(offsets=OffsetsSettings(metadata_max_bytes=8, retention_ms=RETENTION_MS))


def new_group() -> Group:
    return Group("g", SETTINGS, ClusterView(version=1, cluster_id="c"))


class GroupHarness(ClassicHarness):
    def __init__(self) -> None:
        super().__init__(new_group())

    @property
    def group(self) -> Group:
        assert isinstance(self.machine, Group)
        return self.machine

    def commit(self, *offsets: tuple[Any, ...], **request: Any) -> OffsetCommitReply:
        token = self.token()
        wanted = tuple(OffsetToCommit(*offset) for offset in offsets)
        self.submit(OffsetCommit.of(**{"token": token, "version": 9, "offsets": wanted, **request}))
        return self.reply(token, OffsetCommitReply)

    def committed(self, topic: str = "t", partition: int = 0, **request: Any) -> CommittedOffset | None:
        (found,) = self.fetch(((topic, partition),), **request).offsets
        assert found.error is ErrorCode.none
        return found.committed

    def fetch(self, partitions: tuple[tuple[str, int], ...] | None, **request: Any) -> OffsetFetchReply:
        token = self.token()
        self.submit(OffsetFetch(token=token, version=9, partitions=partitions, **request))
        return self.reply(token, OffsetFetchReply)

    def delete_offsets(self, *partitions: tuple[str, int]) -> OffsetDeleteReply:
        token = self.token()
        self.submit(OffsetDelete(token=token, version=0, partitions=partitions))
        return self.reply(token, OffsetDeleteReply)

    def delete_group(self) -> ErrorCode:
        token = self.token()
        self.submit(DeleteGroup(token=token, version=2))
        return self.reply(token, ErrorReply).error

    def tombstones(self) -> list[tuple[str, int]]:
        return [
            (record.topic, record.partition)
            for record in self.records
            if isinstance(record, OffsetCommitRecord) and record.value is None
        ]


def test_a_consumer_without_membership_commits_and_finds_its_offset_again() -> None:
    group = GroupHarness()
    reply = group.commit(("t", 0, 42), ("t", 1, 7))
    assert (reply.error, reply.errors) == (ErrorCode.none, (ErrorCode.none, ErrorCode.none))
    found = CommittedOffset(42, -1, "", group.now.wall_ms)
    assert group.committed() == found
    assert group.records[0] == OffsetCommitRecord("g", "t", 0, found)
    assert group.committed("t", 9) is None
    description = group.group.describe()
    assert (description.state, description.group_type, description.protocol_type) == ("Empty", "Classic", "")


def test_everything_given_is_kept() -> None:
    group = GroupHarness()
    group.commit(OffsetToCommit("t", 0, 42, 5, "note"))
    assert group.committed() == CommittedOffset(42, 5, "note", group.now.wall_ms)


@pytest.mark.row("D14")
def test_offsets_go_back_only_by_a_commit() -> None:
    group = GroupHarness()
    for offset in (5, 9, 3):
        group.commit(("t", 0, offset))
        assert group.committed() == CommittedOffset(offset, -1, "", group.now.wall_ms)


def test_all_offsets_are_fetched_where_no_partition_is_named() -> None:
    group = GroupHarness()
    assert group.fetch(None).offsets == ()
    group.commit(("t", 0, 1), ("u", 3, 2))
    found = {(offset.topic, offset.partition) for offset in group.fetch(None).offsets}
    assert found == {("t", 0), ("u", 3)}


def test_metadata_above_the_limit_refuses_its_partition_alone() -> None:
    group = GroupHarness()
    reply = group.commit(
        OffsetToCommit("t", 0, 1, -1, "x" * 9), OffsetToCommit("t", 1, 1, -1, "x" * 8), ("t", 2, 1)
    )
    assert reply.errors == (ErrorCode.offset_metadata_too_large, ErrorCode.none, ErrorCode.none)
    assert group.committed("t", 0) is None
    assert group.committed("t", 1) is not None


@pytest.mark.parametrize(
    ("text", "fits"), [("é" * 8, True), ("\U0001f600" * 4, True), ("\U0001f600" * 5, False)]
)
def test_metadata_is_measured_as_kafka_measures_it(text: str, fits: bool) -> None:
    reply = GroupHarness().commit(OffsetToCommit("t", 0, 1, -1, text))
    assert (reply.errors == (ErrorCode.none,)) is fits


@pytest.mark.parametrize(
    ("version", "error"), [(2, "illegal_generation"), (8, "illegal_generation"), (9, "group_id_not_found")]
)
def test_a_member_of_a_group_that_is_not_there_is_refused(version: int, error: str) -> None:
    group = GroupHarness()
    reply = group.commit(("t", 0, 1), generation=3, member_id="m", version=version)
    assert reply.error is ErrorCode[error]
    assert not group.records


def test_members_commit_with_their_generation() -> None:
    group = GroupHarness()
    leader, follower = group.stable_group(2)
    assert group.commit(("t", 0, 1), member_id=leader, generation=1).error is ErrorCode.none
    refusals = {
        "another generation": ({"member_id": leader, "generation": 0}, ErrorCode.illegal_generation),
        "a generation to come": ({"member_id": leader, "generation": 2}, ErrorCode.illegal_generation),
        "a stranger": ({"member_id": "who", "generation": 1}, ErrorCode.unknown_member_id),
        "nobody, while there are members": ({}, ErrorCode.unknown_member_id),
        "an unknown instance": (
            {"member_id": follower, "generation": 1, "group_instance_id": "i"},
            ErrorCode.unknown_member_id,
        ),
    }
    for what, (request, error) in refusals.items():
        assert group.commit(("t", 0, 9), **request).error is error, what
    assert group.committed() == CommittedOffset(1, -1, "", group.now.wall_ms)


def test_a_fenced_instance_may_not_commit() -> None:
    group = GroupHarness()
    token = group.join(group_instance_id="i")
    group.advance(3_000)
    old = group.joined(token).member_id
    group.sync(old, 1, group_instance_id="i")
    group.join(group_instance_id="i")
    reply = group.commit(("t", 0, 1), member_id=old, generation=1, group_instance_id="i")
    assert reply.error is ErrorCode.fenced_instance_id


def test_commits_follow_the_rebalance() -> None:
    """Before: the old generation commits. While assignments are made: wait. After: it is refused."""
    group = GroupHarness()
    leader, follower = group.stable_group(2)
    waiting = group.join(leader)
    assert group.commit(("t", 0, 1), member_id=follower, generation=1).error is ErrorCode.none
    group.join(follower)
    assert group.joined(waiting).generation == 2
    reply = group.commit(("t", 0, 2), member_id=follower, generation=2)
    assert reply.error is ErrorCode.rebalance_in_progress
    group.sync(leader, 2)
    group.sync(follower, 2)
    assert group.commit(("t", 0, 3), member_id=follower, generation=1).error is ErrorCode.illegal_generation
    assert group.commit(("t", 0, 4), member_id=follower, generation=2).error is ErrorCode.none


def test_no_commit_of_a_former_owner_is_accepted_once_the_new_owner_reads_where_to_start() -> None:
    group = GroupHarness()
    (old,) = group.stable_group(1)
    assert group.commit(("t", 0, 5), member_id=old, generation=1).error is ErrorCode.none
    new, waiting = group.new_member()
    group.advance(70_000)
    reply = group.joined(waiting)
    group.sync(new, reply.generation)
    assert group.committed() == CommittedOffset(5, -1, "", group.now.wall_ms - 70_000)
    assert group.commit(("t", 0, 9), member_id=old, generation=1).error is ErrorCode.unknown_member_id


def test_a_commit_extends_the_session() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1)
    for offset in range(3):
        group.advance(SESSION_MS - 1)
        assert group.commit(("t", 0, offset), member_id=member, generation=1).error is ErrorCode.none
    group.advance(SESSION_MS)
    assert group.heartbeat(member, 1) is ErrorCode.unknown_member_id


def test_offsets_of_unsubscribed_topics_are_deleted() -> None:
    group = GroupHarness()
    assert group.delete_offsets(("t", 0)).error is ErrorCode.group_id_not_found
    (member,) = group.stable_group(1)
    group.commit(("t", 0, 1), ("u", 0, 2), member_id=member, generation=1)
    reply = group.delete_offsets(("t", 0), ("u", 0), ("u", 7))
    assert reply.errors == (ErrorCode.group_subscribed_to_topic, ErrorCode.none, ErrorCode.none)
    assert group.tombstones() == [("u", 0)]
    assert (group.committed("t"), group.committed("u")) != (None, None)
    group.leave(member)
    assert group.delete_offsets(("t", 0)).errors == (ErrorCode.none,)
    assert group.committed("t") is None


def test_a_group_of_another_protocol_type_keeps_its_offsets_while_it_has_members() -> None:
    group = GroupHarness()
    kind = {"protocol_type": "connect", "protocols": protocols("x", metadata=b"not a subscription")}
    member, _ = group.new_member(**kind)
    group.advance(3_000)
    group.sync(member, 1)
    assert group.delete_offsets(("t", 0)).error is ErrorCode.non_empty_group


def test_a_consumer_whose_subscription_cannot_be_read_counts_as_subscribed_to_all() -> None:
    group = GroupHarness()
    member, _ = group.new_member(protocols=protocols("x", metadata=b"?"))
    group.advance(3_000)
    group.sync(member, 1)
    assert group.delete_offsets(("t", 0)).errors == (ErrorCode.group_subscribed_to_topic,)


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1), ("t", 1, 1), ("u", 0, 1))
    group.submit(TopicsDeleted(topics={"t": uuid.UUID(int=1)}))
    assert group.tombstones() == [("t", 0), ("t", 1)]
    assert [(found.topic, found.partition) for found in group.fetch(None).offsets] == [("u", 0)]


def test_offsets_of_a_new_topic_with_the_old_name_stay() -> None:
    group = GroupHarness()
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    group.commit(("t", 0, 1, -1, None, old), ("t", 1, 1, -1, None, new))
    group.submit(TopicsDeleted(topics={"t": old}))
    assert group.tombstones() == [("t", 0)]


def test_deleting_a_group_takes_offsets_and_members_part() -> None:
    group = GroupHarness()
    assert group.delete_group() is ErrorCode.group_id_not_found
    (member,) = group.stable_group(1)
    group.commit(("t", 0, 1), member_id=member, generation=1)
    assert group.delete_group() is ErrorCode.non_empty_group
    group.leave(member)
    assert group.delete_group() is ErrorCode.none
    assert group.group.is_gone
    assert group.records[-2:] == [
        GroupMetadataRecord(group_id="g", value=None),
        OffsetCommitRecord("g", "t", 0, None),
    ]


def test_a_group_of_offsets_alone_can_be_deleted() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1))
    assert group.delete_group() is ErrorCode.none
    assert group.group.is_gone


def test_retention_counts_from_when_the_group_became_empty() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1)
    group.commit(("t", 0, 1), member_id=member, generation=1)
    for _ in range(20):
        group.advance(SESSION_MS - 1)
        group.heartbeat(member, 1)
    group.submit(RetentionCheck())
    assert group.committed() is not None, "old, but somebody reads it"
    group.leave(member)
    group.advance(RETENTION_MS - 1)
    group.submit(RetentionCheck())
    assert group.committed() is not None
    group.advance(1)
    group.submit(RetentionCheck())
    assert group.group.is_gone, "the group goes with its last offset"
    assert group.records[-1] == GroupMetadataRecord(group_id="g", value=None)


def test_a_stable_group_loses_old_offsets_of_topics_it_no_longer_reads() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1, session_timeout_ms=600_000)
    group.commit(("t", 0, 1), ("u", 0, 1), member_id=member, generation=1)
    group.advance(RETENTION_MS)
    group.submit(RetentionCheck())
    assert group.tombstones() == [("u", 0)]
    assert not group.group.is_gone


def test_while_it_rebalances_a_group_loses_nothing() -> None:
    group = GroupHarness()
    leader, _follower = group.stable_group(2, session_timeout_ms=600_000, rebalance_timeout_ms=500_000)
    group.commit(("u", 0, 1), member_id=leader, generation=1)
    group.join(leader)
    group.advance(RETENTION_MS)
    group.submit(RetentionCheck())
    assert group.tombstones() == []


def test_without_members_each_commit_counts_for_itself() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1))
    group.advance(RETENTION_MS // 2)
    group.commit(("t", 1, 1))
    group.advance(RETENTION_MS // 2)
    group.submit(RetentionCheck())
    assert group.tombstones() == [("t", 0)]


def test_an_expiry_that_an_old_client_asked_for_is_honoured() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1, 7), retention_ms=5_000, version=4)
    assert group.replayed(new_group).snapshot() == group.machine.snapshot()
    group.advance(5_000)
    group.submit(RetentionCheck())
    assert group.group.is_gone


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63)])
def test_an_expiry_beyond_64_bits_is_the_last_moment_that_a_record_can_say(retention_ms: int) -> None:
    """Found by fuzzing: the record could not be written."""
    group = GroupHarness()
    group.commit(("t", 0, 1, 7), retention_ms=retention_ms, version=4)
    (record,) = group.records
    assert isinstance(record, OffsetCommitRecord)
    assert record.value.expire_timestamp <= 2**63 - 1
    assert group.replayed(new_group).snapshot() == group.machine.snapshot()


def test_an_empty_group_without_offsets_ends_at_the_next_check() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1)
    group.submit(RetentionCheck())
    assert not group.group.is_gone
    group.leave(member)
    group.submit(RetentionCheck())
    assert group.group.is_gone


def transaction(group: GroupHarness, producer_id: int, offset: int) -> None:
    assert group.commit(("t", 0, offset), producer_id=producer_id).error is ErrorCode.none


def end(group: GroupHarness, producer_id: int, *, committed: bool) -> None:
    marker = TransactionMarkerRecord(producer_id=producer_id, committed=committed)
    group.machine.apply(marker)
    group.records.append(marker)


def test_offsets_of_a_transaction_count_from_its_marker() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1))
    transaction(group, 7, 5)
    assert group.committed() == CommittedOffset(1, -1, "", group.now.wall_ms)
    (unstable,) = group.fetch((("t", 0),), require_stable=True).offsets
    assert (unstable.committed, unstable.error) == (None, ErrorCode.unstable_offset_commit)
    end(group, 7, committed=True)
    assert group.committed(require_stable=True) == CommittedOffset(5, -1, "", group.now.wall_ms)


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    group = GroupHarness()
    transaction(group, 7, 5)
    end(group, 7, committed=False)
    assert group.committed(require_stable=True) is None
    assert group.group.is_gone


def test_a_plain_commit_made_during_a_transaction_wins() -> None:
    group = GroupHarness()
    transaction(group, 7, 5)
    group.commit(("t", 0, 9))
    (unstable,) = group.fetch((("t", 0),), require_stable=True).offsets
    assert unstable.error is ErrorCode.unstable_offset_commit
    end(group, 7, committed=True)
    assert group.committed() == CommittedOffset(9, -1, "", group.now.wall_ms)


def test_offsets_of_an_open_transaction_do_not_expire_and_can_be_deleted() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1))
    transaction(group, 7, 5)
    group.advance(RETENTION_MS)
    group.submit(RetentionCheck())
    assert group.tombstones() == []
    assert group.delete_offsets(("t", 0)).errors == (ErrorCode.none,)
    end(group, 7, committed=True)
    assert group.committed() is None


def test_a_transaction_may_commit_without_naming_a_member() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1)
    assert group.commit(("t", 0, 1), producer_id=7).error is ErrorCode.none
    stale = group.commit(("t", 0, 1), producer_id=7, member_id=member, generation=0)
    assert stale.error is ErrorCode.illegal_generation


def test_of_several_transactions_the_last_record_wins_whenever_the_markers_come() -> None:
    """The last record is what compaction keeps."""
    group = GroupHarness()
    transaction(group, 7, 5)
    transaction(group, 8, 6)
    end(group, 8, committed=True)
    assert group.fetch((("t", 0),), require_stable=True).offsets[0].error is ErrorCode.unstable_offset_commit
    end(group, 7, committed=True)
    assert group.committed(require_stable=True) == CommittedOffset(6, -1, "", group.now.wall_ms)
    transaction(group, 7, 1)
    transaction(group, 8, 2)
    transaction(group, 7, 3)
    end(group, 7, committed=True)
    end(group, 8, committed=True)
    assert group.committed() == CommittedOffset(3, -1, "", group.now.wall_ms)


def test_an_aborted_transaction_supersedes_nothing() -> None:
    group = GroupHarness()
    transaction(group, 7, 5)
    transaction(group, 8, 6)
    end(group, 8, committed=False)
    end(group, 7, committed=True)
    assert group.committed() == CommittedOffset(5, -1, "", group.now.wall_ms)


def test_markers_of_unknown_producers_and_repeated_ones_change_nothing() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1))
    transaction(group, 7, 5)
    end(group, 99, committed=True)
    end(group, 7, committed=True)
    before = group.machine.snapshot()
    end(group, 7, committed=False)
    end(group, 7, committed=True)
    assert group.machine.snapshot() == before
    assert group.committed() == CommittedOffset(5, -1, "", group.now.wall_ms)


def test_only_what_pends_is_unstable() -> None:
    group = GroupHarness()
    group.commit(("t", 1, 1), ("u", 0, 2))
    transaction(group, 7, 5)
    errors = [
        found.error for found in group.fetch((("t", 0), ("t", 1), ("u", 0)), require_stable=True).offsets
    ]
    assert errors == [ErrorCode.unstable_offset_commit, ErrorCode.none, ErrorCode.none]
    assert group.committed() is None, "without require_stable what was committed before is told"


def test_a_group_that_waits_for_a_marker_does_not_expire_and_can_be_deleted() -> None:
    group = GroupHarness()
    transaction(group, 7, 5)
    group.advance(10 * RETENTION_MS)
    group.submit(RetentionCheck())
    assert not group.group.is_gone
    assert group.delete_group() is ErrorCode.none
    assert group.tombstones() == [("t", 0)]
    end(group, 7, committed=True)
    assert group.group.is_gone, "a marker brings nothing back"


def test_a_deleted_topic_takes_pending_offsets_with_it() -> None:
    group = GroupHarness()
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    group.commit(("t", 0, 5, -1, None, old), ("t", 1, 5, -1, None, new), producer_id=7, producer_epoch=0)
    group.submit(TopicsDeleted(topics={"t": old}))
    assert group.tombstones() == [("t", 0)]
    end(group, 7, committed=True)
    assert (group.committed("t", 0), group.committed("t", 1) is None) == (None, False)


def test_a_transactional_commit_names_the_producer_of_its_batch() -> None:
    group = GroupHarness()
    token = group.token()
    offsets = (OffsetToCommit("t", 0, 1),)
    effects = group.submit(OffsetCommit.of(offsets, token=token, version=3, producer_id=7, producer_epoch=4))
    assert [record.producer for record in effects.records] == [BatchProducer(7, 4)]
    token = group.token()
    effects = group.submit(OffsetCommit.of(offsets, token=token, version=9))
    assert [record.producer for record in effects.records] == [None]


def test_generation_and_member_fence_a_transaction() -> None:
    """KIP-447."""
    group = GroupHarness()
    missing = group.commit(("t", 0, 1), producer_id=7, member_id="m", generation=1)
    assert missing.error is ErrorCode.illegal_generation, "there is no such group"
    (member,) = group.stable_group(1)
    refusals = {
        "an earlier generation": ({"member_id": member, "generation": 0}, ErrorCode.illegal_generation),
        "a stranger": ({"member_id": "who", "generation": 1}, ErrorCode.unknown_member_id),
        "an unknown instance": (
            {"member_id": member, "generation": 1, "group_instance_id": "i"},
            ErrorCode.unknown_member_id,
        ),
    }
    for what, (request, error) in refusals.items():
        assert group.commit(("t", 0, 9), producer_id=7, **request).error is error, what
    assert group.committed(require_stable=True) is None
    assert group.commit(("t", 0, 9), producer_id=7, member_id=member, generation=1).error is ErrorCode.none


def test_a_fenced_instance_may_not_commit_in_a_transaction() -> None:
    group = GroupHarness()
    token = group.join(group_instance_id="i")
    group.advance(3_000)
    old = group.joined(token).member_id
    group.sync(old, 1, group_instance_id="i")
    group.join(group_instance_id="i")
    reply = group.commit(("t", 0, 1), producer_id=7, member_id=old, generation=1, group_instance_id="i")
    assert reply.error is ErrorCode.fenced_instance_id


def test_a_transaction_commits_while_assignments_are_made() -> None:
    """As in Apache Kafka: the state of the group is not enforced."""
    group = GroupHarness()
    leader, follower = group.stable_group(2)
    group.join(leader)
    group.join(follower)
    reply = group.commit(("t", 0, 2), producer_id=7, member_id=follower, generation=2)
    assert reply.error is ErrorCode.none


def test_a_stale_member_epoch_is_told_to_a_transaction_as_an_illegal_generation() -> None:
    group = GroupHarness()
    epoch = heartbeat(group).member_epoch
    for stale in (epoch + 1, epoch - 1):
        refused = group.commit(("t", 0, 1), producer_id=7, member_id="m", generation=stale)
        assert refused.error is ErrorCode.illegal_generation
    unknown = group.commit(("t", 0, 1), producer_id=7, member_id="n", generation=epoch)
    assert unknown.error is ErrorCode.unknown_member_id
    assert group.commit(("t", 0, 1), producer_id=7, member_id="m", generation=epoch).error is ErrorCode.none
    anonymous = group.commit(("t", 0, 1), producer_id=7)
    assert anonymous.error is ErrorCode.none, "before KIP-447 producers knew no members"


def test_a_transactional_commit_is_not_shown_as_a_reset() -> None:
    group = GroupHarness()
    group.stable_group(1)
    transaction(group, 7, 5)
    assert "offsets_reset" not in [line.kind for line in group.timeline]


def test_offsets_survive_a_change_of_coordinator() -> None:
    group = GroupHarness()
    group.commit(("t", 0, 1), ("t", 1, 2))
    transaction(group, 7, 5)
    group.delete_offsets(("t", 1))
    before = group.machine.snapshot()
    group.restart(new_group)
    assert group.machine.snapshot() == before


@pytest.mark.row("D21")
def test_commit_events_are_limited_to_one_per_second_and_member() -> None:
    group = GroupHarness()
    for _ in range(25):
        group.commit(("t", 0, 1))
        group.advance(100)
    told = [line for line in group.timeline if line.kind == "commit"]
    assert len(told) == 3
    assert told[0].details["offsets"] == [("t", 0, 1)]


@pytest.mark.row("D21")
def test_a_commit_event_names_the_first_twenty_partitions_that_were_committed() -> None:
    group = GroupHarness()
    group.commit(*(("t", partition, 7) for partition in range(30)))
    (details,) = [line.details for line in group.timeline if line.kind == "commit"]
    assert details["partitions"] == 30
    assert details["offsets"] == [("t", partition, 7) for partition in range(20)]


def heartbeat(group: GroupHarness, **changes: Any) -> ConsumerGroupHeartbeatReply:
    token: ReplyToken = group.token()
    request: dict[str, Any] = {
        "token": token,
        "version": 1,
        "member_id": "m",
        "member_epoch": 0,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "owned_partitions": {},
    }
    group.submit(ConsumerGroupHeartbeat(**{**request, **changes}))
    return group.reply(token, ConsumerGroupHeartbeatReply)


def test_an_empty_group_changes_its_protocol_with_its_first_member_and_keeps_its_offsets() -> None:
    group = GroupHarness()
    (member,) = group.stable_group(1)
    group.commit(("t", 0, 1), member_id=member, generation=1)
    assert heartbeat(group).error is ErrorCode.group_id_not_found, "its assignment is not of consumers"
    group.leave(member)
    assert heartbeat(group).error is ErrorCode.none
    description = group.group.describe()
    assert (description.group_type, group.group.classic.membership.exists) == ("Consumer", False)
    assert group.join_error() is ErrorCode.member_id_required, "classic members may join it now"
    assert group.committed() is not None
    assert heartbeat(group, member_epoch=-1).error is ErrorCode.none
    assert group.join_error() is ErrorCode.member_id_required
    assert group.group.describe().group_type == "Classic"
    assert group.group.describe_consumer_group() is None
    assert group.committed() is not None


def test_members_of_the_consumer_protocol_commit_with_their_epoch() -> None:
    group = GroupHarness()
    epoch = heartbeat(group).member_epoch
    assert group.commit(("t", 0, 1), member_id="m", generation=epoch).error is ErrorCode.none
    refused = group.commit(("t", 0, 1), member_id="m", generation=epoch + 1)
    assert refused.error is ErrorCode.stale_member_epoch
    assert group.fetch(None, member_id="m", member_epoch=epoch + 1).error is ErrorCode.stale_member_epoch
    assert group.delete_offsets(("t", 0)).errors == (ErrorCode.group_subscribed_to_topic,)


def test_both_protocols_survive_a_change_of_coordinator() -> None:
    group = GroupHarness()
    heartbeat(group)
    before = group.machine.snapshot()
    group.restart(new_group)
    assert group.machine.snapshot() == before
    group.advance(60_000)
    assert group.group.describe().state == "Empty", "the silent member was given up"
