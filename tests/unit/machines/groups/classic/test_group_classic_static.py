# SPDX-License-Identifier: Apache-2.0
"""Static members of classic groups (KIP-345): they come back to their place, and the old self is fenced."""

from __future__ import annotations

import pytest

from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.events import LeavingMember
from headrace.wire.coordinator.group_records import GroupMetadataRecord
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import REBALANCE_MS, ClassicHarness, protocols


def state(group: ClassicHarness) -> str:
    assert isinstance(group.machine, ClassicGroup)
    return group.machine.membership.describe().state


def two_static_members() -> tuple[ClassicHarness, str, str]:
    """A stable group: the leader with instance id `a`, a follower with `b`."""
    group = ClassicHarness()
    tokens = [group.join(group_instance_id=instance) for instance in ("a", "b")]
    group.advance(10_000)
    leader, follower = (group.joined(token).member_id for token in tokens)
    group.sync_all(tokens, {leader: b"for a", follower: b"for b"})
    assert state(group) == "Stable"
    return group, leader, follower


def test_a_follower_that_restarts_takes_its_place_without_a_rebalance() -> None:
    group, leader, old = two_static_members()
    token = group.join(group_instance_id="b")
    reply = group.joined(token)
    assert (reply.error, reply.generation, reply.leader, reply.members) == (ErrorCode.none, 1, leader, ())
    assert reply.member_id not in (old, "")
    assert not reply.skip_assignment
    assert group.synced(group.sync(reply.member_id, 1, group_instance_id="b")).assignment == b"for b"
    assert group.heartbeat(leader, 1, "a") is ErrorCode.none
    record = group.records[-1]
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert {(m.member_id, m.assignment) for m in record.value.members} == {
        (leader, b"for a"),
        (reply.member_id, b"for b"),
    }


def test_from_version_9_a_leader_that_restarts_learns_the_members_but_need_not_assign() -> None:
    group, old, follower = two_static_members()
    reply = group.joined(group.join(group_instance_id="a", version=9))
    assert reply.skip_assignment
    assert reply.leader == reply.member_id != old
    assert {member.member_id for member in reply.members} == {reply.member_id, follower}


def test_before_version_9_a_restarted_leader_gets_the_old_leader_id_and_does_not_assign() -> None:
    group, old, _follower = two_static_members()
    reply = group.joined(group.join(group_instance_id="a", version=8))
    assert (reply.leader, reply.members, reply.skip_assignment) == (old, (), False)
    assert state(group) == "Stable"


def test_the_old_self_is_fenced_in_every_request() -> None:
    group, _leader, old = two_static_members()
    group.join(group_instance_id="b")
    assert group.heartbeat(old, 1, "b") is ErrorCode.fenced_instance_id
    assert group.sync_error(old, 1, group_instance_id="b") is ErrorCode.fenced_instance_id
    assert group.join_error(old, group_instance_id="b") is ErrorCode.fenced_instance_id
    (left,) = group.leave(LeavingMember(old, "b")).members
    assert left.error is ErrorCode.fenced_instance_id
    assert group.heartbeat(old, 1) is ErrorCode.unknown_member_id, "without its instance id it is nobody"


def test_an_unknown_instance_id_is_refused() -> None:
    group, leader, _follower = two_static_members()
    assert group.heartbeat(leader, 1, "nobody") is ErrorCode.unknown_member_id
    assert group.sync_error(leader, 1, group_instance_id="nobody") is ErrorCode.unknown_member_id


def test_a_waiting_join_of_the_old_self_is_fenced() -> None:
    group, leader, old = two_static_members()
    waiting = group.join(old, group_instance_id="b", protocols=protocols("range", metadata=b"changed"))
    again = group.join(group_instance_id="b")
    reply = group.joined(waiting)
    assert (reply.member_id, reply.error) == (old, ErrorCode.fenced_instance_id)
    assert group.waits(again)
    group.join(leader, group_instance_id="a")
    assert group.joined(again).generation == 2


