# SPDX-License-Identifier: Apache-2.0
"""State machine of a partition's leader: high watermark, in-sync replicas, answers to acks=all.

Decides only; broker/partition/leader_role.py and broker/replication/replicas.py call it. Each method is an
event, since every follower fetch is one.
States: leading (one leader epoch), with or without one proposed change of the in-sync replicas; exit: a state
of the partition that names another leader.

What the broker does:
- Becoming leader (R9, R13): write (leader epoch -> log end) to the epoch file, fsync it, then make a `Leader`
  whose high watermark is the node's checkpoint, never its log end. Record the epoch as taken on last.
- Every Fetch and OffsetForLeaderEpoch that names an epoch: `check_epoch`, and with no `await` after it the
  read (R11). A replica's Fetch: `check_epoch`, `divergence`, the read, `follower_fetched`.
- Own log: `update_log_end` after an append; its second offset is the flushed offset under flush mode `ack`,
  the log end offset otherwise (R23).
- Every change of the cluster view: `update`. SAME_EPOCH: go on. NEW_EPOCH: as becoming leader, in place.
  RESIGN: another node leads; the broker has left the role already when it sees such a state (R17).
- After each of these and once a second: `propose`. A proposal goes to the controller; its
  answer is a state for `update`, or `refused`. No answer, or one that leaves the outcome open (an unknown
  outcome in the store, NOT_CONTROLLER), is `unknown`: then `propose` returns the same proposal again.
- acks=all: `refusal_before_append`, append, then `answer_for` whenever the high watermark moved.

Read next: follower.py, isr.py (the controller's side of a proposal).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from headrace.types import PartitionState
from headrace.wire.error_codes import ErrorCode

UNKNOWN_OFFSET = -1
_EPOCHS_MOVED_ON = frozenset({ErrorCode.fenced_leader_epoch, ErrorCode.invalid_update_version})
_REPLICAS_FOR_TWO = 3
LEAST_WITHOUT_SLOW = 2
"""However slow a follower is, a leader does not stay alone in the ISR for it."""


class EpochIndex(Protocol):
    """The end offset of each leader epoch in one log; implemented by log/epochs.py."""

    latest: int

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


class Nodes(NamedTuple):
    """The live nodes: their node epochs (R3), those that shut down (R22), that have a full disk (R25), and
    that are slow (R16b). `damaged`: nodes without a sound log of the partition (R27), not in `epochs`."""

    epochs: Mapping[int, int]
    leaving: Collection[int] = frozenset()
    full: Collection[int] = frozenset()
    slow: Collection[int] = frozenset()
    damaged: Collection[int] = frozenset()

    def takes_on(self, node: int) -> bool:
        """Whether it may become leader or join the in-sync replicas."""
        return node in self.epochs and node not in self.leaving and node not in self.full

    def without(self, damaged: Collection[int]) -> Nodes:
        """For a partition whose log is damaged on some nodes (R27)."""
        if not damaged:
            return self
        sound = {node: epoch for node, epoch in self.epochs.items() if node not in damaged}
        return self._replace(epochs=sound, damaged=damaged)


class EpochChange(Enum):
    """What a stored state means for the leader epoch of this node."""

    SAME_EPOCH = "same epoch"
    NEW_EPOCH = "new epoch"
    RESIGN = "resign"


class IsrProposal(NamedTuple):
    """AlterPartition: conditional on both epochs; each member with its node epoch at the decision (R4)."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.isr)


class Divergence(NamedTuple):
    """The largest epoch of the leader not above the one asked for, and where it ended (KIP-279)."""

    epoch: int
    end_offset: int


@dataclass(slots=True, kw_only=True)
class _Replica:
    caught_up_ms: int
    node_epoch: int = UNKNOWN_OFFSET
    log_end: int = UNKNOWN_OFFSET
    log_start: int = UNKNOWN_OFFSET
    fetched_ms: int | None = None
    leader_end_at_fetch: int = UNKNOWN_OFFSET
    keeps_up: bool = False


@dataclass(slots=True, kw_only=True)
class _Pending:
    proposal: IsrProposal
    additions: set[int]
    in_flight: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    min_insync: int | None
    """min.insync.replicas as configured; None when it is not."""
    lag_max_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLog:
    """The leader's own log when its epoch begins."""

    log_end: int
    durable_end: int
    high_watermark: int
    log_start: int = 0


@dataclass(slots=True)
class _Own:
    log_end: int
    durable_end: int
    log_start: int


