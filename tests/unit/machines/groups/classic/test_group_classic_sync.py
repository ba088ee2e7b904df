# SPDX-License-Identifier: Apache-2.0
"""SyncGroup, Heartbeat, LeaveGroup, sessions and reload of classic groups."""

from __future__ import annotations

import pytest

from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.events import DeleteGroup, ErrorReply, LeavingMember
from headrace.wire.coordinator.group_records import GroupMetadata, GroupMetadataRecord, MemberMetadata
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicHarness,
    assignment,
    protocols,
    subscription,
)


def group_of(group: ClassicHarness) -> ClassicGroup:
    assert isinstance(group.machine, ClassicGroup)
    return group.machine


def state(group: ClassicHarness) -> str:
    return group_of(group).membership.describe().state


def completing(size: int = 2) -> tuple[ClassicHarness, list[str]]:
    """A group in CompletingRebalance, generation 1; the leader first."""
    group = ClassicHarness()
    waiting = [group.new_member() for _ in range(size)]
    group.advance(10_000)
    assert state(group) == "CompletingRebalance"
    leader = group.joined(waiting[0][1]).leader
    return group, sorted((member for member, _ in waiting), key=lambda member: member != leader)


def test_followers_wait_for_the_leaders_assignment() -> None:
    group, (leader, follower) = completing()
    waiting = group.sync(follower, 1)
    assert group.waits(waiting)
    token = group.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F")))
    assert group.synced(token).assignment == b"L"
    reply = group.synced(waiting)
    assert (reply.assignment, reply.protocol_type, reply.protocol) == (b"F", "consumer", "range")
    assert state(group) == "Stable"


def test_the_assignment_is_recorded_as_kafka_records_it() -> None:
    group, (leader, follower) = completing()
    group.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F")))
    members = tuple(
        MemberMetadata(
            member_id=member,
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=REBALANCE_MS,
            session_timeout_ms=SESSION_MS,
            subscription=subscription(["t"]),
            assignment=given,
        )
        for member, given in ((leader, b"L"), (follower, b"F"))
    )
    value = GroupMetadata(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=group.now.wall_ms,
        members=members,
    )
    assert group.records[1:] == [GroupMetadataRecord(group_id="g", value=value)]


def test_members_missing_in_an_assignment_get_nothing_and_unknown_ones_are_ignored() -> None:
    group, (leader, follower) = completing()
    waiting = group.sync(follower, 1)
    group.sync(leader, 1, assignments=((leader, b"L"), ("stranger", b"X")))
    assert group.synced(waiting).assignment == b""
    record = group.records[-1]
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert {member.member_id for member in record.value.members} == {leader, follower}


def test_in_a_stable_group_a_sync_is_answered_again() -> None:
    group = ClassicHarness()
    leader, follower = group.stable_group(2)
    assert group.synced(group.sync(follower, 1)).assignment == b"for " + follower.encode()
    assert group.synced(group.sync(leader, 1, assignments=((leader, b"other"),))).assignment == (
        b"for " + leader.encode()
    ), "once decided, an assignment stands"


def test_a_repeated_sync_ends_the_first() -> None:
    group, (leader, follower) = completing()
    first = group.sync(follower, 1)
    second = group.sync(follower, 1)
    assert group.synced(first).error is ErrorCode.rebalance_in_progress
    group.sync(leader, 1, assignments=((follower, b"F"),))
    assert group.synced(second).assignment == b"F"


