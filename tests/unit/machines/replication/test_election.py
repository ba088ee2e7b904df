# SPDX-License-Identifier: Apache-2.0
"""Who leads and who is eligible, as the controller decides it (R5, R19–R22)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from headrace.machines.replication import isr
from headrace.machines.replication.election import (
    Contest,
    Elected,
    LogEnd,
    elect,
    preferred,
    recovered,
    unclean,
)
from headrace.machines.replication.leader import IsrProposal, Nodes
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode

STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)


def alive(*nodes: int, leaving: tuple[int, ...] = ()) -> Nodes:
    return Nodes({node: 10 + node for node in nodes}, frozenset(leaving))


def elected_state(state: PartitionState, nodes: Nodes, min_insync: int | None = None) -> PartitionState:
    return elect(Contest(state=state, min_insync=min_insync), nodes, Counter()).state


def proposal(*members: int, leader: int = 0, leader_epoch: int = 3, partition_epoch: int = 7) -> IsrProposal:
    return IsrProposal(leader, leader_epoch, partition_epoch, tuple((n, 10 + n) for n in members))


@pytest.mark.row("D9")
def test_the_drawing_node_0_dies_and_node_2_leads_its_partition() -> None:
    """Five nodes, two partitions, five replicas, leaders on 0 and 1: node 1 leads already, 2 does not."""
    everyone = (0, 1, 2, 3, 4)
    zero = PartitionState(replicas=everyone, leader=0, leader_epoch=0, isr=everyone)
    one = PartitionState(replicas=(1, 2, 3, 4, 0), leader=1, leader_epoch=0, isr=(1, 2, 3, 4, 0))
    leading = Counter({0: 1, 1: 1})
    nodes = alive(1, 2, 3, 4)
    changed = [elect(Contest(state=state, min_insync=None), nodes, leading).state for state in (zero, one)]
    assert [state.leader for state in changed] == [2, 1]
    assert +leading == Counter({1: 1, 2: 1})

    returned = replace(changed[0], isr=everyone)
    back = preferred(returned, alive(*everyone))
    assert isinstance(back, PartitionState)
    assert (back.leader, back.leader_epoch) == (0, returned.leader_epoch + 1)


def test_many_leaders_of_a_dead_node_are_spread_over_the_others() -> None:
    leading = Counter({0: 100})
    for _ in range(100):
        elect(Contest(state=STATE, min_insync=None), alive(1, 2), leading)
    assert +leading == Counter({1: 50, 2: 50})


def test_an_election_changes_nothing_when_the_leader_is_alive_or_already_elected() -> None:
    """Level-triggered (R4): a second look changes nothing."""
    assert elected_state(STATE, alive(0, 1, 2)) is STATE
    for nodes in (alive(1, 2), alive(2), alive(), alive(0, 1, 2, leaving=(0,))):
        after = elected_state(STATE, nodes)
        assert elected_state(after, nodes) is after


def test_a_dead_follower_leaves_the_in_sync_replicas_under_a_new_leader_epoch() -> None:
    """R5."""
    after = elected_state(STATE, alive(0, 2))
    assert (after.leader, after.isr, after.elr) == (0, (0, 2), ())
    assert (after.leader_epoch, after.partition_epoch) == (4, 8)


def test_leavers_below_the_minimum_stay_eligible_and_lead_when_they_return() -> None:
    """R19, R20: the last replica standing is not the only one that may lead."""
    one_left = elected_state(elected_state(STATE, alive(0, 1)), alive(0))
    assert (one_left.leader, one_left.isr, one_left.elr) == (0, (0,), (1,))
    none_left = elected_state(one_left, alive(2))
    assert (none_left.leader, none_left.isr, none_left.elr) == (NO_NODE, (), (0, 1))
    led = elected_state(none_left, alive(1, 2))
    assert (led.leader, led.isr, led.elr) == (1, (1,), (0,))


def test_a_replica_that_may_have_lost_records_is_neither_in_sync_nor_eligible() -> None:
    """R20, KIP-966: node 0 alone in sync loses power and returns; node 1 has what is acknowledged."""
    state = replace(STATE, isr=(0,), elr=(1,))
    after = isr.registered(state, 0, 2, lossless=False)
    assert (after.isr, after.elr, after.last_known_elr) == ((), (1,), (0,))
    assert elected_state(after, alive(0, 2)).leader == NO_NODE
    assert elected_state(after, alive(0, 1)).leader == 1


@pytest.mark.parametrize(
    ("clean_marker", "same_boot", "flushes", "lossless"),
    [(True, False, False, True), (False, True, False, True), (False, False, True, True), (False,) * 4],
)
def test_a_killed_process_loses_nothing_and_a_lost_machine_may(
    clean_marker: bool, same_boot: bool, flushes: bool, lossless: bool
) -> None:
    """R21."""
    found = isr.is_lossless(clean_marker=clean_marker, same_boot=same_boot, flushes_before_ack=flushes)
    assert found is lossless


def test_a_killed_node_that_returns_before_it_was_missed_stays_eligible() -> None:
    """R20, R21."""
    after = isr.registered(replace(STATE, isr=(0,)), 0, 2, lossless=True)
    assert (after.isr, after.elr) == ((), (0,))
    assert elected_state(after, alive(0)).leader == 0


def test_a_power_cut_of_all_waits_for_everyone_and_takes_the_longest_log() -> None:
    """R19b."""
    state = STATE
    for node in (0, 1, 2):
        state = elected_state(isr.registered(state, node, 2, lossless=False), alive(0, 1, 2))
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (NO_NODE, (), (), (0, 1, 2))
    ends = {0: LogEnd(2, 90), 1: LogEnd(3, 41), 2: LogEnd(3, 40)}
    assert recovered(state, alive(0, 1), ends) is None
    elected = recovered(state, alive(0, 1, 2), ends)
    assert elected is not None
    assert (elected.state.leader, elected.state.isr, elected.lossy) == (1, (1,), True)
    assert recovered(STATE, alive(0, 1, 2), ends) is None

    again = elected_state(isr.registered(elected.state, 1, 2, lossless=False), alive(0, 1, 2))
    second = recovered(again, alive(0, 1, 2), {**ends, 1: LogEnd(3, 12)})
    assert second is not None
    assert second.state.leader == 2, "the first choice lost power before anyone had fetched from it"


def test_a_recovered_leader_leads_in_an_epoch_that_no_log_has() -> None:
    """R5, R19b: the store was put back, and the logs have epochs of another copy."""
    lost = replace(STATE, leader=NO_NODE, isr=(), last_known_elr=(0, 1))
    for epoch, expected in ((2, 4), (3, 4), (9, 10)):
        elected = recovered(lost, alive(0, 1), {0: LogEnd(epoch, 5), 1: LogEnd(epoch - 1, 7)})
        assert elected is not None
        assert (elected.state.leader, elected.state.leader_epoch) == (0, expected)


def test_an_unclean_election_needs_the_topic_setting_or_the_operator() -> None:
    """R19."""
    state = elected_state(replace(STATE, isr=(0, 1)), alive(2))
    assert state.leader == NO_NODE
    allowed = Contest(state=state, min_insync=None, unclean=True)
    elected = elect(allowed, alive(2), Counter())
    assert (elected.state.leader, elected.state.isr, elected.lossy) == (2, (2,), True)
    asked = unclean(replace(allowed, unclean=False), alive(2), Counter())
    assert asked == elected
    clean = unclean(replace(allowed, unclean=False), alive(1, 2), Counter())
    assert isinstance(clean, Elected)
    assert (clean.state.leader, clean.lossy) == (1, False)


def test_unclean_elections_that_cannot_be() -> None:
    contest = Contest(state=STATE, min_insync=None)
    assert unclean(contest, alive(0), Counter()) is ErrorCode.election_not_needed
    assert unclean(contest, alive(), Counter()) is ErrorCode.eligible_leaders_not_available


def test_preferred_elections_that_cannot_be() -> None:
    assert preferred(STATE, alive(0, 1, 2)) is ErrorCode.election_not_needed
    behind = replace(STATE, leader=1, isr=(1, 2))
    assert preferred(behind, alive(0, 1, 2)) is ErrorCode.preferred_leader_not_available
    away = replace(STATE, leader=1)
    assert preferred(away, alive(1, 2)) is ErrorCode.preferred_leader_not_available
    assert preferred(away, alive(0, 1, 2, leaving=(0,))) is ErrorCode.preferred_leader_not_available


def test_a_leaving_node_gives_up_its_leaderships_unless_it_is_the_last() -> None:
    """R22."""
    after = elected_state(STATE, alive(0, 1, 2, leaving=(0,)))
    assert (after.leader, after.isr) == (1, (1, 2))
    alone = replace(STATE, isr=(0,), elr=(1,))
    assert elected_state(alone, alive(0, leaving=(0,))) is alone


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (proposal(0, 1, leader_epoch=2), ErrorCode.fenced_leader_epoch),
        (proposal(0, 1, leader=1), ErrorCode.fenced_leader_epoch),
        (proposal(0, 1, partition_epoch=6), ErrorCode.invalid_update_version),
        (proposal(0, 1, leader_epoch=4), ErrorCode.invalid_request),
        (proposal(1, 2), ErrorCode.invalid_request),
        (proposal(0, 5), ErrorCode.invalid_request),
    ],
)
def test_proposals_that_are_refused(asked: IsrProposal, code: ErrorCode) -> None:
    """R4, R15."""
    assert isr.judged(STATE, asked, alive(0, 1, 2, 5), 2) is code


def test_leaving_and_dead_replicas_do_not_join_the_isr() -> None:
    """R16."""
    state = replace(STATE, isr=(0, 1))
    assert isr.judged(state, proposal(0, 1, 2), alive(0, 1), 2) is ErrorCode.ineligible_replica
    leaving = alive(0, 1, 2, leaving=(2,))
    assert isr.judged(state, proposal(0, 1, 2), leaving, 2) is ErrorCode.ineligible_replica


def test_a_leaders_change_raises_the_partition_epoch_alone_and_keeps_the_eligible() -> None:
    """R5, R20."""
    shrunk = isr.judged(STATE, proposal(0), alive(0, 1, 2), 2)
    assert shrunk == replace(STATE, isr=(0,), elr=(1, 2), partition_epoch=8)
    grown = isr.judged(shrunk, proposal(0, 2, partition_epoch=8), alive(0, 1, 2), 2)
    assert grown == replace(STATE, isr=(0, 2), elr=(), partition_epoch=9)


def test_a_lower_minimum_ends_eligibility() -> None:
    """R20: the high watermark moves on from here."""
    state = replace(STATE, isr=(0,), elr=(1,))
    assert isr.with_min_insync(state, 2) is state
    assert isr.with_min_insync(state, 1).elr == ()
