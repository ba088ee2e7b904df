# SPDX-License-Identifier: Apache-2.0
"""JoinGroup of the classic protocol: who is let in, who waits, who leads, which protocol is chosen."""

from __future__ import annotations

import pytest

from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.events import JoinedMember
from headrace.wire.coordinator.group_records import GroupMetadata, GroupMetadataRecord
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import (
    REBALANCE_MS,
    SESSION_MS,
    ClassicHarness,
    protocols,
    subscription,
)

DELAY_MS = ClassicGroupSettings().initial_rebalance_delay_ms


def harness(**settings: int) -> ClassicHarness:
    return ClassicHarness(ClassicGroup("g", ClassicGroupSettings(**settings)))


def state(group: ClassicHarness) -> str:
    assert isinstance(group.machine, ClassicGroup)
    return group.machine.membership.describe().state


def test_a_first_join_makes_the_group_and_asks_to_come_again_with_an_id() -> None:
    group = harness()
    token = group.join()
    reply = group.joined(token)
    assert (reply.error, reply.member_id, reply.generation) == (ErrorCode.member_id_required, "c-1", -1)
    made = GroupMetadata(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.now.wall_ms,
        members=(),
    )
    assert group.records == [GroupMetadataRecord(group_id="g", value=made)]
    assert group.timers == {("session", "c-1"): group.now.monotonic_ms + SESSION_MS}
    assert state(group) == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_a_member_joins_without_a_second_request(version: int) -> None:
    group = harness()
    token = group.join(version=version)
    assert group.waits(token)
    group.advance(DELAY_MS)
    assert group.joined(token).member_id == "c-1"


@pytest.mark.parametrize("version", range(4, 10))
def test_from_version_4_a_dynamic_member_needs_an_id_first(version: int) -> None:
    assert harness().join_error(version=version) is ErrorCode.member_id_required


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_never_needs_an_id_first(version: int) -> None:
    group = harness()
    token = group.join(version=version, group_instance_id="i")
    group.advance(DELAY_MS)
    assert group.joined(token).member_id == "i-1"


def test_the_leader_learns_all_members_and_the_others_none() -> None:
    group = harness()
    metadata = subscription(["t"])
    (first, first_join), (second, second_join) = group.new_member(), group.new_member()
    group.advance(2 * DELAY_MS)
    leader, follower = group.joined(first_join), group.joined(second_join)
    assert leader.members == (JoinedMember(first, None, metadata), JoinedMember(second, None, metadata))
    assert follower.members == ()
    assert {leader.leader, follower.leader} == {first}
    assert (leader.generation, leader.protocol, leader.protocol_type) == (1, "range", "consumer")
    assert state(group) == "CompletingRebalance"


def test_the_initial_delay_grows_while_new_members_come_up_to_the_rebalance_timeout() -> None:
    group = harness(initial_rebalance_delay_ms=3_000)
    waiting = [group.new_member(rebalance_timeout_ms=10_000)]
    for _ in range(3):
        group.advance(2_900)
        waiting.append(group.new_member(rebalance_timeout_ms=10_000))
    group.advance(10_000 - 3 * 2_900 - 1)
    assert all(group.waits(token) for _, token in waiting)
    group.advance(1)
    assert len(group.joined(waiting[0][1]).members) == 4


def test_the_initial_delay_is_not_extended_without_new_members() -> None:
    group = harness(initial_rebalance_delay_ms=3_000)
    _, token = group.new_member()
    group.advance(2_999)
    assert group.waits(token)
    group.advance(1)
    assert not group.waits(token)


def test_no_initial_delay_ends_the_join_phase_with_the_next_timer() -> None:
    group = harness(initial_rebalance_delay_ms=0)
    _, token = group.new_member()
    assert group.waits(token)
    group.advance(0)
    assert group.joined(token).generation == 1


