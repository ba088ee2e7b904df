# SPDX-License-Identifier: Apache-2.0
"""State machine of a partition's follower: fetch, truncate, append, or wait for a newer view.

Decides only; broker/replication/replicas.py and fetch_loop.py call it. States: reconciling (the first fetch
of a leader epoch has not been answered), following, working (a truncation or append is under way; nothing is
fetched). Exits: a view that names this node leader, or not as a replica.

What the broker does:
- Makes a `Follower` for each partition it follows and passes every state of the view to `update`; R9: it
  records the leader epoch only after that.
- Sends what `next_fetch` returns; None means wait. Many partitions of one leader share one Fetch.
- Passes each answer to `fetched` together with its request, does the returned work in the order of its
  fields, and calls `worked` with the log's new start and end. No answer, or a closed connection: `lost`.
- Truncation (R12): file, fsync, epoch file, producer state; in that order, before `worked`. It may cut no
  record and yet end an epoch in which this node led and wrote nothing. Never to the high watermark. Under
  flush mode `ack` an append is fsynced before `worked` (R23).

Read next: leader.py, log/epochs.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.machines.replication.leader import Divergence, EpochIndex
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode

UNDEFINED = -1


class FetchFrom(NamedTuple):
    leader: int
    leader_epoch: int
    node: int
    node_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The leader's answer without the records, which the broker appends."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNDEFINED
    log_start: int = 0
    diverging: Divergence | None = None
    has_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to do with the log now, in this order."""

    truncate_to: int | None = None
    restart_at: int | None = None
    """The leader no longer has what comes next: drop the whole log and begin at this offset."""
    append: bool = False
    delete_before: int | None = None


class Follower:
    def __init__(
        self,
        node_id: int,
        node_epoch: int,
        epochs: EpochIndex,
        *,
        log_start: int,
        log_end: int,
        high_watermark: int,
    ) -> None:
        self.node_id = node_id
        self.node_epoch = node_epoch
        self._epochs = epochs
        self._log_start = log_start
        self._log_end = log_end
        self.high_watermark = min(high_watermark, log_end)
        """Its own, for reads from this follower (R18) and as its start as leader (R13)."""
        self._leader = NO_NODE
        self._leader_epoch = UNDEFINED
        self._asked: FetchFrom | None = None
        self._working = False
        self._leader_high_watermark = UNDEFINED
        self._waits_for_view = True
        self.heard_committed = self.high_watermark
        """The highest that any leader reported: a log that ends before it lacks committed records (R19)."""
        self.reconciled = False

    @property
    def leader(self) -> int:
        return self._leader

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def lag(self) -> int:
        """Committed records that its log lacks, by what the leader said last."""
        return max(self._leader_high_watermark - self._log_end, 0)

    def update(self, state: PartitionState) -> None:
        """Any higher leader epoch begins with reconciling, even under the same leader (R12)."""
        if state.leader_epoch <= self._leader_epoch:
            return
        self._leader = state.leader
        self._leader_epoch = state.leader_epoch
        self._asked = None
        self._waits_for_view = state.leader in (NO_NODE, self.node_id)
        self._leader_high_watermark = UNDEFINED
        self.reconciled = False

    def next_fetch(self) -> FetchFrom | None:
        if self._waits_for_view or self._working or self._asked is not None:
            return None
        self._asked = FetchFrom(
            leader=self._leader,
            leader_epoch=self._leader_epoch,
            node=self.node_id,
            node_epoch=self.node_epoch,
            offset=self._log_end,
            last_fetched_epoch=self._epochs.latest,
            log_start=self._log_start,
        )
        return self._asked

    def lost(self, asked: FetchFrom) -> None:
        if asked is self._asked:
            self._asked = None

    def fetched(self, asked: FetchFrom, answer: FetchAnswer) -> Work | None:
        """None: the log stays as it is, or the answer is to an outdated request."""
        if asked is not self._asked:
            return None  # a leader of an earlier epoch may have reported what was never committed (R11, R12)
        self._asked = None
        if answer.error is not ErrorCode.none:
            return self._failed(answer)
        work = self._work(answer)
        self._working = work is not None
        return work

    def _failed(self, answer: FetchAnswer) -> Work | None:
        if answer.error is ErrorCode.offset_out_of_range:
            return self._out_of_range(answer)
        # UNKNOWN_LEADER_EPOCH: the leader's view is older than ours; ask it again later.
        self._waits_for_view = answer.error in (
            ErrorCode.fenced_leader_epoch,
            ErrorCode.stale_broker_epoch,
        )
        return None

    def _out_of_range(self, answer: FetchAnswer) -> Work | None:
        """Only a log that ends before the leader's starts is dropped; other gaps are resolved by epochs."""
        if self._log_end >= answer.log_start:
            return None
        self._working = True
        return Work(restart_at=answer.log_start)

    def _work(self, answer: FetchAnswer) -> Work | None:
        if answer.diverging is not None:
            return Work(truncate_to=self._truncation_point(answer.diverging))
        self.reconciled = True
        self._leader_high_watermark = answer.high_watermark
        self.heard_committed = max(self.heard_committed, answer.high_watermark)
        self._take_high_watermark()
        delete_before = answer.log_start if answer.log_start > self._log_start else None
        if not answer.has_records and delete_before is None:
            return None
        return Work(append=answer.has_records, delete_before=delete_before)

    def _truncation_point(self, diverging: Divergence) -> int:
        """R12: the smaller end of the largest common epoch; repeated until the logs do not diverge.

        An epoch that the leader has never heard of was damaged on disk, and goes as a whole.
        """
        epochs = self._epochs
        _, own_end = epochs.end_offset_for(diverging.epoch, self._log_end)
        ends = [end for end in (own_end, diverging.end_offset) if end != UNDEFINED]
        if not ends:
            _, own_end = epochs.end_offset_for(epochs.latest - 1, self._log_end)
            ends = [self._log_start if own_end == UNDEFINED else own_end]
        return max(self._log_start, min([*ends, self._log_end]))

    def worked(self, *, log_start: int, log_end: int) -> None:
        self._working = False
        self._log_start = log_start
        self._log_end = log_end
        self.high_watermark = min(self.high_watermark, log_end)
        self._take_high_watermark()

    def _take_high_watermark(self) -> None:
        """Never beyond the own log end, never back: a new leader may know a lower one at first."""
        known = min(self._leader_high_watermark, self._log_end)
        self.high_watermark = max(self.high_watermark, known)
