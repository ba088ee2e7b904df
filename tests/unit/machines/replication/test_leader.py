# SPDX-License-Identifier: Apache-2.0
"""The leader of a partition: high watermark, in-sync replicas, acks (R11–R18)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.machines.replication.leader import (
    Divergence,
    EpochChange,
    IsrProposal,
    Leader,
    LeaderSettings,
    Nodes,
    OwnLog,
    divergence,
    effective_min_insync,
)
from headrace.types import PartitionState
from headrace.wire.error_codes import ErrorCode

STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)
NODES = Nodes({0: 10, 1: 11, 2: 12})
LAG_MS = 10_000


def leading(state: PartitionState = STATE, min_insync: int | None = None, log_end: int = 5) -> Leader:
    own = OwnLog(log_end=log_end, durable_end=log_end, high_watermark=3)
    return Leader(0, state, NODES, own, LeaderSettings(min_insync=min_insync, lag_max_ms=LAG_MS), 0)


class Epochs:
    """Epoch 1 up to offset 4, epoch 3 from there on."""

    latest = 3

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        return (1, 4) if epoch < self.latest else (3, log_end_offset)


@pytest.mark.parametrize(
    ("configured", "replicas", "needed"), [(None, 1, 1), (None, 2, 1), (None, 3, 2), (3, 2, 2), (1, 5, 1)]
)
def test_the_minimum_is_two_from_three_replicas_on(
    configured: int | None, replicas: int, needed: int
) -> None:
    assert effective_min_insync(configured, replicas) == needed


def test_the_high_watermark_starts_at_the_checkpoint_and_moves_with_the_slowest_in_sync() -> None:
    """R13, R14."""
    machine = leading()
    assert (machine.high_watermark, machine.latest_is_known) == (3, False)
    machine.follower_fetched(1, 11, 5, 1)
    assert machine.high_watermark == 3
    machine.follower_fetched(2, 12, 4, 1)
    assert machine.high_watermark == 4
    machine.follower_fetched(2, 12, 5, 2)
    assert (machine.high_watermark, machine.latest_is_known) == (5, True)


def test_only_synced_bytes_of_the_leader_count() -> None:
    """R23, flush mode ack."""
    machine = leading(replace(STATE, replicas=(0,), isr=(0,)))
    machine.update_log_end(9, 6)
    assert machine.high_watermark == 6


@pytest.mark.row("D7")
def test_acks_all_waits_for_everyone_in_sync() -> None:
    """R17."""
    machine = leading()
    assert machine.refusal_before_append() is None
    machine.update_log_end(6, 6)
    machine.follower_fetched(1, 11, 6, 1)
    assert machine.answer_for(5) is None
    machine.follower_fetched(2, 12, 6, 1)
    assert machine.answer_for(5) is ErrorCode.none


@pytest.mark.row("D7")
def test_too_few_in_sync_replicas_refuse_before_and_after_the_append() -> None:
    """R17, R14: nothing new is committed meanwhile."""
    machine = leading()
    machine.follower_fetched(1, 11, 5, 1)
    machine.follower_fetched(2, 12, 5, 1)
    machine.update_log_end(6, 6)
    machine.update(replace(STATE, isr=(0,), elr=(1, 2), partition_epoch=8), NODES, 2)
    assert machine.refusal_before_append() is ErrorCode.not_enough_replicas
    assert machine.high_watermark == 5
    assert machine.answer_for(5) is None
    assert machine.answer_for(4) is ErrorCode.not_enough_replicas_after_append


def test_a_follower_that_does_not_catch_up_in_time_is_proposed_to_leave() -> None:
    """R16, R15: the shrunk set counts only when it is stored."""
    machine = leading()
    machine.follower_fetched(1, 11, 5, LAG_MS)
    assert machine.propose(LAG_MS) is None
    proposal = machine.propose(LAG_MS + 1)
    assert proposal == IsrProposal(0, 3, 7, ((0, 10), (1, 11)))
    assert machine.high_watermark == 3
    machine.update(replace(STATE, isr=(0, 1), partition_epoch=8), NODES, LAG_MS + 2)
    assert machine.high_watermark == 5


def test_a_follower_that_keeps_up_with_a_growing_log_stays() -> None:
    """Each fetch reaches what the leader had at the fetch before: that is how recent it is."""
    machine = leading(replace(STATE, replicas=(0, 1), isr=(0, 1)))
    for turn in range(1, 6):
        machine.follower_fetched(1, 11, 4 + turn, turn * LAG_MS // 2)
        machine.update_log_end(5 + turn, 5 + turn)
    assert machine.propose(5 * LAG_MS // 2) is None


def test_a_follower_that_is_to_join_holds_the_high_watermark_at_once() -> None:
    """R14, R15: the proposal may be stored before its answer comes."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(1, 11, 5, 1)
    machine.follower_fetched(2, 12, 5, 1)
    proposal = machine.propose(2)
    assert proposal is not None
    assert proposal.members == (0, 1, 2)
    machine.update_log_end(6, 6)
    machine.follower_fetched(1, 11, 6, 3)
    assert (machine.high_watermark, machine.state.isr, machine.maximal_isr) == (5, (0, 1), {0, 1, 2})


