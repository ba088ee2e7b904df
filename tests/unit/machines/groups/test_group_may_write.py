# SPDX-License-Identifier: Apache-2.0
"""Which events of a group may write: they are refused while too few replicas are in sync (R17).

That what surely does not write does not is checked at every step of every test of a group
(tests/harness/groups/machine_driver.py); here: that members can stay while nothing can be written.
"""

from __future__ import annotations

import uuid
from typing import Any

from headrace.machines.groups.classic.rebalance import JOIN_TIMER, ClassicGroupSettings, session_timer
from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeat, MetadataChanged
from headrace.machines.groups.events import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
    TopicsDeleted,
)
from headrace.machines.machine import Event, Loaded, ReplyToken, TimerFired
from tests.harness.groups.classic_requests import SESSION_MS, protocols
from tests.harness.groups.consumer_groups import CLIENT, cluster_view
from tests.harness.groups.mixed_groups import MixedHarness

TOKEN = ReplyToken(999)


def heartbeat(member_id: str, generation: int) -> Heartbeat:
    return Heartbeat(
        token=TOKEN, version=4, member_id=member_id, group_instance_id=None, generation=generation
    )


def join(member_id: str, instance_id: str | None = None) -> JoinGroup:
    return JoinGroup(
        token=TOKEN,
        version=9,
        member_id=member_id,
        group_instance_id=instance_id,
        client_id="c",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=protocols("range"),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        fresh_member_id="fresh",
    )


def sync(member_id: str, generation: int) -> SyncGroup:
    return SyncGroup(
        token=TOKEN, version=5, member_id=member_id, group_instance_id=None, generation=generation
    )


def beat(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeat:
    request: dict[str, Any] = {
        "token": TOKEN,
        "version": 1,
        "member_id": member_id,
        "member_epoch": epoch,
        **CLIENT,
    }
    return ConsumerGroupHeartbeat(**{**request, **fields})


def may_write(harness: MixedHarness, event: Event) -> bool:
    return harness.group.may_write(event)


def test_classic_members_heartbeat_and_read_while_nothing_can_be_written() -> None:
    group = MixedHarness({"t": 2})
    leader, follower = group.stable_group(2)
    for event in (
        heartbeat(leader, 1),
        OffsetFetch(token=TOKEN, version=9, partitions=None),
        sync(follower, 1),
        join(follower),
        MetadataChanged(view=cluster_view(2, {"t": 3}), topics_created=True),
        Loaded(),
    ):
        assert not may_write(group, event), event
    for event in (
        OffsetCommit.of([], token=TOKEN, version=9),
        LeaveGroup(token=TOKEN, version=5, members=(LeavingMember(follower),)),
        join("", instance_id="i"),
        TimerFired(session_timer(leader)),
    ):
        assert may_write(group, event), event


def test_the_assignment_of_a_rebalance_is_written() -> None:
    group = MixedHarness({"t": 2}, classic=ClassicGroupSettings())
    assert may_write(group, join("")), "the group does not exist"
    leader, follower = group.stable_group(2)
    group.join(leader)
    group.join(follower)
    assert may_write(group, sync(leader, 2))
    assert not may_write(group, sync(follower, 2))


def test_members_that_joined_are_answered_and_an_empty_group_is_written() -> None:
    group = MixedHarness({"t": 2}, classic=ClassicGroupSettings())
    group.new_member()
    assert not may_write(group, TimerFired(JOIN_TIMER))
    assert may_write(MixedHarness({"t": 2}), TimerFired(JOIN_TIMER)), "nobody has joined"


def test_consumers_stay_with_heartbeats_that_change_nothing() -> None:
    group = MixedHarness({"t": 2})
    assert may_write(group, beat("m", 0, subscribed_topic_names=("t",), rebalance_timeout_ms=60_000))
    epoch = group.beat_join("m", "t").member_epoch
    assert not may_write(group, beat("m", epoch))
    same = {"subscribed_topic_names": ("t",), "rebalance_timeout_ms": 60_000}
    assert not may_write(group, beat("m", epoch, **same)), "a client repeats all after an error"
    full = {"subscribed_topic_names": ("t",), "owned_partitions": {}, "rebalance_timeout_ms": 60_000}
    assert may_write(group, beat("m", epoch, subscribed_topic_names=("u",)))
    assert not may_write(group, beat("m", epoch + 9)), "it is refused"
    assert not may_write(group, beat("stranger", epoch)), "it is refused"
    assert may_write(group, beat("m", -1)), "it leaves"
    assert may_write(group, beat("n", 0, **full)), "it joins"


def test_a_consumer_is_assigned_when_records_can_be_written() -> None:
    group = MixedHarness({"t": 2})
    epoch = group.beat_join("m", "t").member_epoch
    group.beat_join("n", "t")
    assert may_write(group, beat("m", epoch)), "it has a new target"
    group.beat("m", epoch)


def test_deleted_topics_are_written_where_the_group_has_their_offsets() -> None:
    group = MixedHarness({"t": 2})
    assert not may_write(group, TopicsDeleted(topics={"t": uuid.UUID(int=1)}))
