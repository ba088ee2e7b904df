# SPDX-License-Identifier: Apache-2.0
"""The controller's decision on proposed in-sync replicas: it alone writes a partition's state (R4).

Pure: a state and what happened in, the next state out; the same object when nothing changes. The shell
(broker/controller/isr_updater.py, partition_reconciler.py) writes every result under the controller epoch,
conditional on the
state it was made from (R2). The minimum given here must be the one the leaders use (leader.py): a changed
setting is written together with `with_min_insync`, or a stale member could be elected.
Read next: election.py, leader.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from headrace.machines.replication.leader import IsrProposal, Nodes
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode


def judged(
    state: PartitionState, proposal: IsrProposal, nodes: Nodes, min_insync: int
) -> PartitionState | ErrorCode:
    """The answer to a leader's AlterPartition. The leader goes on under its epoch (R5, R15)."""
    if proposal.leader != state.leader or proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if proposal.leader_epoch > state.leader_epoch or proposal.leader not in proposal.members:
        return ErrorCode.invalid_request
    if proposal.partition_epoch != state.partition_epoch:
        return ErrorCode.invalid_update_version
    for node, node_epoch in proposal.isr:
        if node not in state.replicas:
            return ErrorCode.invalid_request
        if node not in state.isr and (nodes.epochs.get(node) != node_epoch or not nodes.takes_on(node)):
            return ErrorCode.ineligible_replica  # R3, R16: it restarted, is about to stop, or is full
    isr = _in_replica_order(state, proposal.members)
    enough = len(isr) >= min_insync
    leavers = [node for node in state.isr if node not in isr]
    return _changed(
        state,
        isr=isr,
        elr=() if enough else _in_replica_order(state, {*state.elr, *leavers} - {*isr}),
        last_known_elr=() if enough else state.last_known_elr,
    )


def without(
    state: PartitionState, gone: Collection[int], min_insync: int, *, lossy: bool = False
) -> PartitionState:
    """The nodes are dead or leave. `lossy`: what they hold may have gone with them (R20).

    A leaver that brings the in-sync replicas below the minimum holds all that is acknowledged, and will until
    there are enough again, since the high watermark stands still that long (R14): it stays eligible.
    """
    isr = tuple(node for node in state.isr if node not in gone)
    leavers = [node for node in state.isr if node in gone]
    elr = set(state.elr)
    last_known = set(state.last_known_elr)
    if len(isr) < min_insync:
        elr.update(leavers)
    else:
        elr.clear()
    if lossy:
        last_known.update(node for node in gone if node in elr or node in leavers)
        elr.difference_update(gone)
    if isr == state.isr and elr == set(state.elr):
        return state
    return _changed(
        state,
        isr=isr,
        elr=_in_replica_order(state, elr),
        last_known_elr=_in_replica_order(state, last_known),
        leader_epoch=state.leader_epoch + 1,  # R5: the controller made this change
    )


def is_lossless(*, clean_marker: bool, same_boot: bool, flushes_before_ack: bool) -> bool:
    """Whether a node comes back with all it ever reported (R21)."""
    return clean_marker or same_boot or flushes_before_ack


def registered(state: PartitionState, node: int, min_insync: int, *, lossless: bool) -> PartitionState:
    """Written, with `election.elect` after it, before the node's new registration is complete (R20)."""
    return without(state, {node}, min_insync, lossy=not lossless)


def returned_empty(state: PartitionState, node: int, min_insync: int) -> PartitionState:
    """Like `registered`, for a node whose disk was replaced: nor is it asked for its log end (R19b).

    The only replica there is stays known: with an empty log it can lead again, and nobody holds more.
    """
    after = without(state, {node}, min_insync, lossy=True)
    if node not in after.last_known_elr or after.replicas == (node,):
        return after
    others = tuple(each for each in after.last_known_elr if each != node)
    return _changed(after, last_known_elr=others)


def fenced(state: PartitionState, last_epoch: int) -> PartitionState:
    """R27: a later leader epoch than the last one in which a log that is damaged since was fetched for.

    The log may begin anew in it: what was fetched and proposed before counts no more (R11, R15).
    """
    if state.leader == NO_NODE or state.leader_epoch > last_epoch:
        return state
    return _changed(state, leader_epoch=state.leader_epoch + 1)


def with_min_insync(state: PartitionState, min_insync: int) -> PartitionState:
    """Under a lower minimum the high watermark moves on again, past what eligible replicas hold."""
    if len(state.isr) < min_insync or not state.elr:
        return state
    return _changed(state, elr=())


def _in_replica_order(state: PartitionState, members: Collection[int]) -> tuple[int, ...]:
    return tuple(node for node in state.replicas if node in members)


def _changed(state: PartitionState, **fields: Any) -> PartitionState:
    return replace(state, partition_epoch=state.partition_epoch + 1, **fields)
