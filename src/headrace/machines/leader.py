"""What the leader of one partition knows of its replicas: high watermark, in-sync replicas, acks.

Decides only; broker/replication.py drives it. Methods stand for events, since every follower fetch is one.
States: leading (one leader epoch), with or without one proposed change of the in-sync replicas; exit: a state
of the partition that names another leader.

What the shell does:
- Becoming leader (R9, R13): write (leader epoch -> log end) to the epoch file, fsync it, then make a `Leader`
  whose high watermark is the node's checkpoint, never its log end. Record the epoch as taken on last.
- Every Fetch and OffsetForLeaderEpoch that names an epoch: `check_epoch`, and with no `await` after it the
  read (R11). A replica's Fetch: `check_epoch`, `divergence`, the read, `follower_fetched`.
- Own log: `log_ended` after an append; the second offset is where fsync has reached under flush mode `ack`,
  the log end otherwise (R23).
- Every change of the cluster view: `follow`. SAME_EPOCH: go on. NEW_EPOCH: as becoming leader, in place.
  RESIGN: answer every waiter NOT_LEADER_OR_FOLLOWER (R17) and drop the machine.
- After each of these and every replica.lag.time.max / 2: `propose`. A proposal goes to the controller; its
  answer is a state for `follow`, or `refused`. No answer, or one that leaves the outcome open (a store in
  doubt, NOT_CONTROLLER), is `unknown`: then `propose` gives the same again.
- acks=all: `refusal_before_append`, append, then `answer_for` whenever the machine was told something.

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


class EpochIndex(Protocol):
    """Which leader epoch ended where in one log; log/epochs.py keeps it."""

    latest: int

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


class Nodes(NamedTuple):
    """The live nodes: their present epochs (R3), which are leaving (R22), whose disk is full (R25)."""

    epochs: Mapping[int, int]
    leaving: Collection[int] = frozenset()
    full: Collection[int] = frozenset()

    def takes_on(self, node: int) -> bool:
        """Whether it may lead, or count as in sync, where it did not before."""
        return node in self.epochs and node not in self.leaving and node not in self.full

    def without(self, gone: Collection[int]) -> Nodes:
        """As one partition sees them whose log is damaged on some (R27)."""
        if not gone:
            return self
        return self._replace(epochs={node: epoch for node, epoch in self.epochs.items() if node not in gone})


class Follow(Enum):
    SAME_EPOCH = "same epoch"
    NEW_EPOCH = "new epoch"
    RESIGN = "resign"


class IsrProposal(NamedTuple):
    """AlterPartition: conditional on both epochs; each member with the node epoch it was judged by (R4)."""

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


@dataclass(slots=True, kw_only=True)
class _Pending:
    proposal: IsrProposal
    additions: set[int]
    in_flight: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    min_insync: int | None
    """min.insync.replicas as set; None when nobody set it."""
    lag_max_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLog:
    """The leader's own log as it takes over."""

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
        """Nothing that a follower said to an earlier leader epoch counts any more (R14)."""
        self._state = state
        self._nodes = nodes
        self._pending: _Pending | None = None
        self.epoch_start_offset = self._own.log_end
        others = (node for node in state.replicas if node != self.node_id)
        self._replicas = {node: _Replica(caught_up_ms=now_ms) for node in others}
        self._advance()

    @property
    def leader_epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def state(self) -> PartitionState:
        return self._state

    @property
    def isr(self) -> tuple[int, ...]:
        """As stored; what counts for elections and for min.insync.replicas (R15)."""
        return self._state.isr

    @property
    def maximal_isr(self) -> set[int]:
        """As stored, and whoever an open proposal would add: they hold the high watermark back (R14)."""
        additions = self._pending.additions if self._pending else set()
        return {*self._state.isr, *additions}

    @property
    def replica_count(self) -> int:
        return len(self._state.replicas)

    @property
    def min_insync(self) -> int:
        return effective_min_insync(self.settings.min_insync, len(self._state.replicas))

    @property
    def under_min_insync(self) -> bool:
        return len(self._state.isr) < self.min_insync

    @property
    def latest_is_known(self) -> bool:
        """False: ListOffsets(latest) is OFFSET_NOT_AVAILABLE and a coordinator holds its writes (R13)."""
        return self.high_watermark >= self.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """Below it no live replica holds a record: what DeleteRecords waits for."""
        known = [r.log_start for n, r in self._replicas.items() if n in self._nodes.epochs]
        return min([self._own.log_start, *known])

    # Reads and writes

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode | None:
        """R11; -1 comes from clients that know no epochs."""
        if current_leader_epoch == UNKNOWN_OFFSET or current_leader_epoch == self.leader_epoch:
            return None
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def refusal_before_append(self) -> ErrorCode | None:
        """acks=all only (R17)."""
        return ErrorCode.not_enough_replicas if self.under_min_insync else None

    def answer_for(self, last_offset: int) -> ErrorCode | None:
        """acks=all, appended: None while it waits, `none` when it may be acknowledged (R17)."""
        if self.high_watermark <= last_offset:
            return None
        if self.under_min_insync:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    # What happens

    def log_ended(self, log_end: int, durable_end: int, log_start: int | None = None) -> None:
        self._own.log_end = log_end
        self._own.durable_end = durable_end
        if log_start is not None:
            self._own.log_start = log_start
        self._advance()

    def follower_fetched(
        self, node: int, node_epoch: int, fetch_offset: int, now_ms: int, log_start: int = UNKNOWN_OFFSET
    ) -> ErrorCode | None:
        """A replica's Fetch of this leader epoch, and its log is a prefix: it holds all below the offset."""
        replica = self._replicas.get(node)
        if replica is None:
            return ErrorCode.unknown_topic_or_partition
        if node_epoch < max(replica.node_epoch, self._nodes.epochs.get(node, UNKNOWN_OFFSET)):
            return ErrorCode.stale_broker_epoch
        replica.node_epoch = node_epoch
        replica.log_start = log_start
        if fetch_offset >= self._own.log_end:
            replica.caught_up_ms = now_ms
        elif replica.fetched_ms is not None and fetch_offset >= replica.leader_end_at_fetch:
            replica.caught_up_ms = max(replica.caught_up_ms, replica.fetched_ms)
        replica.log_end = fetch_offset
        replica.fetched_ms = now_ms
        replica.leader_end_at_fetch = self._own.log_end
        self._advance()
        return None

    def follow(self, state: PartitionState, nodes: Nodes, now_ms: int) -> Follow:
        """The whole state as the store has it now; told again and again, out of order at worst (R4)."""
        if state.leader_epoch < self.leader_epoch or state.partition_epoch < self._state.partition_epoch:
            return Follow.SAME_EPOCH
        if state.leader != self.node_id:
            return Follow.RESIGN
        if state.leader_epoch > self.leader_epoch:
            self._take_epoch(state, nodes, now_ms)
            return Follow.NEW_EPOCH
        if state.partition_epoch > self._state.partition_epoch:
            self._pending = None
            others = (node for node in state.replicas if node != self.node_id)
            self._replicas = {n: self._replicas.get(n) or _Replica(caught_up_ms=now_ms) for n in others}
        self._state = state
        self._nodes = nodes
        self._forget_earlier_lives()
        self._advance()
        return Follow.SAME_EPOCH

    def _forget_earlier_lives(self) -> None:
        """A node that came back may have lost its tail: it has to fetch again before it counts (R14, R20)."""
        for node, replica in self._replicas.items():
            if self._nodes.epochs.get(node, replica.node_epoch) > replica.node_epoch:
                replica.log_end = UNKNOWN_OFFSET
                replica.fetched_ms = None

    def _advance(self) -> None:
        if self.under_min_insync:
            return  # else ELR members would miss what is acknowledged (R14, R20)
        ends = [self._end_of(node) for node in self.maximal_isr]
        self.high_watermark = max(self.high_watermark, min(ends, default=UNKNOWN_OFFSET))

    def _end_of(self, node: int) -> int:
        if node == self.node_id:
            return self._own.durable_end
        replica = self._replicas.get(node)
        return UNKNOWN_OFFSET if replica is None else replica.log_end

    # In-sync replicas

    def propose(self, now_ms: int) -> IsrProposal | None:
        """What to ask of the controller now; one at a time, and an attempt without answer again as it was."""
        if self._pending is not None:
            if self._pending.in_flight:
                return None
            self._pending.in_flight = True
            return self._pending.proposal
        wanted = tuple(n for n in self._state.replicas if self._belongs(n, now_ms))
        if set(wanted) == set(self._state.isr):
            return None
        proposal = self._proposal(wanted)
        self._pending = _Pending(proposal=proposal, additions=set(wanted) - set(self._state.isr))
        return proposal

    def _proposal(self, members: tuple[int, ...]) -> IsrProposal:
        epochs = tuple((node, self._nodes.epochs.get(node, UNKNOWN_OFFSET)) for node in members)
        return IsrProposal(self.node_id, self.leader_epoch, self._state.partition_epoch, epochs)

    def _belongs(self, node: int, now_ms: int) -> bool:
        if node == self.node_id:
            return True
        if node in self._state.isr:
            replica = self._replicas[node]
            behind_ms = now_ms - replica.caught_up_ms
            return replica.log_end == self._own.log_end or behind_ms <= self.settings.lag_max_ms
        return self._may_join(node)

    def _may_join(self, node: int) -> bool:
        """R16."""
        replica = self._replicas[node]
        return (
            replica.log_end >= max(self.high_watermark, self.epoch_start_offset)
            and replica.node_epoch == self._nodes.epochs.get(node)
            and self._nodes.takes_on(node)
        )

    def refused(self, proposal: IsrProposal, code: ErrorCode) -> None:
        """Not stored, or stored before: look at the view and decide anew (R15).

        Epochs that moved on did so perhaps by this very proposal, its answer lost or late: only `follow` can
        tell. Any other refusal (a member restarted) holds for every attempt at the same change.
        """
        if self._pending is None or self._pending.proposal != proposal or code in _EPOCHS_MOVED_ON:
            return
        self._pending = None
        self._advance()

    def unknown(self, proposal: IsrProposal) -> None:
        """No answer came (R6): the proposal stays open, and what it adds keeps holding the high watermark."""
        if self._pending is not None and self._pending.proposal == proposal:
            self._pending.in_flight = False


def effective_min_insync(configured: int | None, replication_factor: int) -> int:
    """Unset: two where three or more replicas are; never above the replica count (R14)."""
    unset = 2 if replication_factor >= _REPLICAS_FOR_TWO else 1
    return min(unset if configured is None else configured, replication_factor)


def divergence(
    epochs: EpochIndex, log_end: int, fetch_offset: int, last_fetched_epoch: int
) -> Divergence | None:
    """How a follower's log parts from the leader's, by what its Fetch says of its end (R12)."""
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_offset_for(last_fetched_epoch, log_end)
    if epoch == last_fetched_epoch and end_offset >= fetch_offset:
        return None
    return Divergence(epoch, end_offset)