@pytest.mark.parametrize(
    ("request_fields", "error"),
    [
        ({"member_id": "who"}, ErrorCode.unknown_member_id),
        ({"generation": 0}, ErrorCode.illegal_generation),
        ({"generation": 2}, ErrorCode.illegal_generation),
        ({"protocol_type": "connect", "protocol": "range"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "consumer", "protocol": "sticky"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "consumer", "protocol": "range"}, None),
        ({"protocol_type": None, "protocol": None, "version": 4}, None),
        ({"protocol_type": None, "protocol": "range"}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": "consumer", "protocol": None}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(
    request_fields: dict[str, object], error: ErrorCode | None
) -> None:
    group, (_leader, follower) = completing()
    fields = {"member_id": follower, "generation": 1, **request_fields}
    token = group.sync(fields.pop("member_id"), fields.pop("generation"), **fields)  # type: ignore[arg-type]
    assert group.waits(token) if error is None else group.synced(token).error is error


def test_while_members_rejoin_a_sync_is_refused() -> None:
    group = ClassicHarness()
    leader, follower = group.stable_group(2)
    group.join(leader)
    assert group.sync_error(follower, 1) is ErrorCode.rebalance_in_progress


def test_a_join_during_the_sync_phase_turns_waiting_syncs_away() -> None:
    group, (_leader, follower) = completing()
    waiting = group.sync(follower, 1)
    group.new_member()
    assert group.synced(waiting).error is ErrorCode.rebalance_in_progress
    assert state(group) == "PreparingRebalance"


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    group, (leader, follower) = completing()
    group.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F")))
    for _ in range(REBALANCE_MS // 5_000):
        group.advance(5_000)
        group.heartbeat(leader, 1)
        group.heartbeat(follower, 1)
    assert state(group) == "PreparingRebalance"
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id
    assert group.heartbeat(leader, 1) is ErrorCode.rebalance_in_progress


def test_a_leader_that_does_not_sync_is_out_and_the_waiting_follower_rejoins() -> None:
    group, (leader, follower) = completing()
    waiting = group.sync(follower, 1)
    while group.waits(waiting):
        group.heartbeat(leader, 1)
        group.advance(5_000)
    assert group.synced(waiting).error is ErrorCode.rebalance_in_progress
    assert group.joined(group.join(follower)).leader == follower


def test_a_pending_sync_extends_the_session_and_its_reply_restarts_it() -> None:
    group, (leader, follower) = completing()
    waiting = group.sync(follower, 1)
    for _ in range(4):
        group.heartbeat(leader, 1)
        group.advance(SESSION_MS - 1)
    assert group.waits(waiting)
    group.sync(leader, 1)
    group.advance(SESSION_MS - 1)
    group.heartbeat(leader, 1)
    assert state(group) == "Stable"
    group.advance(1)
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id


def test_heartbeats_are_answered_by_state() -> None:
    group, (leader, follower) = completing()
    assert group.heartbeat(leader, 1) is ErrorCode.none
    assert group.heartbeat("who", 1) is ErrorCode.unknown_member_id
    assert group.heartbeat(leader, 0) is ErrorCode.illegal_generation
    group.sync(leader, 1)
    assert group.heartbeat(follower, 1) is ErrorCode.none
    group.join(leader)
    assert group.heartbeat(follower, 1) is ErrorCode.rebalance_in_progress
    assert ClassicHarness().heartbeat("m", 0) is ErrorCode.unknown_member_id


def test_a_silent_member_is_given_up_when_its_session_ends() -> None:
    group = ClassicHarness()
    leader, follower = group.stable_group(2)
    group.advance(SESSION_MS - 1)
    group.heartbeat(leader, 1)
    assert state(group) == "Stable"
    group.advance(1)
    assert group.heartbeat(follower, 1) is ErrorCode.unknown_member_id
    assert group.heartbeat(leader, 1) is ErrorCode.rebalance_in_progress


def test_a_group_whose_last_member_leaves_writes_an_empty_generation() -> None:
    group = ClassicHarness()
    (member,) = group.stable_group(1)
    group.leave(member)
    record = group.records[-1]
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert (record.value.generation, record.value.members, record.value.leader) == (2, (), None)
    assert (record.value.protocol_type, record.value.protocol) == ("consumer", None)
    assert state(group) == "Empty"
    assert not group.timers


def test_an_empty_group_begins_again_with_the_next_generation() -> None:
    group = ClassicHarness()
    (member,) = group.stable_group(1)
    group.leave(member)
    _, token = group.new_member(protocol_type="connect", protocols=protocols("default"))
    group.advance(3_000)
    reply = group.joined(token)
    assert (reply.generation, reply.protocol_type) == (3, "connect")


def test_several_members_leave_at_once_each_with_its_own_answer() -> None:
    group = ClassicHarness()
    members = group.stable_group(3)
    reply = group.leave(members[0], "who", LeavingMember(members[1], None, "scaling down"))
    assert [left.error for left in reply.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
    ]
    assert reply.error is ErrorCode.none
    assert group.joined(group.join(members[2])).leader == members[2]


@pytest.mark.parametrize("version", range(3))
def test_before_version_3_the_one_members_error_is_the_replys(version: int) -> None:
    group = ClassicHarness()
    (member,) = group.stable_group(1)
    assert group.leave("who", version=version).error is ErrorCode.unknown_member_id
    assert group.leave(member, version=version).error is ErrorCode.none


def test_leaving_a_group_that_is_not_there() -> None:
    assert ClassicHarness().leave("m").members[0].error is ErrorCode.unknown_member_id


def test_leaving_while_others_wait_lets_them_go_on() -> None:
    group = ClassicHarness()
    leader, follower = group.stable_group(2)
    waiting = group.join(leader)
    group.leave(follower)
    assert group.joined(waiting).generation == 2


def test_the_pending_request_of_a_leaving_member_is_answered() -> None:
    group, (_leader, follower) = completing()
    waiting = group.sync(follower, 1)
    group.leave(follower)
    assert group.synced(waiting).error is ErrorCode.unknown_member_id
    group = ClassicHarness()
    member, joining = group.new_member()
    group.leave(member)
    assert group.joined(joining).error is ErrorCode.unknown_member_id


def test_an_id_that_was_given_out_can_leave() -> None:
    group = ClassicHarness()
    given = group.joined(group.join()).member_id
    assert group.leave(given).members[0].error is ErrorCode.none
    assert not group.timers
    assert group.join_error(given) is ErrorCode.unknown_member_id


def test_a_stable_group_survives_a_change_of_coordinator_without_a_rebalance() -> None:
    group = ClassicHarness()
    members = group.stable_group(3)
    group.restart(lambda: ClassicGroup("g"))
    assert state(group) == "Stable"
    assert [group.heartbeat(member, 1) for member in members] == [ErrorCode.none] * 3
    assert group.synced(group.sync(members[1], 1)).assignment == b"for " + members[1].encode()
    group.advance(SESSION_MS)
    assert state(group) == "Empty", "sessions begin anew with the new coordinator, and end"


def test_an_unfinished_rebalance_is_dropped_at_load() -> None:
    group = ClassicHarness()
    leader, follower = group.stable_group(2)
    group.join(leader)
    group.restart(lambda: ClassicGroup("g"))
    assert [group.heartbeat(member, 1) for member in (leader, follower)] == [ErrorCode.none] * 2


def test_descriptions_show_metadata_only_of_a_stable_group() -> None:
    group, (leader, follower) = completing()
    description = group_of(group).membership.describe()
    assert (description.state, description.protocol) == ("CompletingRebalance", "")
    assert {member.metadata for member in description.members} == {b""}
    group.sync(leader, 1, assignments=((leader, b"L"), (follower, b"F")))
    description = group_of(group).membership.describe()
    assert (description.protocol_type, description.protocol) == ("consumer", "range")
    assert {m.member_id: (m.metadata, m.assignment) for m in description.members} == {
        leader: (subscription(["t"]), b"L"),
        follower: (subscription(["t"]), b"F"),
    }
    dead = ClassicGroup("none").membership.describe()
    assert (dead.state, dead.members, dead.protocol_type) == ("Dead", (), "")


def delete(group: ClassicHarness) -> ErrorCode:
    token = group.token()
    group.submit(DeleteGroup(token=token, version=2))
    return group.reply(token, ErrorReply).error


def test_only_an_empty_group_can_be_deleted() -> None:
    group = ClassicHarness()
    assert delete(group) is ErrorCode.group_id_not_found
    (member,) = group.stable_group(1)
    assert delete(group) is ErrorCode.non_empty_group
    group.leave(member)
    group.join()
    assert delete(group) is ErrorCode.none
    assert group.records[-1] == GroupMetadataRecord(group_id="g", value=None)
    assert state(group) == "Dead"
    assert not group.timers, "nor is anybody waited for"
    assert group.join_error() is ErrorCode.member_id_required, "it can be made again"
    assert group.joined(group.join("c-1")).error is ErrorCode.unknown_member_id


@pytest.mark.row("D21")
def test_the_timeline_records_joins_leaves_reasons_and_moved_partitions() -> None:
    group = ClassicHarness()
    (first, token) = group.new_member(client_id="one")
    group.advance(3_000)
    group.sync_all([token], {first: assignment({"t": [0, 1, 2]})})
    (second, joining) = group.new_member(client_id="two", reason="scaling up")
    group.advance(500)
    tokens = [group.join(first), joining]
    group.sync_all(tokens, {first: assignment({"t": [0, 1]}), second: assignment({"t": [2]})})
    group.leave(LeavingMember(second, None, "closing"))
    told = [(line.kind, dict(line.details)) for line in group.timeline]
    assert [kind for kind, _ in told] == [
        "join",
        "rebalance",
        "assigned",
        "join",
        "rebalance",
        "assigned",
        "leave",
        "rebalance",
    ]
    assert told[3][1]["client_id"] == "two"
    assert "scaling up" in told[4][1]["reason"]
    ended = told[5][1]
    assert (ended["generation"], ended["took_ms"], ended["members"]) == (2, 500, 2)
    assert (ended["moved"], ended["moved_count"], ended["given"]) == ([("t-2", first, second)], 1, 0)
    assert told[6][1] == {"member_id": second, "reason": "closing"}


def test_a_session_timeout_is_recorded_in_the_timeline() -> None:
    group = ClassicHarness()
    (member,) = group.stable_group(1)
    group.advance(SESSION_MS)
    line = next(line for line in group.timeline if line.kind == "leave")
    assert line.details == {"member_id": member, "reason": f"silent for {SESSION_MS} ms"}
