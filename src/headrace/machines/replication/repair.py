# SPDX-License-Identifier: Apache-2.0
"""State machine of the repair of one damaged segment: from whom to fetch which offsets, and when it is whole.

Decides only; broker/replication/log_repairs.py calls it. The replica is offline meanwhile, so the controller
neither elects it nor takes it into the in-sync replicas (R27). A batch is taken when offset and leader epoch
are those that this replica had: two logs that hold a batch of the same epoch at the same offset hold the same
batch. Where the leader cannot give exactly those batches the outcome is to fetch the whole log.

What the broker does:
- Passes every state of the partition to `update`, sends what `next_fetch` returns (None: wait for an event),
  and passes each answer to `fetched` with its request; no answer: `lost`.
- Writes as many of the batches as `fetched` says, from `position` on, and calls `written`. A new leader epoch
  begins the gap again.
- Does what `outcome` says.

Read next: follower.py (how a sound replica follows).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace.machines.replication.follower import FetchFrom
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode

UNDEFINED = -1


class Range(NamedTuple):
    first_offset: int
    end_offset: int


class FetchedBatch(NamedTuple):
    """A batch whose CRC is right."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAnswer:
    error: ErrorCode = ErrorCode.none
    log_start: int = 0
    diverges: bool = False
    batches: Sequence[FetchedBatch] = ()
    """Empty also when one of them is corrupt: then it is asked for again, and the leader looks at it."""


class Outcome(Enum):
    WHOLE = "the segment is whole"
    LOG_START_MOVES = "the leader has deleted the whole segment"
    FETCH_WHOLE_LOG = "the range cannot be fetched as it was"


class Repair:
    def __init__(
        self,
        node_id: int,
        epoch_at: Callable[[int], int],
        *,
        gaps: Sequence[Range],
        segment_end: int,
        log_start: int,
        state: PartitionState,
    ) -> None:
        """`epoch_at`: of the replica's own history. `segment_end`: where the next segment begins."""
        self._node_id = node_id
        self._epoch_at = epoch_at
        self._gaps = list(gaps)
        self._segment_end = segment_end
        self._log_start = log_start
        self._leader = NO_NODE
        self._leader_epoch = UNDEFINED
        self._asked: FetchFrom | None = None
        self._waits_for_view = True
        self.position = self._gaps[0].first_offset if self._gaps else segment_end
        self._doubted = UNDEFINED
        """Where an answer did not fit."""
        self.outcome = None if self._gaps else Outcome.WHOLE
        self.why = ""
        """Of an outcome that is not the best."""
        self.leader_log_start = log_start
        self.update(state)

    @property
    def gap(self) -> Range:
        return self._gaps[0]

    @property
    def leader(self) -> int:
        return self._leader

    def update(self, state: PartitionState) -> None:
        """Only a leader that is in sync is asked, and only while this replica is not (R27)."""
        if state.leader_epoch <= self._leader_epoch:
            return
        self._leader_epoch, self._leader = state.leader_epoch, state.leader
        self._asked, self._doubted = None, UNDEFINED
        is_sound = state.leader in state.isr and state.leader not in (NO_NODE, self._node_id)
        self._waits_for_view = not is_sound or self._node_id in {*state.isr, *state.elr}
        if self.outcome is None:
            self.position = self.gap.first_offset

    def next_fetch(self, node_epoch: int) -> FetchFrom | None:
        if self._waits_for_view or self._asked is not None or self.outcome is not None:
            return None
        self._asked = FetchFrom(
            leader=self._leader,
            leader_epoch=self._leader_epoch,
            node=self._node_id,
            node_epoch=node_epoch,
            offset=self.position,
            last_fetched_epoch=self._epoch_at(self.position - 1),
            log_start=self._log_start,
        )
        return self._asked

    def lost(self, asked: FetchFrom) -> None:
        if asked is self._asked:
            self._asked = None

    def fetched(self, asked: FetchFrom, answer: RepairAnswer) -> int:
        """How many of the batches to write; `written` comes before the next fetch."""
        if asked is not self._asked:
            return 0  # of a leader of an earlier epoch
        self._asked = None
        if answer.error is not ErrorCode.none:
            self._failed(answer)
            return 0
        if answer.diverges:
            return self._give_up("its log and the leader's are of different leader epochs")
        return self._count(answer.batches)

    def _failed(self, answer: RepairAnswer) -> None:
        if answer.error is ErrorCode.offset_out_of_range:
            self.leader_log_start = answer.log_start
            if answer.log_start >= self._segment_end:
                self.outcome = Outcome.LOG_START_MOVES
            else:
                self._give_up(f"the leader's log begins at offset {answer.log_start}")
        else:
            self._waits_for_view = answer.error is ErrorCode.fenced_leader_epoch

    def _count(self, batches: Sequence[FetchedBatch]) -> int:
        """Up to the end of the gap, each exactly where the last ends, and none with a record less: what
        compaction has removed there may still be displaced by nothing here."""
        expected, taken = self.position, 0
        for batch in batches:
            if expected == self.gap.end_offset:
                break
            if batch.base_offset != expected or batch.last_offset >= self.gap.end_offset:
                return self._doubt(f"the leader has other batches at offset {expected}")
            if batch.records != batch.last_offset - batch.base_offset + 1:
                return self._doubt(f"records at offset {expected} were compacted on the leader")
            if not batch.leader_epoch == self._epoch_at(expected) == self._epoch_at(batch.last_offset):
                return self._doubt(f"the leader has another leader epoch at offset {expected}")
            expected, taken = batch.last_offset + 1, taken + 1
        return taken

    def _doubt(self, why: str) -> int:
        """Asks a second time, since a leader looks at what it is asked for again: its log may be damaged."""
        if self._doubted == self.position:
            return self._give_up(why)
        self._doubted = self.position
        return 0

    def _give_up(self, why: str) -> int:
        self.outcome, self.why = Outcome.FETCH_WHOLE_LOG, why
        return 0

    def written(self, asked: FetchFrom, end_offset: int) -> bool:
        """The batches of that answer are in the file; False when the gap has begun again meanwhile."""
        if asked.leader_epoch != self._leader_epoch:
            return False
        self.position = end_offset
        if end_offset == self.gap.end_offset:
            del self._gaps[0]
            if self._gaps:
                self.position = self.gap.first_offset
            else:
                self.outcome = Outcome.WHOLE
        return True