def test_an_attempt_without_answer_is_made_again_as_it_was() -> None:
    """R6."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(2, 12, 5, 1)
    proposal = machine.propose(2)
    assert proposal is not None
    assert machine.propose(3) is None
    machine.unknown(proposal)
    assert machine.maximal_isr == {0, 1, 2}
    assert machine.propose(4) == proposal


def test_a_conflict_waits_for_the_view_and_any_other_refusal_ends_the_proposal() -> None:
    """R15: the conflict may be with this very proposal."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(2, 12, 5, 1)
    proposal = machine.propose(2)
    assert proposal is not None
    machine.refused(proposal, ErrorCode.invalid_update_version)
    assert (machine.maximal_isr, machine.propose(3)) == ({0, 1, 2}, None)
    machine.refused(proposal, ErrorCode.ineligible_replica)
    assert machine.maximal_isr == {0, 1}


def test_leaving_and_restarted_replicas_do_not_join_the_isr() -> None:
    """R16."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(2, 12, 5, 1)
    machine.update(replace(STATE, isr=(0, 1)), Nodes(NODES.epochs, leaving={2}), 2)
    assert machine.propose(2) is None
    machine.update(replace(STATE, isr=(0, 1)), Nodes({0: 10, 1: 11, 2: 30}), 2)
    assert machine.propose(2) is None
    assert machine.follower_fetched(2, 12, 5, 3) is ErrorCode.stale_broker_epoch


def test_a_replica_whose_log_was_damaged_joins_only_by_what_it_fetched_afterwards() -> None:
    """R27: its log may be empty since, under the same node epoch."""
    machine = leading(replace(STATE, isr=(0, 1)))
    machine.follower_fetched(2, 12, 5, 1)
    machine.update(replace(STATE, isr=(0, 1)), NODES.without({2}), 2)
    machine.follower_fetched(2, 12, 5, 3)  # sent before the damage was found
    assert machine.propose(3) is None
    machine.update(replace(STATE, isr=(0, 1)), NODES, 4)
    assert machine.propose(4) is None
    machine.follower_fetched(2, 12, 0, 5)
    assert machine.propose(5) is None
    machine.follower_fetched(2, 12, 5, 6)
    proposal = machine.propose(6)
    assert proposal is not None
    assert proposal.members == (0, 1, 2)


def test_a_damaged_replica_in_the_isr_commits_nothing() -> None:
    """R27: until the controller has removed it."""
    machine = leading()
    machine.follower_fetched(1, 11, 5, 1)
    machine.update(STATE, NODES.without({2}), 2)
    machine.follower_fetched(2, 12, 5, 3)
    assert machine.high_watermark == 3


def test_views_out_of_order_and_another_leader() -> None:
    """R4, R17."""
    machine = leading()
    assert machine.update(replace(STATE, leader=1, leader_epoch=2), NODES, 1) is EpochChange.SAME_EPOCH
    elected_again = replace(STATE, leader_epoch=4, partition_epoch=8)
    assert machine.update(elected_again, NODES, 1) is EpochChange.NEW_EPOCH
    gone = replace(STATE, leader=1, leader_epoch=5, partition_epoch=9)
    assert machine.update(gone, NODES, 1) is EpochChange.RESIGN


def test_records_are_deleted_everywhere_when_the_slowest_live_replica_has_done_it() -> None:
    machine = leading()
    machine.update_log_end(5, 5, 4)
    machine.follower_fetched(1, 11, 5, 1, log_start=4)
    machine.follower_fetched(2, 12, 5, 1, log_start=2)
    assert machine.low_watermark == 2
    machine.update(STATE, Nodes({0: 10, 1: 11}), 2)
    assert machine.low_watermark == 4


def test_the_diverging_epoch_of_a_followers_log() -> None:
    """R12, KIP-279."""
    assert divergence(Epochs(), 9, 0, -1) is None
    assert divergence(Epochs(), 9, 7, 3) is None
    assert divergence(Epochs(), 9, 4, 1) is None
    assert divergence(Epochs(), 9, 6, 1) == Divergence(1, 4)
    assert divergence(Epochs(), 9, 6, 2) == Divergence(1, 4)
