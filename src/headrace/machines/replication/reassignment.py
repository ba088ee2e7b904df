# SPDX-License-Identifier: Apache-2.0
"""Moving a partition to other replicas, one safe step at a time (AlterPartitionReassignments).

Pure: states in, states out. The shell (broker/controller/reassignments.py, partition_reconciler.py) stores
the `Move` beside the
partition's state, in the same commit. A returning node asks `strays` which of its directories nobody counts
on any more. Read next: election.py, isr.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.machines.replication.election import Contest, elect
from headrace.machines.replication.leader import Nodes, effective_min_insync
from headrace.types import Move, PartitionState, Topic, TopicId, TopicPartition
from headrace.wire.error_codes import ErrorCode


def begun(
    state: PartitionState, target: tuple[int, ...], nodes: Nodes, under_way: Move | None = None
) -> tuple[PartitionState, Move] | ErrorCode:
    """Old and new replicas together; none is removed before the new ones are in sync."""
    if not target or len(set(target)) != len(target):
        return ErrorCode.invalid_replica_assignment
    if any(node not in nodes.epochs and node not in state.replicas for node in target):
        return ErrorCode.invalid_replica_assignment
    move = Move(original=under_way.original if under_way else state.replicas, target=target)
    together = (*target, *(node for node in state.replicas if node not in target))
    return _with_replicas(state, together), move


def advanced(contest: Contest, move: Move, nodes: Nodes, leading: Counter[int]) -> PartitionState | None:
    """The state after the move; None while it has to wait.

    Every added replica is in sync, and of the target enough for the topic's minimum: the in-sync replicas
    only become fewer then, which never loses what is acknowledged (R15).
    """
    state = contest.state
    in_target = [node for node in state.isr if node in move.target]
    enough = effective_min_insync(contest.min_insync, len(move.target))
    if any(node not in state.isr for node in move.adding) or len(in_target) < enough:
        return None
    return _narrowed(contest, move.target, nodes, leading)


def cancelled(contest: Contest, move: Move, nodes: Nodes, leading: Counter[int]) -> PartitionState | None:
    """Back to the original replicas; None while too few of them are in sync to let the new ones go."""
    in_sync = [node for node in contest.state.isr if node in move.original]
    if len(in_sync) < effective_min_insync(contest.min_insync, len(move.original)):
        return None
    return _narrowed(contest, move.original, nodes, leading)


def _narrowed(
    contest: Contest, replicas: tuple[int, ...], nodes: Nodes, leading: Counter[int]
) -> PartitionState:
    narrowed = _with_replicas(contest.state, replicas)
    return elect(replace(contest, state=narrowed), nodes, leading).state


def _with_replicas(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """A new leader epoch, since the controller may change the in-sync replicas by it (R5)."""

    def kept(members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(node for node in replicas if node in members)

    return replace(
        state,
        replicas=replicas,
        isr=kept(state.isr),
        elr=kept(state.elr),
        last_known_elr=kept(state.last_known_elr),
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )


def strays(
    node: int, on_disk: Mapping[TopicPartition, TopicId], topics: Mapping[str, Topic]
) -> Collection[TopicPartition]:
    """Directories to delete: of topics deleted (or made anew) while the node was down, or moved elsewhere.

    The shell has compared the cluster id before, and read the view after registering: an empty view of the
    wrong cluster must not delete anything.
    """

    def is_kept(partition: TopicPartition, topic_id: TopicId) -> bool:
        topic = topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id or partition.partition >= len(topic.partitions):
            return False
        return node in topic.partitions[partition.partition].replicas

    return [partition for partition, topic_id in on_disk.items() if not is_kept(partition, topic_id)]