def test_a_later_join_does_not_wait_for_the_initial_delay() -> None:
    group = harness()
    members = group.stable_group(2)
    newcomer, waiting = group.new_member()
    assert group.waits(waiting)
    rejoined = [group.join(member) for member in members]
    assert [group.joined(token).generation for token in (*rejoined, waiting)] == [2, 2, 2]
    assert group.joined(rejoined[0]).leader == members[0]
    assert newcomer in {joined.member_id for joined in group.joined(rejoined[0]).members}


def test_a_member_that_was_given_an_id_is_waited_for_until_its_session_ends() -> None:
    group = harness()
    (only,) = group.stable_group(1)
    group.join()
    waiting = group.join(only)
    assert group.waits(waiting), "somebody has been given an id and is on the way"
    group.advance(SESSION_MS)
    assert group.joined(waiting).generation == 2


def test_a_leader_that_does_not_rejoin_in_time_is_replaced() -> None:
    group = harness()
    leader, follower = group.stable_group(2, session_timeout_ms=300_000)
    waiting = group.join(follower, protocols=protocols("range", metadata=b"changed"))
    group.advance(REBALANCE_MS - 1)
    assert group.waits(waiting)
    group.advance(1)
    reply = group.joined(waiting)
    assert (reply.leader, len(reply.members)) == (follower, 1)
    assert group.heartbeat(leader, 2) is ErrorCode.unknown_member_id


def test_nobody_rejoins_then_the_group_waits_for_sessions_to_end() -> None:
    group = harness()
    group.join(group_instance_id="i", session_timeout_ms=200_000)
    group.advance(DELAY_MS)
    group.sync("i-1", 1, group_instance_id="i")
    (dynamic,) = [group.new_member(session_timeout_ms=300_000)[0]]
    group.leave(dynamic)
    assert state(group) == "PreparingRebalance"
    group.advance(REBALANCE_MS)
    assert state(group) == "PreparingRebalance", "a static member stays, but it has not come"
    group.advance(200_000)
    assert state(group) == "Empty"
    assert not group.timers


def test_a_pending_join_extends_the_session() -> None:
    group = harness()
    leader, _follower = group.stable_group(2, session_timeout_ms=6_000)
    waiting = group.join(leader, session_timeout_ms=6_000)
    group.advance(5_999)
    assert group.waits(waiting)
    group.advance(1)
    assert group.joined(waiting).generation == 2, "the silent follower was given up, the waiting leader not"


def test_a_new_member_whose_join_waits_too_long_is_given_up() -> None:
    group = harness(new_member_join_timeout_ms=10_000)
    leader, follower = group.stable_group(2, session_timeout_ms=60_000)
    newcomer, waiting = group.new_member(session_timeout_ms=60_000)
    group.advance(10_000)
    reply = group.joined(waiting)
    assert (reply.member_id, reply.error) == ("", ErrorCode.unknown_member_id)
    assert group.join_error(newcomer) is ErrorCode.unknown_member_id
    assert [group.heartbeat(member, 1) for member in (leader, follower)] == [
        ErrorCode.rebalance_in_progress
    ] * 2


def test_repeating_a_join_ends_the_first_and_waits_on() -> None:
    group = harness()
    member, first = group.new_member()
    second = group.join(member)
    assert group.joined(first).error is ErrorCode.rebalance_in_progress
    group.advance(DELAY_MS)
    assert group.joined(second).generation == 1


def test_a_member_that_missed_its_answer_gets_it_again() -> None:
    group = harness()
    (first, first_join), (second, _) = group.new_member(), group.new_member()
    group.advance(2 * DELAY_MS)
    again = group.joined(group.join(first))
    assert again == group.joined(first_join)
    assert group.joined(group.join(second)).members == ()
    assert state(group) == "CompletingRebalance"


