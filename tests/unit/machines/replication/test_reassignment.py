# SPDX-License-Identifier: Apache-2.0
"""Moving a partition: nobody leaves before the new replicas are in sync; what is left over on disk."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import pytest

from headrace.machines.replication.election import Contest
from headrace.machines.replication.leader import Nodes
from headrace.machines.replication.reassignment import advanced, begun, cancelled, strays
from headrace.types import Move, PartitionState, Topic, TopicPartition
from headrace.wire.error_codes import ErrorCode

STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)
NODES = Nodes({node: 10 + node for node in range(5)})


def contest(state: PartitionState) -> Contest:
    return Contest(state=state, min_insync=None)


def moved(target: tuple[int, ...]) -> tuple[PartitionState, Move]:
    outcome = begun(STATE, target, NODES)
    assert not isinstance(outcome, ErrorCode)
    return outcome


def test_a_move_ends_when_the_added_replicas_are_in_sync() -> None:
    state, move = moved((2, 3, 4))
    assert (state.replicas, state.isr, state.leader) == ((2, 3, 4, 0, 1), (2, 0, 1), 0)
    assert (move.adding, move.removing) == ((3, 4), (0, 1))
    assert advanced(contest(state), move, NODES, Counter()) is None
    joined = replace(state, isr=(2, 3, 4, 0, 1))
    after = advanced(contest(joined), move, NODES, Counter({2: 1, 3: 1}))
    assert after is not None
    assert (after.replicas, after.isr, after.leader) == ((2, 3, 4), (2, 3, 4), 4)
    assert after.leader_epoch > joined.leader_epoch


def test_more_replicas_raise_an_unset_minimum_with_them() -> None:
    alone = replace(STATE, replicas=(0,), isr=(0,))
    outcome = begun(alone, (0, 1, 2), NODES)
    assert not isinstance(outcome, ErrorCode)
    assert [contest(alone).needed, contest(outcome[0]).needed] == [1, 2]


def test_a_cancelled_move_goes_back_once_the_original_replicas_are_enough() -> None:
    state, move = moved((3, 4))
    too_few = replace(state, isr=(3, 4, 0))
    assert cancelled(contest(too_few), move, NODES, Counter()) is None
    after = cancelled(contest(replace(state, leader=3, isr=(3, 0, 1))), move, NODES, Counter({0: 9}))
    assert after is not None
    assert (after.replicas, after.isr, after.leader) == ((0, 1, 2), (0, 1), 1)


def test_a_second_reassignment_keeps_the_original_replicas() -> None:
    state, move = moved((2, 3))
    outcome = begun(state, (3, 4), NODES, move)
    assert not isinstance(outcome, ErrorCode)
    assert outcome[1] == Move(original=(0, 1, 2), target=(3, 4))
    assert set(outcome[0].replicas) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("target", [(), (1, 1), (0, 9)])
def test_targets_that_make_no_sense(target: tuple[int, ...]) -> None:
    assert begun(STATE, target, NODES) is ErrorCode.invalid_replica_assignment


def test_a_node_that_was_down_deletes_logs_it_no_longer_replicates() -> None:
    """Topics deleted, made anew or moved meanwhile; the rest is kept."""
    kept, other = uuid.UUID(int=1), uuid.UUID(int=2)
    elsewhere = replace(STATE, replicas=(0, 2), isr=(0, 2))
    topics = {"t": Topic(name="t", topic_id=kept, partitions=(STATE, elsewhere))}
    on_disk = {
        TopicPartition("t", 0): kept,
        TopicPartition("t", 1): kept,
        TopicPartition("t", 2): kept,
        TopicPartition("gone", 0): other,
    }
    assert strays(1, on_disk, topics) == list(on_disk)[1:]
    assert strays(1, {TopicPartition("t", 0): other}, topics) == [TopicPartition("t", 0)]