class Leader:
    def __init__(
        self,
        node_id: int,
        state: PartitionState,
        nodes: Nodes,
        log: OwnLog,
        settings: LeaderSettings,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.high_watermark = min(log.high_watermark, log.log_end)
        self._own = _Own(log.log_end, log.durable_end, log.log_start)
        self._take_epoch(state, nodes, now_ms)

    def _take_epoch(self, state: PartitionState, nodes: Nodes, now_ms: int) -> None:
        """Fetches of followers in an earlier leader epoch no longer count (R14)."""
        self.state = state
        """As stored: what counts for elections and for min.insync.replicas (R15)."""
        self._nodes = nodes
        self._pending: _Pending | None = None
        self.epoch_start_offset = self._own.log_end
        others = (node for node in state.replicas if node != self.node_id)
        self._replicas = {node: _Replica(caught_up_ms=now_ms) for node in others}
        self._advance()

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def maximal_isr(self) -> set[int]:
        """As stored, and those an open proposal would add: they hold the high watermark back (R14)."""
        additions = self._pending.additions if self._pending else set()
        return {*self.state.isr, *additions}

    @property
    def min_insync(self) -> int:
        return effective_min_insync(self.settings.min_insync, len(self.state.replicas))

    @property
    def under_min_insync(self) -> bool:
        """Counts the stored in-sync replicas (R15)."""
        state = self.state
        return len(state.isr) < effective_min_insync(self.settings.min_insync, len(state.replicas))

    @property
    def latest_is_known(self) -> bool:
        """False: ListOffsets(latest) is OFFSET_NOT_AVAILABLE and a coordinator delays its writes (R13)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def can_be_replaced(self) -> bool:
        """Whether another in-sync replica can lead, should this one's log be damaged (R27)."""
        return any(node != self.node_id and self._nodes.takes_on(node) for node in self.state.isr)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas: DeleteRecords waits for it."""
        known = [r.log_start for n, r in self._replicas.items() if n in self._nodes.epochs]
        return min([self._own.log_start, *known])

    # Reads and writes

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode | None:
        """R11; -1 comes from clients without leader epochs."""
        if current_leader_epoch == UNKNOWN_OFFSET or current_leader_epoch == self.leader_epoch:
            return None
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def refusal_before_append(self) -> ErrorCode | None:
        """acks=all only (R17)."""
        return ErrorCode.not_enough_replicas if self.under_min_insync else None

    def answer_for(self, last_offset: int) -> ErrorCode | None:
        """The answer to an acks=all produce whose records end at `last_offset`; None while it waits (R17).

        The only such rule, and Apache Kafka's (`checkEnoughReplicasReachOffset`): once the high watermark has
        passed, `none`, or NOT_ENOUGH_REPLICAS_AFTER_APPEND when fewer than min.insync.replicas are in sync
        by then. Counted are the stored in-sync replicas; Kafka also counts those of an open proposal.
        """
        if self.high_watermark <= last_offset:
            return None
        if self.under_min_insync:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    # Events

    def update_log_end(self, log_end: int, durable_end: int, log_start: int | None = None) -> None:
        self._own.log_end = log_end
        self._own.durable_end = durable_end
        if log_start is not None:
            self._own.log_start = log_start
        self._advance()

    def follower_fetched(
        self, node: int, node_epoch: int, fetch_offset: int, now_ms: int, log_start: int = UNKNOWN_OFFSET
    ) -> ErrorCode | None:
        """A follower's Fetch in this leader epoch, its log a prefix: it holds all below the offset."""
        replica = self._replicas.get(node)
        if replica is None:
            return ErrorCode.unknown_topic_or_partition
        if node_epoch < max(replica.node_epoch, self._nodes.epochs.get(node, UNKNOWN_OFFSET)):
            return ErrorCode.stale_broker_epoch
        replica.node_epoch = node_epoch
        replica.log_start = log_start
        if node in self._nodes.damaged:
            return None
        replica.keeps_up = replica.fetched_ms is not None and fetch_offset >= replica.leader_end_at_fetch
        if fetch_offset >= self._own.log_end:
            replica.caught_up_ms = now_ms
        elif replica.keeps_up:
            replica.caught_up_ms = max(replica.caught_up_ms, replica.fetched_ms or 0)
        replica.log_end = fetch_offset
        replica.fetched_ms = now_ms
        replica.leader_end_at_fetch = self._own.log_end
        self._advance()
        return None

    def keeps_up(self, node: int) -> bool:
        """Whether its last fetch had all that the leader had at the fetch before: false after a start, and
        while a follower that was down catches up."""
        replica = self._replicas.get(node)
        return replica is not None and replica.keeps_up

    def update(self, state: PartitionState, nodes: Nodes, now_ms: int) -> EpochChange:
        """The stored state of the partition; may be repeated and arrive out of order (R4)."""
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self.state.partition_epoch:
            return EpochChange.SAME_EPOCH
        if state.leader != self.node_id:
            return EpochChange.RESIGN
        if state.leader_epoch > self.leader_epoch:
            self._take_epoch(state, nodes, now_ms)
            return EpochChange.NEW_EPOCH
        if state.partition_epoch > self.state.partition_epoch:
            self._pending = None
            others = (node for node in state.replicas if node != self.node_id)
            self._replicas = {n: self._replicas.get(n) or _Replica(caught_up_ms=now_ms) for n in others}
        self.state = state
        self._nodes = nodes
        self._forget_lost_ends()
        self._advance()
        return EpochChange.SAME_EPOCH

    def _forget_lost_ends(self) -> None:
        """A restarted node may have lost the end of its log (R14, R20), and a damaged log begins anew or ends
        earlier (R27): it counts once it is fetched for again."""
        for node, replica in self._replicas.items():
            restarted = self._nodes.epochs.get(node, replica.node_epoch) > replica.node_epoch
            if restarted or node in self._nodes.damaged:
                replica.log_end = UNKNOWN_OFFSET
                replica.fetched_ms = None

    def _advance(self) -> None:
        if self.under_min_insync:
            return  # else members of the ELR would miss acknowledged records (R14, R20)
        ends = [self._end_of(node) for node in self.maximal_isr]
        self.high_watermark = max(self.high_watermark, min(ends, default=UNKNOWN_OFFSET))

    def _end_of(self, node: int) -> int:
        if node == self.node_id:
            return self._own.durable_end
        replica = self._replicas.get(node)
        return UNKNOWN_OFFSET if replica is None else replica.log_end

    # In-sync replicas

    def propose(self, now_ms: int) -> IsrProposal | None:
        """The change to propose to the controller: one at a time, repeated unchanged while unanswered."""
        if self._pending is not None:
            if self._pending.in_flight:
                return None
            self._pending.in_flight = True
            return self._pending.proposal
        wanted = self._without_slow([n for n in self.state.replicas if self._belongs(n, now_ms)])
        if set(wanted) == set(self.state.isr):
            return None
        proposal = self._proposal(wanted)
        self._pending = _Pending(proposal=proposal, additions=set(wanted) - set(self.state.isr))
        return proposal

    def _proposal(self, members: tuple[int, ...]) -> IsrProposal:
        epochs = tuple((node, self._nodes.epochs.get(node, UNKNOWN_OFFSET)) for node in members)
        return IsrProposal(self.node_id, self.leader_epoch, self.state.partition_epoch, epochs)

    def _belongs(self, node: int, now_ms: int) -> bool:
        if node == self.node_id:
            return True
        if node in self.state.isr:
            replica = self._replicas[node]
            behind_ms = now_ms - replica.caught_up_ms
            return replica.log_end == self._own.log_end or behind_ms <= self.settings.lag_max_ms
        return self._may_join(node)

    def _without_slow(self, members: list[int]) -> tuple[int, ...]:
        """R16b: without slow followers, as long as enough others remain; one outside the ISR stays outside
        before one inside leaves it."""
        least = max(self.min_insync, LEAST_WITHOUT_SLOW)
        slow = [node for node in members if node in self._nodes.slow and node != self.node_id]
        slow.sort(key=lambda node: node in self.state.isr)
        dropped = slow[: max(len(members) - least, 0)]
        return tuple(node for node in members if node not in dropped)

    def _may_join(self, node: int) -> bool:
        """R16."""
        replica = self._replicas[node]
        return (
            replica.log_end >= max(self.high_watermark, self.epoch_start_offset)
            and replica.node_epoch == self._nodes.epochs.get(node)
            and self._nodes.takes_on(node)
        )

    def refused(self, proposal: IsrProposal, code: ErrorCode) -> None:
        """The controller did not store it, or had stored it before (R15).

        Epochs may have moved on by this very proposal, its answer lost or late: only `update` can tell. Any
        other refusal (a member restarted) holds for every attempt at the same change.
        """
        if self._pending is None or self._pending.proposal != proposal or code in _EPOCHS_MOVED_ON:
            return
        self._pending = None
        self._advance()

    def unknown(self, proposal: IsrProposal) -> None:
        """No answer came (R6): the proposal stays open, and those it adds hold the high watermark back."""
        if self._pending is not None and self._pending.proposal == proposal:
            self._pending.in_flight = False


def effective_min_insync(configured: int | None, replication_factor: int) -> int:
    """Unset: two where three or more replicas are; never above the replica count (R14)."""
    unset = 2 if replication_factor >= _REPLICAS_FOR_TWO else 1
    return min(unset if configured is None else configured, replication_factor)


def divergence(
    epochs: EpochIndex, log_end: int, fetch_offset: int, last_fetched_epoch: int
) -> Divergence | None:
    """Where a follower's log diverges from the leader's, by the end its Fetch reports (R12)."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return None
    return Divergence(epoch, end_offset)