def test_in_a_stable_group_an_unchanged_follower_changes_nothing_and_the_leader_rebalances() -> None:
    group = harness()
    leader, follower = group.stable_group(2)
    reply = group.joined(group.join(follower))
    assert (reply.generation, reply.members, state(group)) == (1, (), "Stable")
    group.join(leader)
    assert state(group) == "PreparingRebalance"


@pytest.mark.parametrize("when", ["Stable", "CompletingRebalance"])
def test_changed_metadata_rebalances(when: str) -> None:
    group = harness()
    if when == "Stable":
        _leader, follower = group.stable_group(2)
    else:
        group.new_member()
        follower, _ = group.new_member()
        group.advance(2 * DELAY_MS)
    assert state(group) == when
    group.join(follower, protocols=protocols("range", metadata=subscription(["t", "u"])))
    assert state(group) == "PreparingRebalance"


def test_the_protocol_with_most_votes_among_those_all_support_wins() -> None:
    group = harness()
    waiting = [
        group.new_member(protocols=protocols(*names))
        for names in (("solo", "range", "sticky"), ("sticky", "range"), ("sticky", "range"))
    ]
    group.advance(10 * DELAY_MS)
    assert {group.joined(token).protocol for _, token in waiting} == {"sticky"}


def test_a_protocol_upgrade_goes_member_by_member() -> None:
    """First both support both, then the old one is dropped (KIP-429)."""
    group = harness()
    one, two = group.stable_group(2)
    old, both, new = ("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)
    chosen = []
    for names_of_one, names_of_two in ((both, old), (both, both), (new, both), (new, new)):
        tokens = [
            group.join(one, protocols=protocols(*names_of_one)),
            group.join(two, protocols=protocols(*names_of_two)),
        ]
        group.sync_all(tokens)
        chosen.append(group.joined(tokens[0]).protocol)
    assert chosen == ["range", *["cooperative-sticky"] * 3]


def test_no_protocol_in_common_is_refused() -> None:
    group = harness()
    group.stable_group(1)
    assert group.join_error(protocols=protocols("sticky")) is ErrorCode.inconsistent_group_protocol
    assert group.join_error(protocol_type="connect") is ErrorCode.inconsistent_group_protocol
    assert state(group) == "Stable"


@pytest.mark.parametrize("wrong", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_join_without_protocols_is_refused(wrong: dict[str, object]) -> None:
    assert harness().join_error(**wrong) is ErrorCode.inconsistent_group_protocol


def test_an_unknown_member_is_refused() -> None:
    group = harness()
    assert group.join_error("who") is ErrorCode.unknown_member_id
    assert not group.records, "a stranger makes no group"
    group.stable_group(1)
    reply = group.joined(group.join("who"))
    assert (reply.error, reply.member_id) == (ErrorCode.unknown_member_id, "who")


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    group = harness()
    assert group.join_error(session_timeout_ms=session_ms) is ErrorCode.invalid_session_timeout
    assert not group.records


def test_a_group_without_a_name_is_refused() -> None:
    group = ClassicHarness(ClassicGroup(""))
    assert group.join_error() is ErrorCode.invalid_group_id
    assert group.sync_error("m", 1) is ErrorCode.invalid_group_id
    assert group.heartbeat("m", 1) is ErrorCode.invalid_group_id
    assert group.leave("m").error is ErrorCode.invalid_group_id


def test_a_full_group_accepts_no_new_member() -> None:
    group = harness(max_size=2)
    members = group.stable_group(2)
    reply = group.joined(group.join())
    assert (reply.error, reply.member_id) == (ErrorCode.group_max_size_reached, "")
    assert all(group.heartbeat(member, 1) is ErrorCode.none for member in members)


def test_while_rebalancing_a_full_group_counts_those_who_have_come() -> None:
    group = harness(max_size=2)
    one, two = group.stable_group(2, session_timeout_ms=60_000)
    waiting = [group.join(one), group.join(group_instance_id="a")]
    assert group.join_error(group_instance_id="b") is ErrorCode.group_max_size_reached
    assert group.join_error(two) is ErrorCode.group_max_size_reached, "the last to rejoin loses its place"
    assert all(group.waits(token) for token in waiting)
    assert group.joined(group.join(one)).generation == 2, "who is in the queue already may ask again"


def test_a_group_loaded_above_its_limit_rebalances() -> None:
    group = harness()
    members = group.stable_group(3)
    group.restart(lambda: ClassicGroup("g", ClassicGroupSettings(max_size=2)))
    assert state(group) == "PreparingRebalance"
    assert [group.waits(group.join(member)) for member in members[:2]] == [True, True]
    assert group.join_error(members[2]) is ErrorCode.group_max_size_reached


def test_version_0_has_one_timeout_for_both() -> None:
    group = harness()
    group.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    group.advance(2 * DELAY_MS)
    assert group.timers[("sync",)] - group.now.monotonic_ms <= 7_000


def test_metadata_of_other_protocol_types_is_passed_unchanged() -> None:
    group = harness()
    metadata = bytes(range(256))
    kind = {"protocol_type": "connect", "protocols": protocols("sessioned", metadata=metadata)}
    worker, joined = group.new_member(**kind)
    group.advance(DELAY_MS)
    assert group.joined(joined).members[0].metadata == metadata
    token = group.sync(worker, 1, assignments=((worker, metadata),))
    assert group.synced(token).assignment == metadata
    assert group.synced(token).protocol_type == "connect"


def test_a_heartbeat_moves_a_deadline_without_touching_the_timer() -> None:
    group = harness()
    (member,) = group.stable_group(1)
    group.advance(6_000)
    assert group.heartbeat(member, 1) is ErrorCode.none
    effects_before = dict(group.timers)
    group.advance(4_000)
    assert group.timers.keys() == effects_before.keys()
    assert group.heartbeat(member, 1) is ErrorCode.none
    group.advance(SESSION_MS)
    assert group.heartbeat(member, 1) is ErrorCode.unknown_member_id


def test_members_may_not_supply_more_than_the_group_may_hold() -> None:
    group = harness(max_bytes=10_000)
    members = group.stable_group(2)
    large = protocols("range", metadata=b"x" * 9_990)
    assert group.join_error(version=3, protocols=large) is ErrorCode.group_max_size_reached
    assert group.join_error(members[1], protocols=large) is ErrorCode.group_max_size_reached
    assert group.join_error(version=3, group_instance_id="i" * 10_000) is ErrorCode.group_max_size_reached
    assert group.join_error(version=3, client_id="c" * 10_000) is ErrorCode.group_max_size_reached


def test_many_members_together_may_not_supply_more_than_the_group_may_hold() -> None:
    group = harness(max_bytes=10_000)
    some = protocols("range", metadata=b"x" * 1_000)
    errors = []
    for _ in range(20):
        token = group.join(version=3, protocols=some)
        errors.append(None if group.waits(token) else group.joined(token).error)
    assert errors.count(ErrorCode.group_max_size_reached) == 11
    assert errors[:9] == [None] * 9


def test_ids_that_were_handed_out_count_too() -> None:
    group = harness(max_bytes=10_000)
    errors = {group.join_error(client_id="c" * 900) for _ in range(20)}
    assert errors == {ErrorCode.member_id_required, ErrorCode.group_max_size_reached}


def test_assignments_that_are_too_large_are_refused_as_kafka_does() -> None:
    group = harness(max_bytes=10_000)
    leader = group.stable_group(1)[0]
    token = group.join(leader, protocols=protocols("range", metadata=b"other"))
    generation = group.joined(token).generation
    large = ((leader, b"x" * 10_001),)
    assert group.sync_error(leader, generation, assignments=large) is ErrorCode.unknown_server_error
    assert group.sync_error(leader, generation, assignments=((leader, b"x"),)) is ErrorCode.none
