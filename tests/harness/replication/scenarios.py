# SPDX-License-Identifier: Apache-2.0
"""Named schedules for rules that random runs seldom test: each fails when its rule is removed (T3).

Plain functions that raise when a promise is broken. Read next: model.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.machines.replication import election, isr, leader
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode

STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)
NODES = leader.Nodes({0: 10, 1: 11, 2: 12})


def leading(state: PartitionState = STATE, *, log_end: int = 7, high_watermark: int = 5) -> leader.Leader:
    own = leader.OwnLog(log_end=log_end, durable_end=log_end, high_watermark=high_watermark)
    settings = leader.LeaderSettings(min_insync=None, lag_max_ms=10_000)
    return leader.Leader(0, state, NODES, own, settings, 0)


def another_epochs_fetch_is_refused() -> None:
    """R11."""
    machine = leading()
    _same(machine.check_epoch(2), ErrorCode.fenced_leader_epoch)
    _same(machine.check_epoch(4), ErrorCode.unknown_leader_epoch)
    _same(machine.check_epoch(3), None)


def follower_offsets_of_an_earlier_epoch_do_not_count() -> None:
    """R14: follower 2, behind, leaves in the new epoch; follower 1 has to fetch again first."""
    machine = leading()
    machine.follower_fetched(1, 11, 7, 0)
    machine.follower_fetched(2, 12, 5, 0)
    shrunk = replace(STATE, isr=(0, 1), leader_epoch=4, partition_epoch=8)
    machine.update(shrunk, NODES, 1)
    _same(machine.high_watermark, 5)
    machine.follower_fetched(1, 11, 7, 2)
    _same(machine.high_watermark, 7)


def what_a_follower_had_before_its_restart_does_not_count() -> None:
    """R14: the view shows follower 1's new incarnation before the state shows that the old one left."""
    machine = leading()
    machine.follower_fetched(1, 11, 7, 0)
    machine.update(STATE, leader.Nodes({0: 10, 1: 20, 2: 12}), 1)
    machine.follower_fetched(2, 12, 7, 2)
    _same(machine.high_watermark, 5)


def too_few_in_sync_acknowledge_nothing() -> None:
    """R17: neither what is to be written, nor what was committed just before."""
    machine = leading()
    machine.update(replace(STATE, isr=(0,), elr=(1, 2), partition_epoch=8), NODES, 1)
    _same(machine.refusal_before_append(), ErrorCode.not_enough_replicas)
    _same(machine.answer_for(4), ErrorCode.not_enough_replicas_after_append)


def a_member_that_restarted_since_does_not_join() -> None:
    """R3, R16: the leader judged an earlier incarnation."""
    state = replace(STATE, isr=(0, 1))
    proposal = leader.IsrProposal(0, 3, 7, ((0, 10), (1, 11), (2, 12)))
    restarted = leader.Nodes({0: 10, 1: 11, 2: 22})
    _same(isr.judged(state, proposal, restarted, 2), ErrorCode.ineligible_replica)


def a_late_proposal_is_refused() -> None:
    """R15: the partition epoch moved on meanwhile."""
    proposal = leader.IsrProposal(0, 3, 6, ((0, 10), (1, 11)))
    _same(isr.judged(STATE, proposal, NODES, 2), ErrorCode.invalid_update_version)


def a_follower_behind_the_epoch_start_does_not_join() -> None:
    """R16: it may lack what the leader before acknowledged and this one does not know of yet."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(2, 12, 6, 0)
    _same(machine.propose(0), None)


def nobody_stays_eligible_beside_a_leader_that_is_enough() -> None:
    """R20, min.insync.replicas=1: both in sync die at once; the one that returns goes on alone."""
    state = replace(STATE, isr=(0, 1))
    dead = election.elect(election.Contest(state=state, min_insync=1), leader.Nodes({2: 12}), Counter())
    _same((dead.state.leader, dead.state.isr, dead.state.elr), (NO_NODE, (), (0, 1)))
    back = election.Contest(state=dead.state, min_insync=1)
    led = election.elect(back, leader.Nodes({1: 21, 2: 12}), Counter()).state
    _same((led.leader, led.isr, led.elr), (1, (1,), ()))


def a_follower_proposes_nothing() -> None:
    """R4: the leader alone knows who is in sync."""
    proposal = leader.IsrProposal(1, 3, 7, ((0, 10), (1, 11)))
    _same(isr.judged(STATE, proposal, NODES, 2), ErrorCode.fenced_leader_epoch)


def a_state_that_arrives_late_changes_nothing() -> None:
    """R4: follower 2 is in the stored in-sync replicas, and an older state without it comes after that."""
    shrunk = replace(STATE, isr=(0, 1))
    machine = leading(shrunk)
    machine.follower_fetched(2, 12, 7, 0)
    joined = replace(STATE, partition_epoch=8)
    machine.update(joined, NODES, 1)
    machine.update(shrunk, NODES, 2)
    machine.update_log_end(9, 9)
    machine.follower_fetched(1, 11, 9, 3)
    _same((machine.state.isr, machine.high_watermark), ((0, 1, 2), 7))


def the_longest_log_leads_once_all_have_answered() -> None:
    """R19b."""
    lost = replace(STATE, leader=NO_NODE, isr=(), last_known_elr=(0, 1, 2))
    ends = {0: election.LogEnd(3, 7), 1: election.LogEnd(3, 8)}
    _same(election.recovered(lost, NODES, ends), None)
    elected = election.recovered(lost, NODES, {**ends, 2: election.LogEnd(2, 9)})
    _same(None if elected is None else (elected.state.leader, elected.lossy), (1, True))


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{found} instead of {expected}")


SCENARIOS = (
    another_epochs_fetch_is_refused,
    follower_offsets_of_an_earlier_epoch_do_not_count,
    what_a_follower_had_before_its_restart_does_not_count,
    too_few_in_sync_acknowledge_nothing,
    a_member_that_restarted_since_does_not_join,
    a_late_proposal_is_refused,
    a_follower_behind_the_epoch_start_does_not_join,
    nobody_stays_eligible_beside_a_leader_that_is_enough,
    a_follower_proposes_nothing,
    a_state_that_arrives_late_changes_nothing,
    the_longest_log_leads_once_all_have_answered,
)