def test_a_waiting_sync_of_the_old_self_is_fenced_and_the_group_rebalances() -> None:
    group = ClassicHarness()
    tokens = [group.join(group_instance_id=instance) for instance in ("a", "b")]
    group.advance(10_000)
    old = group.joined(tokens[1]).member_id
    waiting = group.sync(old, 1, group_instance_id="b")
    group.join(group_instance_id="b")
    assert group.synced(waiting).error is ErrorCode.fenced_instance_id
    assert state(group) == "PreparingRebalance", "the leader may be assigning to the old id"


def test_a_member_that_comes_back_with_another_protocol_rebalances() -> None:
    group = ClassicHarness()
    both = protocols("range", "sticky")
    tokens = [group.join(group_instance_id=instance, protocols=both) for instance in ("a", "b")]
    group.advance(10_000)
    group.sync_all(tokens)
    waiting = group.join(group_instance_id="b", protocols=protocols("sticky"))
    assert state(group) == "PreparingRebalance"
    group.join(group.joined(tokens[0]).member_id, group_instance_id="a", protocols=both)
    assert group.joined(waiting).protocol == "sticky"


def test_a_static_member_that_stays_away_is_kept_until_its_session_ends() -> None:
    group, leader, follower = two_static_members()
    group.join(leader, group_instance_id="a", session_timeout_ms=300_000)
    group.heartbeat(follower, 1, "b")
    for _ in range(REBALANCE_MS // 5_000):
        group.advance(5_000)
        group.heartbeat(follower, 1, "b")
    assert isinstance(group.machine, ClassicGroup)
    assert {m.member_id for m in group.machine.membership.describe().members} == {leader, follower}


def test_leaving_without_saying_so_keeps_the_place_and_an_administrator_can_clear_it() -> None:
    group, leader, _follower = two_static_members()
    reply = group.leave(LeavingMember("", "b"))
    assert [(left.group_instance_id, left.error) for left in reply.members] == [("b", ErrorCode.none)]
    assert state(group) == "PreparingRebalance"
    assert group.joined(group.join(leader, group_instance_id="a")).generation == 2


@pytest.mark.parametrize("leaving", [LeavingMember("", "nobody"), LeavingMember("")])
def test_an_administrator_cannot_clear_what_is_not_there(leaving: LeavingMember) -> None:
    group, _leader, _follower = two_static_members()
    assert group.leave(leaving).members[0].error is ErrorCode.unknown_member_id
    assert state(group) == "Stable"


def test_a_returning_member_that_has_not_synced_yet_is_still_waited_for() -> None:
    group = ClassicHarness()
    tokens = [group.join(group_instance_id=instance, session_timeout_ms=300_000) for instance in ("a", "b")]
    group.advance(10_000)
    leader = group.joined(tokens[0]).member_id
    group.sync(leader, 1, group_instance_id="a")
    back = group.joined(group.join(group_instance_id="b", session_timeout_ms=300_000)).member_id
    assert ("sync",) in group.timers
    group.sync(back, 1, group_instance_id="b")
    assert ("sync",) not in group.timers


def test_the_place_survives_a_change_of_coordinator() -> None:
    group, _leader, follower = two_static_members()
    group.restart(lambda: ClassicGroup("g"))
    reply = group.joined(group.join(group_instance_id="b"))
    assert (reply.error, reply.generation) == (ErrorCode.none, 1)
    assert group.heartbeat(follower, 1, "b") is ErrorCode.fenced_instance_id


def test_a_static_member_with_an_expired_session_is_not_awaited() -> None:
    """librdkafka's own test gives the one that is left two seconds for its assignment (0102)."""
    group = ClassicHarness()
    tokens = [group.join(group_instance_id=instance, session_timeout_ms=6_000) for instance in ("a", "b")]
    group.advance(10_000)
    group.sync_all(tokens)
    left = group.joined(tokens[1]).member_id
    for _ in range(3):
        group.heartbeat(left, 1, "b")
        group.advance(3_000)
    assert state(group) == "PreparingRebalance"
    again = group.joined(group.join(left, group_instance_id="b", session_timeout_ms=6_000))
    assert (again.generation, again.leader) == (2, left)
