"""What has to change in a topic's partitions when nodes come, go or leave, and when a move can go on.

Pure and level-triggered: a topic and the nodes in, the topic as it should be out, the same object when it is
already. Decisions on a single partition are the machines' (machines/election.py, isr.py, reassignment.py).
Read next: controller_office.py (who writes it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.broker.live_nodes import DamagedLogs, damaged_logs, nodes_of
from headrace.machines.election import Contest, Elected, LogEnd, recovered, settle
from headrace.machines.isr import registered, with_min_insync, without
from headrace.machines.leader import Nodes
from headrace.machines.reassignment import advanced
from headrace.types import NO_NODE, ClusterView, Move, Node, PartitionState, Topic, TopicPartition


class TopicRules(NamedTuple):
    """What a topic's settings say to elections."""

    min_insync: int | None
    """As set; None when nobody set it."""
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
class Care:
    """The nodes to count with: those that join are let in when what they may have lost is seen to (R20)."""

    nodes: Nodes
    joining: Collection[Node]
    controller_epoch: int
    damaged: DamagedLogs

    @classmethod
    def of(cls, view: ClusterView) -> Care:
        present = {**view.nodes, **view.joining}
        return cls(
            nodes=nodes_of(present.values()),
            joining=tuple(view.joining.values()),
            controller_epoch=view.controller_epoch,
            damaged=damaged_logs(view),
        )

    def tended(
        self, topic: Topic, rules_of: Callable[[Topic], TopicRules], leading: Counter[int]
    ) -> tuple[Topic, list[StateChange]]:
        """`leading` is left counting the leaders chosen."""
        partitions, moves = topic.partitions, topic.moves
        damaged = [self.damaged.get((topic.topic_id, i), ()) for i in range(len(partitions))]
        wanting = [
            index
            for index, state in enumerate(partitions)
            if index in moves or not self._is_well(state, damaged[index])
        ]
        if not wanting:
            return topic, []
        rules = rules_of(topic)
        changes = []
        for index in wanting:
            before = partitions[index]
            elected = self._settled(before, rules, leading, damaged[index])
            after = elected.state
            if (move := moves.get(index)) is not None:
                nodes = self.nodes.without(damaged[index])
                moved = advanced(rules.contest(after), move, nodes, leading)
                if moved is not None:
                    after, moves = moved, _without(moves, index)
            if after is not before:
                name = TopicPartition(topic.name, index)
                changes.append(StateChange(name, before, self._signed(after), elected.lossy))
        return with_changes(topic, changes, moves), changes

    def _is_well(self, state: PartitionState, damaged: Collection[int]) -> bool:
        """Nothing to do, as it is with nearly all partitions nearly always."""
        if state.elr or state.leader not in state.isr:
            return False
        if damaged or not all(self.nodes.takes_on(node) for node in state.isr):
            return False
        return not any(_counts_on(state, node.node_id) for node in self.joining)

    def _settled(
        self,
        state: PartitionState,
        rules: TopicRules,
        leading: Counter[int],
        damaged: Collection[int],
    ) -> Elected:
        """Who holds all that is acknowledged leaves together: one by one, some would not stay eligible."""
        before = state
        needed = rules.contest(state).needed
        if state.replicas == state.isr == (state.leader,):
            damaged = ()  # whoever comes is told so by the one that has it
        state = without(state, damaged, needed, lossy=True)
        gone = {node for node in state.isr if node not in self.nodes.epochs}
        for node in self.joining:
            if not _counts_on(state, node.node_id):
                continue
            if node.lossless or rules.flushes_before_ack:
                gone.add(node.node_id)
            else:
                state = registered(state, node.node_id, needed, lossless=False)
        state = without(state, gone, needed)
        elected = settle(rules.contest(state), self.nodes.without(damaged), leading)
        after = with_min_insync(elected.state, needed)
        return Elected(_one_step(before, after), elected.lossy)

    def _signed(self, state: PartitionState) -> PartitionState:
        return replace(state, controller_epoch=self.controller_epoch)

    def recovered(self, state: PartitionState, ends: Mapping[int, LogEnd]) -> PartitionState | None:
        """R19b, once all that could have the longest log have been heard."""
        elected = recovered(state, self.nodes, ends)
        return None if elected is None else self._signed(elected.state)


def awaits_recovery(state: PartitionState) -> bool:
    """Everyone who was in sync may have lost records (R19b)."""
    return state.leader == NO_NODE and not state.isr and not state.elr and bool(state.last_known_elr)


def with_changes(
    topic: Topic, changes: Collection[StateChange], moves: Mapping[int, Move] | None = None
) -> Topic:
    kept = topic.moves if moves is None else moves
    if not changes and kept is topic.moves:
        return topic
    partitions = list(topic.partitions)
    for change in changes:
        partitions[change.partition.partition] = change.after
    return replace(topic, partitions=tuple(partitions), moves=kept)


def _counts_on(state: PartitionState, node: int) -> bool:
    """Whether what this node held before its return matters: nobody can part from a replica that is alone."""
    if state.replicas == state.isr == (node,) and state.leader == node:
        return False
    return node in state.isr or node in state.elr or state.leader == node


def _one_step(before: PartitionState, after: PartitionState) -> PartitionState:
    """Several changes written at once raise the epochs once (R5)."""
    if after is before:
        return before
    return replace(
        after,
        leader_epoch=min(after.leader_epoch, before.leader_epoch + 1),
        partition_epoch=before.partition_epoch + 1,
    )


def _without(moves: Mapping[int, Move], index: int) -> dict[int, Move]:
    return {key: move for key, move in moves.items() if key != index}
