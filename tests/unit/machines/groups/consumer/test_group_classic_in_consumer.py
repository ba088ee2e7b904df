# SPDX-License-Identifier: Apache-2.0
"""Members of the classic protocol inside a KIP-848 group: refusals, time-outs, static members, commits."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.machines.groups.events import JoinProtocol, LeavingMember
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import REBALANCE_MS, SESSION_MS, assignment, protocols
from tests.harness.groups.consumer_groups import topic_id
from tests.harness.groups.mixed_groups import MixedHarness, subscription

REBALANCE = ErrorCode.rebalance_in_progress
LONG_SESSION = {"session_timeout_ms": 300_000}
RANGE = {"protocols": (JoinProtocol("range", subscription(["t"])),)}


def group_with(partitions: int = 2, **config: Any) -> tuple[MixedHarness, int]:
    """A KIP-848 group of the member `kip`, and its epoch."""
    group = MixedHarness({"t": partitions}, **config)
    return group, group.beat_join("kip", "t").member_epoch


def enter(group: MixedHarness, **changes: Any) -> tuple[str, int]:
    """A classic member joins and has its assignment: its id and generation."""
    required = group.joined(group.join(**{**RANGE, **changes}))
    member_id = required.member_id
    if required.error is ErrorCode.member_id_required:
        required = group.joined(group.join(member_id, **{**RANGE, **changes}))
    assert required.error is ErrorCode.none
    assert group.sync_error(member_id, required.generation) is ErrorCode.none
    return member_id, required.generation


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"protocols": ()}, "inconsistent_group_protocol"),
        ({"protocols": protocols("range", metadata=b"?"), "member_id": "m"}, "unknown_server_error"),
        ({"session_timeout_ms": 1}, "invalid_session_timeout"),
        ({"group_instance_id": "i", "member_id": "nobody"}, "unknown_member_id"),
    ],
)
def test_a_join_is_refused(changes: dict[str, Any], error: str) -> None:
    group, _ = group_with()
    before = group.group.snapshot()
    request = {**RANGE, **changes}
    assert group.join_error(request.pop("member_id", ""), **request) is ErrorCode[error]
    assert group.group.snapshot() == before


def test_classic_members_need_a_protocol_in_common() -> None:
    group, _ = group_with()
    enter(group)
    sticky = (JoinProtocol("sticky", subscription(["t"])),)
    assert group.join_error(protocols=sticky) is ErrorCode.inconsistent_group_protocol
    assert group.join_error(**RANGE, version=3) is ErrorCode.none, "old clients are not asked to come again"


def test_a_full_group_accepts_no_classic_member() -> None:
    group, _ = group_with(max_size=2)
    member, generation = enter(group)
    assert group.join_error(**RANGE) is ErrorCode.group_max_size_reached
    assert group.join_error(member, **RANGE) is ErrorCode.none, "a member may come again"
    assert group.heartbeat(member, generation) is ErrorCode.none


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol": None, "protocol_type": "consumer"}, "inconsistent_group_protocol"),
        ({"protocol": "sticky", "protocol_type": "consumer"}, "inconsistent_group_protocol"),
        ({"protocol": "range", "protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"group_instance_id": "i"}, "unknown_member_id"),
        ({"generation": 77}, "illegal_generation"),
        ({"member_id": "nobody"}, "unknown_member_id"),
        ({"member_id": "kip"}, "unknown_member_id"),
    ],
)
def test_a_sync_is_refused(changes: dict[str, Any], error: str) -> None:
    group, _ = group_with()
    member, generation = enter(group)
    request = {"member_id": member, "generation": generation, **changes}
    assert group.sync_error(request.pop("member_id"), request.pop("generation"), **request).name == error


def test_a_heartbeat_is_refused() -> None:
    group, epoch = group_with()
    member, generation = enter(group)
    assert group.heartbeat("nobody", generation) is ErrorCode.unknown_member_id
    assert group.heartbeat("kip", epoch) is ErrorCode.unknown_member_id, "it does not speak this protocol"
    assert group.heartbeat(member, generation - 1) is ErrorCode.illegal_generation
    assert group.heartbeat(member, generation, "i") is ErrorCode.unknown_member_id


def test_answers_come_back_in_the_version_of_the_subscription() -> None:
    group, epoch = group_with(1)
    old = {"protocols": (JoinProtocol("range", subscription(["t"], version=1)),)}
    newer = {"protocols": (JoinProtocol("range", b"\0\x09" + subscription(["t"])[2:]),)}
    for request, version in ((old, 1), (newer, 3)):
        member = group.joined(group.join(version=3, **request))
        answer = group.synced(group.sync(member.member_id, member.generation)).assignment
        assert (answer[:2], assigned_partitions(answer)) == (bytes([0, version]), {})
    assert epoch < member.generation


# --- time ------------------------------------------------------------------------------------------------


def test_a_classic_member_has_its_own_session() -> None:
    group, _ = group_with()
    member, generation = enter(group)
    group.advance(SESSION_MS - 1)
    assert group.heartbeat(member, generation) is not ErrorCode.unknown_member_id
    group.advance(SESSION_MS)
    assert group.heartbeat(member, generation) is ErrorCode.unknown_member_id


def test_a_member_asked_to_rejoin_has_the_rebalance_timeout_to_do_so() -> None:
    group, epoch = group_with(session_timeout_ms=300_000)
    member, generation = enter(group, **LONG_SESSION)
    group.beat("kip", epoch, owned_partitions={})
    assert group.heartbeat(member, generation) is REBALANCE
    group.advance(REBALANCE_MS - 1)
    assert group.heartbeat(member, generation) is REBALANCE, "being told again gives no more time"
    group.advance(1)
    assert group.heartbeat(member, generation) is ErrorCode.unknown_member_id


def test_a_joined_member_has_the_rebalance_timeout_to_sync() -> None:
    group, _ = group_with(session_timeout_ms=300_000)
    joined = group.joined(group.join(version=3, **RANGE, **LONG_SESSION))
    group.advance(REBALANCE_MS)
    assert group.sync_error(joined.member_id, joined.generation) is ErrorCode.unknown_member_id

    synced, generation = enter(group, **LONG_SESSION)
    group.advance(REBALANCE_MS)
    assert group.heartbeat(synced, generation) is not ErrorCode.unknown_member_id


def test_a_classic_member_that_dies_leaves_its_partitions_to_the_other() -> None:
    group, epoch = group_with(session_timeout_ms=300_000)
    enter(group)
    kept = group.beat("kip", epoch)
    assert kept.assignment is not None
    group.beat("kip", kept.member_epoch, owned_partitions=kept.assignment)
    group.advance(SESSION_MS)
    alone = group.beat("kip", kept.member_epoch, owned_partitions=kept.assignment)
    assert alone.assignment == {topic_id("t"): frozenset({0, 1})}
    assert group.protocol == "Consumer"


# --- commits ---------------------------------------------------------------------------------------------


def test_a_classic_member_commits_with_its_generation_in_any_version() -> None:
    group, epoch = group_with()
    member, generation = enter(group)
    assert group.commit(member, generation, version=2) is ErrorCode.none
    assert group.commit(member, generation + 1) is ErrorCode.illegal_generation
    assert group.commit("nobody", generation) is ErrorCode.unknown_member_id
    assert group.commit("kip", epoch, version=8) is ErrorCode.unsupported_version
    group.beat("kip", epoch, owned_partitions={})
    assert group.commit(member, generation) is ErrorCode.none, "also while it is to rejoin"


def test_commits_of_an_older_generation_count_only_for_what_the_member_had_then() -> None:
    group, epoch = group_with(1)
    member, generation = enter(group)
    assert generation > epoch
    assert group.commit(member, epoch) is ErrorCode.illegal_generation


# --- static members --------------------------------------------------------------------------------------


def enter_static(group: MixedHarness, instance_id: str = "i") -> tuple[str, int]:
    joined = group.joined(group.join(group_instance_id=instance_id, **RANGE, **LONG_SESSION))
    assert joined.error is ErrorCode.none
    token = group.sync(joined.member_id, joined.generation, group_instance_id=instance_id)
    assert group.synced(token).error is ErrorCode.none
    return joined.member_id, joined.generation


def test_a_static_classic_member_is_replaced_by_its_next_incarnation() -> None:
    group, _ = group_with()
    old, generation = enter_static(group)
    new, again = enter_static(group)
    assert (new != old, again) == (True, generation)
    assert group.heartbeat(old, generation, "i") is ErrorCode.fenced_instance_id
    assert group.join_error(old, group_instance_id="i", **RANGE) is ErrorCode.fenced_instance_id
    assert group.heartbeat(new, generation, "i") is ErrorCode.none


def test_a_static_member_changes_to_kip_848_without_leaving_first() -> None:
    group, _ = group_with()
    old, generation = enter_static(group)
    taken = group.beat_join("new", "t", instance_id="i")
    assert (taken.error, taken.member_epoch) == (ErrorCode.none, generation)
    assert group.heartbeat(old, generation, "i") is ErrorCode.fenced_instance_id
    other = group.beat_join("newer", "t", instance_id="i")
    assert other.error is ErrorCode.unreleased_instance_id, "between two of KIP-848 the old one has to leave"


def test_a_static_member_upgrades_its_classic_group_and_takes_its_place_in_it() -> None:
    group = MixedHarness({"t": 2})
    joined = group.joined(group.join(group_instance_id="i", **RANGE))
    given = ((joined.member_id, assignment({"t": [0, 1]})),)
    group.sync(joined.member_id, joined.generation, group_instance_id="i", assignments=given)
    reply = group.beat_join("new", "t", instance_id="i")
    assert reply.member_epoch == joined.generation, "nothing has changed but the protocol"
    assert reply.assignment == {topic_id("t"): frozenset({0, 1})}
    assert group.heartbeat(joined.member_id, joined.generation, "i") is ErrorCode.fenced_instance_id


def test_the_last_kip_848_member_replaced_by_a_classic_one_turns_the_group_classic_as_it_is() -> None:
    group = MixedHarness({"t": 2})
    epoch = group.beat_join("kip", "t", instance_id="i").member_epoch
    joined = group.joined(group.join(group_instance_id="i", **RANGE))
    assert (joined.error, joined.generation) == (ErrorCode.none, epoch)
    assert (group.protocol, group.group.describe().state) == ("Classic", "Stable")
    token = group.sync(joined.member_id, joined.generation, group_instance_id="i")
    assert assigned_partitions(group.synced(token).assignment) == {"t": (0, 1)}
    assert group.heartbeat(joined.member_id, epoch, "i") is ErrorCode.none


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_replacement_with_another_subscription_or_before_everyone_is_there_brings_a_rebalance(
    is_stable: bool,
) -> None:
    group = MixedHarness({"t": 2, "u": 1})
    group.beat_join("kip", "t", instance_id="i")
    if is_stable:
        request = {"protocols": (JoinProtocol("range", subscription(["t", "u"])),)}
    else:
        enter(group)  # waits for a partition of the other
        request = RANGE
    joined = group.joined(group.join(group_instance_id="i", **request))
    assert joined.error is ErrorCode.none
    assert (group.protocol, group.group.describe().state) == ("Classic", "PreparingRebalance")
    sync = group.sync_error(joined.member_id, joined.generation, group_instance_id="i")
    assert sync in (REBALANCE, ErrorCode.illegal_generation)


def test_static_members_are_removed_by_their_instance_id() -> None:
    group, _ = group_with()
    member, _ = enter_static(group)
    wrong = group.leave(LeavingMember("other", "i"), LeavingMember("", "j"))
    assert [left.error.name for left in wrong.members] == ["fenced_instance_id", "unknown_member_id"]
    left = group.leave(LeavingMember("", "i"))
    assert [(m.member_id, m.group_instance_id, m.error) for m in left.members] == [("", "i", ErrorCode.none)]
    assert member not in group.group.consumer.state.members
    assert group.leave("nobody", version=2).error is ErrorCode.unknown_member_id


# --- one member, two protocols ---------------------------------------------------------------------------


def test_a_member_may_change_its_protocol_under_the_same_id() -> None:
    group, epoch = group_with()
    group.beat_join("other", "t")
    joined = group.joined(group.join("other", **RANGE))
    assert joined.error is ErrorCode.none
    assert group.beat_join("other", "t").error is ErrorCode.none
    group.advance(REBALANCE_MS // 2)
    assert "other" in group.group.consumer.state.members
    assert group.heartbeat("other", joined.generation) is ErrorCode.unknown_member_id
    assert epoch < joined.generation


def test_a_replaced_static_member_loses_its_regular_expression() -> None:
    group, _ = group_with()
    group.beat_join("re", subscribed_topic_regex="t.*", instance_id="i")
    assert group.group.consumer.state.regex_subscribers == {"t.*": 1}
    enter_static(group)
    assert group.group.consumer.state.regex_subscribers == {}


def test_the_rack_of_a_subscription_is_kept_and_described() -> None:
    group, _ = group_with()
    enter(group, protocols=(JoinProtocol("range", subscription(["t"], rack_id="r1")),))
    description = group.group.describe_consumer_group()
    assert description is not None
    assert {member.rack_id for member in description.members} == {None, "r1"}
