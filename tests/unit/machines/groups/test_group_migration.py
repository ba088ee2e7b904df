# SPDX-License-Identifier: Apache-2.0
"""One group, two protocols: a classic group becomes a KIP-848 group, members and all, and turns back."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.events import JoinGroupReply, JoinProtocol, LeavingMember, SyncGroupReply
from headrace.machines.groups.migration import MigrationPolicy
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
)
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from headrace.wire.coordinator.group_records import GroupMetadataRecord
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import assignment, protocols
from tests.harness.groups.consumer_groups import topic_id
from tests.harness.groups.mixed_groups import MixedHarness, subscription

REBALANCE = ErrorCode.rebalance_in_progress


def eager(*topics: str, **changes: Any) -> dict[str, Any]:
    return {"protocols": (JoinProtocol("range", subscription(topics or ("t",), **changes)),)}


def two_classic_members(group: MixedHarness, **changes: Any) -> tuple[str, str]:
    """A stable classic group: the first has partitions 0 and 1 of t, the second 2 and 3."""
    request = {**eager(), **changes}
    first, token = group.new_member(**request)
    group.sync_all([token], {first: assignment({"t": [0, 1, 2, 3]})})
    second, token = group.new_member(**request)
    tokens = [token, group.join(first, **request)]
    group.sync_all(tokens, {first: assignment({"t": [0, 1]}), second: assignment({"t": [2, 3]})})
    assert group.group.describe().state == "Stable"
    return first, second


def rejoin(group: MixedHarness, member_id: str, **changes: Any) -> tuple[int, dict[str, tuple[int, ...]]]:
    """JoinGroup and SyncGroup in a KIP-848 group: the generation, and what it got."""
    reply = group.joined(group.join(member_id, **{**eager(), **changes}))
    assert reply.error is ErrorCode.none
    assert (reply.protocol_type, reply.protocol, reply.leader) == ("consumer", "range", "")
    instance_id = changes.get("group_instance_id")
    token = group.sync(reply.member_id, reply.generation, group_instance_id=instance_id)
    synced = group.synced(token)
    assert synced.error is ErrorCode.none
    return reply.generation, assigned_partitions(synced.assignment)


def generation_of(group: MixedHarness) -> int:
    return group.group.classic.membership.generation


def test_the_first_heartbeat_upgrades_a_classic_group_and_its_members_live_on() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    generation = generation_of(group)
    assert group.commit(first, generation) is ErrorCode.none
    joined = group.beat_join("new", "t")
    assert (joined.error, joined.member_epoch, joined.assignment) == (ErrorCode.none, generation + 1, {})
    assert group.protocol == "Consumer"
    members = group.group.describe_consumer_group()
    assert members is not None
    described = {member.member_id: member for member in members.members}
    assert described[first].assignment == {"t": (0, 1)}
    assert [described[name].member_type for name in (first, second, "new")] == [0, 0, 1]
    assert group.group.offsets.get("t", 0) is not None, "offsets stay"


def test_an_upgrade_writes_what_kafka_writes() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group, **eager(rack_id="r1"))
    generation = generation_of(group)
    before = len(group.records)
    group.beat_join("new", "t")
    written = group.records[before:]
    assert written[0] == GroupMetadataRecord(group_id="g", value=None)
    kept = {r.member_id: r.value for r in written if isinstance(r, ConsumerGroupMemberMetadataRecord)}
    assert list(kept) == [first, second, "new"]
    value = kept[first]
    assert value is not None
    assert value.classic is not None
    assert (value.rack_id, value.subscribed_topic_names, value.subscribed_topic_regex) == ("r1", ("t",), "")
    assert value.classic.session_timeout_ms == 10_000
    assert [name for name, _ in value.classic.supported_protocols] == ["range"]
    epochs = [
        r.value.epoch for r in written if isinstance(r, ConsumerGroupMetadataRecord) and r.value is not None
    ]
    assert epochs == [generation, generation + 1]
    targets = [r.value for r in written if isinstance(r, ConsumerGroupTargetAssignmentMetadataRecord)]
    assert [value.assignment_epoch for value in targets if value] == [generation, generation + 1]


def test_classic_members_rejoin_one_by_one_and_give_up_what_the_new_one_gets() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    generation = generation_of(group)
    epoch = group.beat_join("new", "t").member_epoch
    assert group.heartbeat(first, generation) is REBALANCE
    assert group.sync_error(second, generation) is REBALANCE
    assert group.beat("new", epoch).assignment is None, "nothing is free yet"
    rejoined, mine = rejoin(group, second)
    assert rejoined == epoch
    assert group.heartbeat(second, epoch) is ErrorCode.none
    _, others = rejoin(group, first)
    given = group.beat("new", epoch).assignment
    assert given is not None
    held = [*mine.get("t", ()), *others.get("t", ()), *given[topic_id("t")]]
    assert sorted(held) == [0, 1, 2, 3]
    assert group.group.describe().state == "Stable"


def test_a_cooperative_member_keeps_what_it_may_and_rejoins_when_it_has_given_up_the_rest() -> None:
    group = MixedHarness({"t": 2})

    def cooperative(*owned: int) -> dict[str, Any]:
        metadata = subscription(["t"], {"t": list(owned)})
        return {"protocols": (JoinProtocol("cooperative-sticky", metadata),)}

    member, token = group.new_member(**cooperative())
    group.sync_all([token], {member: assignment({"t": [0, 1]})})
    epoch = group.beat_join("new", "t").member_epoch
    joined = group.joined(group.join(member, **cooperative(0, 1)))
    assert joined.generation == epoch - 1, "it stays in its epoch until it has given something up"
    kept = assigned_partitions(group.synced(group.sync(member, joined.generation)).assignment)
    assert len(kept["t"]) == 1
    assert group.heartbeat(member, joined.generation) is REBALANCE
    assert group.beat("new", epoch).assignment is None
    joined = group.joined(group.join(member, **cooperative(*kept["t"])))
    assert joined.generation == epoch
    given = group.beat("new", epoch).assignment
    assert given is not None
    assert given[topic_id("t")] | set(kept["t"]) == {0, 1}


def test_a_member_waiting_for_a_partition_is_asked_to_rejoin_when_it_is_free() -> None:
    group = MixedHarness({"t": 2})
    epoch = group.beat_join("old", "t").member_epoch
    member = group.joined(group.join(**eager())).member_id
    generation, got = rejoin(group, member)
    assert got == {}, "the other still holds both"
    assert group.heartbeat(member, generation) is ErrorCode.none, "nothing to rejoin for"
    reply = group.beat("old", epoch)
    assert reply.assignment is not None
    group.beat("old", reply.member_epoch, owned_partitions=reply.assignment)
    assert group.heartbeat(member, generation) is REBALANCE
    assert rejoin(group, member) == (generation, {"t": (1,)})


def test_pending_classic_requests_are_answered_with_rejoin_at_an_upgrade() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    waiting = group.join(first, protocols=(JoinProtocol("range", subscription(["t", "u"])),))
    assert group.waits(waiting)
    assert group.beat_join("new", "t").error is ErrorCode.none
    assert group.joined(waiting) == JoinGroupReply(member_id=first, error=REBALANCE)
    assert rejoin(group, second)[1] != {}


def test_a_classic_group_that_waits_for_its_leader_can_be_upgraded() -> None:
    group = MixedHarness({"t": 2})
    first, token = group.new_member(**eager())
    second, other = group.new_member(**eager())
    assert group.joined(token).error is ErrorCode.none
    generation = group.joined(group.join(first, **eager())).generation
    assert group.joined(other).generation == generation
    sync = group.sync(second, generation)
    assert group.waits(sync)
    epoch = group.beat_join("new", "t").member_epoch
    assert group.synced(sync) == SyncGroupReply(error=REBALANCE)
    assert rejoin(group, first)[1] != {} or rejoin(group, second)[1] != {}
    assert epoch > generation


def test_a_group_is_upgraded_before_its_first_rebalance_is_finished() -> None:
    group = MixedHarness({"t": 2}, classic=ClassicGroupSettings(initial_rebalance_delay_ms=3_000))
    first, token = group.new_member(**eager())
    assert group.waits(token)
    group.beat_join("new", "t")
    assert group.joined(token).error is REBALANCE
    generation, got = rejoin(group, first)
    assert group.heartbeat(first, generation) is ErrorCode.none
    assert got in ({}, {"t": (0,)}, {"t": (1,)})


@pytest.mark.parametrize(("to_leader", "held"), [([1], (0,)), ([], (0, 1))])
@pytest.mark.parametrize("has_synced", [True, False])
def test_partitions_owned_but_not_assigned_count_as_held(
    to_leader: list[int], held: tuple[int, ...], has_synced: bool
) -> None:
    """The leader takes partition 1 from a cooperative member, which may not have acted upon it yet."""
    group = MixedHarness({"t": 2})

    def cooperative(*owned: int) -> dict[str, Any]:
        return {"protocols": (JoinProtocol("cooperative", subscription(["t"], {"t": list(owned)})),)}

    leader, token = group.new_member(**cooperative())
    group.sync_all([token], {leader: assignment({"t": []})})
    owner, token = group.new_member(**cooperative(0, 1))
    generation = group.joined(group.join(leader, **cooperative())).generation
    given = ((owner, assignment({"t": [0]})), (leader, assignment({"t": to_leader})))
    group.sync(leader, generation, assignments=given)
    if has_synced:
        group.sync(owner, generation)
    group.beat_join("new", "t")
    described = group.group.describe_consumer_group()
    assert described is not None
    assert {member.member_id: member.assignment for member in described.members}[owner] == {"t": held}
    assert group.heartbeat(owner, generation) is REBALANCE


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_policy_forbids_upgrades(policy: MigrationPolicy) -> None:
    group = MixedHarness({"t": 4}, policy=policy)
    first, _ = two_classic_members(group)
    refused = group.beat_join("new", "t")
    assert refused.error is ErrorCode.group_id_not_found
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert group.heartbeat(first, generation_of(group)) is ErrorCode.none, "nothing has changed"


def upgrade_refusal(group: MixedHarness) -> str:
    before = group.group.snapshot()
    refused = group.beat_join("new", "t")
    assert refused.error is ErrorCode.group_id_not_found
    assert group.group.snapshot() == before
    return (refused.error_message or "").removeprefix(
        "Cannot upgrade classic group g to consumer group because "
    )


def test_only_groups_of_consumers_are_upgraded() -> None:
    group = MixedHarness({"t": 4})
    group.stable_group(1, protocol_type="connect")
    assert upgrade_refusal(group) == "the group does not use the consumer embedded protocol."
    group = MixedHarness({"t": 4})
    group.stable_group(1, protocols=protocols("range", metadata=b"?"))
    assert upgrade_refusal(group) == "the embedded consumer protocol is malformed."
    group = MixedHarness({"t": 4})
    member, token = group.new_member(**eager())
    group.sync_all([token], {member: assignment({"t": [0]})[:-4] + b"\0\0\0\x01!"})
    assert upgrade_refusal(group).startswith("an unsupported custom assignor is in use.")
    group = MixedHarness({"t": 4}, max_size=1)
    two_classic_members(group)
    assert upgrade_refusal(group) == "the group size exceeds the consumer group maximum size."


def test_an_upgrade_that_would_be_refused_afterwards_changes_nothing() -> None:
    group = MixedHarness({"t": 4}, max_size=2)
    first, _ = two_classic_members(group)
    before = group.group.snapshot()
    assert group.beat_join("new", "t").error is ErrorCode.group_max_size_reached
    bad = group.beat_join("new", subscribed_topic_regex="(", regex_error="why")
    assert bad.error is ErrorCode.group_max_size_reached
    assert group.beat("new", 3).error_message == "Group g is not a consumer group."
    assert group.beat("new", -1).error_message == "Group g is not a consumer group."
    assert group.group.snapshot() == before
    assert group.heartbeat(first, generation_of(group)) is ErrorCode.none


def test_the_last_of_the_new_protocol_that_leaves_turns_the_group_classic() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    epoch = group.beat_join("new", "t").member_epoch
    for member in (first, second):
        rejoin(group, member)
    before = len(group.records)
    assert group.beat("new", -1).error is ErrorCode.none
    assert (group.protocol, group.group.describe().state) == ("Classic", "PreparingRebalance")
    *tombstones, made = group.records[before:]
    assert [getattr(record, "value", "") for record in tombstones] == [None] * (3 * 3 + 2)
    assert isinstance(made, GroupMetadataRecord)
    assert made.value is not None
    assert (made.value.generation, made.value.leader) == (epoch, None), "without a leader: to be rebalanced"
    assert all(assigned_partitions(member.assignment) for member in made.value.members)
    for member in (first, second):
        assert group.heartbeat(member, epoch) is REBALANCE
    tokens = [group.join(member, **eager()) for member in (first, second)]
    assert [group.joined(token).generation for token in tokens] == [epoch + 1] * 2
    assert generation_of(group) == epoch + 1


def test_the_end_of_the_last_kip_848_member_downgrades_the_group() -> None:
    group = MixedHarness({"t": 4}, session_timeout_ms=45_000)
    first, second = two_classic_members(group, session_timeout_ms=300_000)
    epoch = group.beat_join("new", "t").member_epoch
    for member in (first, second):
        rejoin(group, member, session_timeout_ms=300_000)
    group.advance(45_000)
    assert group.group.describe().state == "PreparingRebalance"
    assert [event.kind for event in group.timeline if event.kind.endswith("grade")] == [
        "upgrade",
        "downgrade",
    ]
    assert group.heartbeat(first, epoch) is REBALANCE


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_without_downgrades_classic_members_stay_in_the_consumer_group(
    policy: MigrationPolicy,
) -> None:
    group = MixedHarness({"t": 2}, policy=policy)
    epoch = group.beat_join("old", "t").member_epoch
    member = group.joined(group.join(**eager())).member_id
    generation, _ = rejoin(group, member)
    assert group.beat("old", -1).error is ErrorCode.none
    assert group.protocol == "Consumer"
    assert group.heartbeat(member, generation) is REBALANCE, "nobody else would compute a target"
    assert rejoin(group, member) == (epoch + 2, {"t": (0, 1)})


def test_a_group_too_large_for_the_classic_protocol_stays_as_it_is() -> None:
    settings = ClassicGroupSettings(initial_rebalance_delay_ms=0, max_size=1)
    group = MixedHarness({"t": 2}, classic=settings)
    group.beat_join("old", "t")
    for _ in range(2):
        rejoin(group, group.joined(group.join(**eager())).member_id)
    assert group.beat("old", -1).error is ErrorCode.none
    assert group.protocol == "Consumer"


def test_an_administrator_removes_members_of_both_protocols_at_once() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    group.beat_join("new", "t")
    left = group.leave("new", first, "nobody", LeavingMember("", "no instance"))
    errors = [member.error for member in left.members]
    unknown = ErrorCode.unknown_member_id
    assert errors == [ErrorCode.none, ErrorCode.none, unknown, unknown]
    assert group.protocol == "Classic"
    assert [member.member_id for member in group.group.describe().members] == [second]


def test_all_survives_a_change_of_coordinator() -> None:
    group = MixedHarness({"t": 4})
    first, second = two_classic_members(group)
    epoch = group.beat_join("new", "t").member_epoch
    rejoin(group, first)
    group.fail_over()
    assert group.heartbeat(first, epoch) is ErrorCode.none
    assert group.heartbeat(second, epoch - 1) is REBALANCE
    group.beat("new", -1)
    group.fail_over()
    assert group.group.describe().state == "PreparingRebalance", "what was to be done is still to be done"
    assert group.heartbeat(first, epoch) is REBALANCE
    assert group.heartbeat(second, epoch - 1) is ErrorCode.illegal_generation


def test_a_group_downgraded_and_upgraded_at_once_knows_what_members_hold() -> None:
    """Nobody has rejoined in between, so they still hold what the target would have taken from them."""
    group = MixedHarness({"t": 4})
    two_classic_members(group)
    for name in ("one", "two"):
        assert group.beat_join(name, "t").assignment == {}
        group.beat(name, -1)
    assert group.protocol == "Classic"
