# SPDX-License-Identifier: Apache-2.0
"""Reconciles a topic's partitions with the live nodes: ISR changes, elections, progress of reassignments.

Pure and level-triggered: a topic and the nodes in, the topic as it should be out, the same object when
nothing has to change. Decisions on a single partition are in machines/replication (election.py, isr.py,
reassignment.py). Read next: controller/loop.py (writes the result).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.broker.replication.live_nodes import DamagedLogs, damaged_logs, last_epochs, nodes_of
from headrace.machines.replication.election import Contest, Elected, LogEnd, elect, recovered
from headrace.machines.replication.isr import fenced, registered, returned_empty, with_min_insync, without
from headrace.machines.replication.leader import Nodes
from headrace.machines.replication.reassignment import advanced
from headrace.types import NO_NODE, ClusterView, Move, Node, PartitionState, Topic, TopicId, TopicPartition


class TopicRules(NamedTuple):
    """The configs of a topic that matter for elections."""

    min_insync: int | None
    """None when min.insync.replicas is not set."""
    unclean: bool = False
    flushes_before_ack: bool = False

    def contest(self, state: PartitionState) -> Contest:
        return Contest(state=state, min_insync=self.min_insync, unclean=self.unclean)


class StateChange(NamedTuple):
    partition: TopicPartition
    before: PartitionState
    after: PartitionState
    lossy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReconciler:
    """Of one view. A joining node is admitted once no partition counts on records it may have lost (R20)."""

    nodes: Nodes
    joining: Collection[Node]
    controller_epoch: int
    damaged: DamagedLogs
    last_epochs: Mapping[tuple[TopicId, int], int]

    @classmethod
    def of(cls, view: ClusterView) -> PartitionReconciler:
        present = {**view.nodes, **view.joining}
        return cls(
            nodes=nodes_of(present.values()),
            joining=tuple(view.joining.values()),
            controller_epoch=view.controller_epoch,
            damaged=damaged_logs(view),
            last_epochs=last_epochs(view),
        )

    def reconciled(
        self, topic: Topic, rules_of: Callable[[Topic], TopicRules], leading: Counter[int]
    ) -> tuple[Topic, list[StateChange]]:
        """The topic as it should be, and its changes. `leading` counts the leaders chosen afterwards."""
        partitions, moves = topic.partitions, topic.moves
        damaged = [self.damaged.get((topic.topic_id, i), ()) for i in range(len(partitions))]
        to_change = [
            index
            for index, state in enumerate(partitions)
            if index in moves or not self._is_stable(state, damaged[index])
        ]
        if not to_change:
            return topic, []
        rules = rules_of(topic)
        changes = []
        for index in to_change:
            before = partitions[index]
            elected = self._elected(before, rules, leading, damaged[index])
            after = self._fenced(before, elected.state, topic, index)
            if (move := moves.get(index)) is not None:
                nodes = self.nodes.without(damaged[index])
                moved = advanced(rules.contest(after), move, nodes, leading)
                if moved is not None:
                    after, moves = moved, _without(moves, index)
            if after is not before:
                name = TopicPartition(topic.name, index)
                changes.append(StateChange(name, before, self._with_controller_epoch(after), elected.lossy))
        return with_changes(topic, changes, moves), changes

    def _fenced(
        self, before: PartitionState, after: PartitionState, topic: Topic, index: int
    ) -> PartitionState:
        """Where another node leads: a damaged log waits for the next leader epoch (R27)."""
        key = topic.topic_id, index
        if key not in self.last_epochs or after.leader in self.damaged.get(key, ()):
            return after
        return _one_step(before, fenced(after, self.last_epochs[key]))

    def _is_stable(self, state: PartitionState, damaged: Collection[int]) -> bool:
        """Whether nothing has to change, which holds for nearly all partitions."""
        if state.elr or state.leader not in state.isr:
            return False
        if state.leader in self.nodes.slow:
            return False
        if damaged or not all(self.nodes.takes_on(node) for node in state.isr):
            return False
        return not any(_counts_on(state, node.node_id) for node in self.joining)

    def _elected(
        self,
        state: PartitionState,
        rules: TopicRules,
        leading: Counter[int],
        damaged: Collection[int],
    ) -> Elected:
        """Removes replicas from the ISR in one step: one by one, some would not enter the ELR."""
        before = state
        needed = rules.contest(state).needed
        if state.replicas == state.isr == (state.leader,):
            damaged = ()  # no other node can lead; requests get the storage error
        state = without(state, damaged, needed, lossy=True)
        gone = {node for node in state.isr if node not in self.nodes.epochs}
        for node in self.joining:
            if node.new_disk and not _is_only_replica(state, node.node_id):
                state = returned_empty(state, node.node_id, needed)
            if not _counts_on(state, node.node_id):
                continue
            if node.lossless or rules.flushes_before_ack:
                gone.add(node.node_id)
            else:
                state = registered(state, node.node_id, needed, lossless=False)
        state = without(state, gone, needed)
        elected = elect(rules.contest(state), self.nodes.without(damaged), leading)
        after = with_min_insync(elected.state, needed)
        return Elected(_one_step(before, after), elected.lossy)

    def _with_controller_epoch(self, state: PartitionState) -> PartitionState:
        return replace(state, controller_epoch=self.controller_epoch)

    def recovered(self, state: PartitionState, ends: Mapping[int, LogEnd]) -> PartitionState | None:
        """R19b: elects the replica with the longest log, once the log ends of all candidates are known."""
        elected = recovered(state, self.nodes, ends)
        return None if elected is None else self._with_controller_epoch(elected.state)


def awaits_recovery(state: PartitionState) -> bool:
    """Whether all replicas that were in sync may have lost records (R19b)."""
    return state.leader == NO_NODE and not state.isr and not state.elr and bool(state.last_known_elr)


def with_changes(
    topic: Topic, changes: Collection[StateChange], moves: Mapping[int, Move] | None = None
) -> Topic:
    new_moves = topic.moves if moves is None else moves
    if not changes and new_moves is topic.moves:
        return topic
    partitions = list(topic.partitions)
    for change in changes:
        partitions[change.partition.partition] = change.after
    return replace(topic, partitions=tuple(partitions), moves=new_moves)


def _counts_on(state: PartitionState, node: int) -> bool:
    """Whether the node is in the ISR or ELR, or leads; not when it is the only replica."""
    if _is_only_replica(state, node):
        return False
    return node in state.isr or node in state.elr or state.leader == node


def _is_only_replica(state: PartitionState, node: int) -> bool:
    return state.replicas == state.isr == (node,) and state.leader == node


def _one_step(before: PartitionState, after: PartitionState) -> PartitionState:
    """Several changes in one write raise the epochs once (R5)."""
    if after is before:
        return before
    return replace(
        after,
        leader_epoch=min(after.leader_epoch, before.leader_epoch + 1),
        partition_epoch=before.partition_epoch + 1,
    )


def _without(moves: Mapping[int, Move], index: int) -> dict[int, Move]:
    return {key: move for key, move in moves.items() if key != index}
