# SPDX-License-Identifier: Apache-2.0
"""Leader election: when nodes fail, return or shut down, on request, and after a power cut of all (R19).

Pure and level-triggered: the state and the live nodes in, the state as it should be out (the same object
when it is already), so a lost message never matters.

What the controller loop (broker/controller/loop.py, R2) does: on becoming controller and on every change of
nodes, `elect` for all partitions, and it writes what differs. Before a node's registration is complete:
`isr.registered` (R20). A `lossy` election is counted and written to the audit log (R19). A partition without
leader, in-sync and eligible replicas: ask all of `last_known_elr` for their log ends, then `recovered`.

Read next: isr.py, reassignment.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.machines.replication.isr import with_min_insync, without
from headrace.machines.replication.leader import Nodes, effective_min_insync
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode


class LogEnd(NamedTuple):
    """How far a log reaches: of two logs the larger one holds all that both acknowledged (R19b)."""

    last_epoch: int
    log_end: int


class Elected(NamedTuple):
    state: PartitionState
    lossy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One partition and its topic's rules."""

    state: PartitionState
    min_insync: int | None
    """min.insync.replicas as configured; None when it is not."""
    unclean: bool = False
    """unclean.leader.election.enable of the topic."""

    @property
    def needed(self) -> int:
        return effective_min_insync(self.min_insync, len(self.state.replicas))


def elect(contest: Contest, nodes: Nodes, leading: Counter[int]) -> Elected:
    """Dead, leaving and full nodes out of the in-sync replicas, and a leader among those that remain."""
    before = contest.state
    state = without(before, _to_drop(before, nodes), contest.needed)
    if state.leader in state.isr:
        chosen = _fewest(_faster(state, nodes), leading)
        if chosen is None:
            return Elected(state)
    else:
        chosen = _fewest(_clean_candidates(state, nodes), leading)
    lossy = chosen is None and contest.unclean
    if lossy:
        chosen = _fewest(_live(state.replicas, nodes), leading)
    if chosen is None and state.leader == NO_NODE:
        return Elected(state)
    after = _led_by(before, state, NO_NODE if chosen is None else chosen)
    after = replace(with_min_insync(after, contest.needed), partition_epoch=after.partition_epoch)
    _count(leading, before.leader, after.leader)
    return Elected(after, lossy and chosen is not None)


def _to_drop(state: PartitionState, nodes: Nodes) -> set[int]:
    dropped = {node for node in state.isr if node not in nodes.epochs}
    for reluctant in (nodes.leaving, nodes.full):
        staying = set(state.isr) - dropped
        # The last in-sync replicas lead until they stop: no other replica can take over (R22, R24).
        if not staying <= set(reluctant):
            dropped |= staying & set(reluctant)
    return dropped


def _faster(state: PartitionState, nodes: Nodes) -> list[int]:
    """R16b: who can take over from a slow leader; nobody when all are slow."""
    if state.leader not in nodes.slow:
        return []
    return [
        node
        for node in state.replicas
        if node in state.isr and nodes.takes_on(node) and node not in nodes.slow
    ]


def _clean_candidates(state: PartitionState, nodes: Nodes) -> list[int]:
    """R19: in sync, else eligible; those that may have lost records are in neither (R20)."""
    in_sync = [node for node in state.replicas if node in state.isr]
    eligible = [node for node in state.replicas if node in state.elr]
    return _live(in_sync, nodes) or _live(eligible, nodes)


def _live(candidates: Iterable[int], nodes: Nodes) -> list[int]:
    live = [node for node in candidates if node in nodes.epochs]
    staying = [node for node in live if node not in nodes.leaving] or live
    roomy = [node for node in staying if node not in nodes.full] or staying
    return [node for node in roomy if node not in nodes.slow] or roomy


def _fewest(candidates: list[int], leading: Counter[int]) -> int | None:
    """The node that leads the fewest partitions; `min` keeps replica order among equals."""
    return min(candidates, key=lambda node: leading[node], default=None)


def _led_by(before: PartitionState, state: PartitionState, leader: int) -> PartitionState:
    """A leader from outside the in-sync replicas starts them anew; epochs rise once per change (R5)."""
    led = replace(
        state,
        leader=leader,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    if leader == NO_NODE or leader in state.isr:
        return led
    if leader in state.elr:
        return replace(led, isr=(leader,), elr=tuple(node for node in state.elr if node != leader))
    return replace(led, isr=(leader,), elr=(), last_known_elr=())


def _count(leading: Counter[int], old: int, new: int) -> None:
    if old != NO_NODE:
        leading[old] -= 1
    if new != NO_NODE:
        leading[new] += 1


def preferred(state: PartitionState, nodes: Nodes) -> PartitionState | ErrorCode:
    """ElectLeaders, preferred: the first replica, when it is alive, in sync and no slower than the leader."""
    first = state.replicas[0]
    if state.leader == first:
        return ErrorCode.election_not_needed
    slower = first in nodes.slow and state.leader not in nodes.slow
    if first not in state.isr or not nodes.takes_on(first) or slower:
        return ErrorCode.preferred_leader_not_available
    return _led_by(state, state, first)


def unclean(contest: Contest, nodes: Nodes, leading: Counter[int]) -> Elected | ErrorCode:
    """ElectLeaders, unclean, on the operator's request (R19); a clean election is preferred if possible."""
    if contest.state.leader in nodes.epochs:
        return ErrorCode.election_not_needed
    elected = elect(replace(contest, unclean=True), nodes, leading)
    if elected.state.leader == NO_NODE:
        return ErrorCode.eligible_leaders_not_available
    return elected


def recovered(state: PartitionState, nodes: Nodes, ends: Mapping[int, LogEnd]) -> Elected | None:
    """R19b: everyone may have lost records. The longest log leads, once all that may have it answered.

    The logs may have epochs that the store has not: it was put back, and others went on with another copy.
    """
    if state.leader != NO_NODE or state.isr or state.elr or not state.last_known_elr:
        return None
    if any(node not in nodes.epochs or node not in ends for node in state.last_known_elr):
        return None
    longest = max(state.last_known_elr, key=lambda node: ends[node])
    # The others stay known until enough are in sync: should the leader lose power too, they are asked again.
    led = replace(_led_by(state, state, longest), last_known_elr=state.last_known_elr)
    unused = max(end.last_epoch for end in ends.values()) + 1
    led = replace(led, leader_epoch=max(led.leader_epoch, unused))
    return Elected(led, lossy=True)
