# SPDX-License-Identifier: Apache-2.0
"""The repair machine against leaders of all kinds: sound, truncated, compacted, of another history, damaged.

Logs are lists of batches. Whatever a leader answers, in whatever order leaders follow one another: a segment
that counts as whole holds what it held before, and once a sound leader stays it becomes whole. Read next:
machines/replication/repair.py, damaged_source.py (the same with real nodes).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from headrace.log.epochs import EpochEntry, epoch_at
from headrace.machines.replication.follower import FetchFrom
from headrace.machines.replication.repair import FetchedBatch, Outcome, Range, Repair, RepairAnswer
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import BrokenPromise

REPLICA = 0
MOST_STEPS = 400
STEADY_STEPS = 100
FAULTS = ("compacted", "other epochs", "shifted", "truncated", "diverged", "corrupt")


@dataclass(slots=True)
class RepairReport:
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0


@dataclass(slots=True)
class _Leader:
    batches: list[FetchedBatch]
    fault: str | None
    log_start: int = 0
    heals: bool = False
    """A corrupt batch was asked for twice: it looks, and is sound or leads no more."""


def run_seed(seed: int) -> RepairReport:
    """Raises BrokenPromise."""
    return _Run(Random(f"repair {seed}")).run()


class _Run:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.report = RepairReport()
        self.original = _batches(random)
        epochs = sorted({batch.leader_epoch for batch in self.original})
        self.epochs = [
            EpochEntry(epoch, next(b.base_offset for b in self.original if b.leader_epoch == epoch))
            for epoch in epochs
        ]
        self.leaders = {node: self._leader() for node in (1, 2)}
        self.state = PartitionState(
            replicas=(0, 1, 2), leader=1, leader_epoch=epochs[-1] + 1, isr=(1, 2), partition_epoch=1
        )
        first, last = sorted(random.sample(range(len(self.original) + 1), 2))
        self.gaps = self._gaps(first, last)
        ends = [*(batch.base_offset for batch in self.original), self.original[-1].last_offset + 1]
        self.segment_end = ends[last]
        self.machine = Repair(
            REPLICA,
            lambda offset: epoch_at(self.epochs, offset),
            gaps=self.gaps,
            segment_end=self.segment_end,
            log_start=self.original[0].base_offset,
            state=self.state,
        )
        self.written: dict[int, FetchedBatch] = {}
        self.late: list[tuple[FetchFrom, RepairAnswer]] = []

    def _gaps(self, first: int, last: int) -> list[Range]:
        """Up to three, that do not touch."""
        bounds = [batch.base_offset for batch in self.original] + [self.original[-1].last_offset + 1]
        places = sorted(self.random.sample(range(first, last + 1), min(6, (last - first + 1) // 2 * 2)))
        pairs = zip(places[::2], places[1::2], strict=True)
        return [Range(bounds[start], bounds[end]) for start, end in pairs]

    def _leader(self) -> _Leader:
        random, batches = self.random, list(self.original)
        fault = random.choice((None, *FAULTS))
        slot = random.randrange(len(batches))
        batch, log_start = batches[slot], 0
        if fault == "compacted":
            batches[slot] = batch._replace(records=batch.records - 1)
            if random.random() < 0.5:
                del batches[slot]
        elif fault == "other epochs":
            batches[slot] = batch._replace(leader_epoch=batch.leader_epoch + random.choice((-1, 1, 8)))
        elif fault == "shifted":
            batches[slot] = batch._replace(base_offset=batch.base_offset + 1)
        elif fault == "truncated":
            log_start = batch.base_offset
        self.report.faults[fault or "sound"] += 1
        return _Leader(batches, fault, log_start)

    def run(self) -> RepairReport:
        for _ in range(MOST_STEPS):
            if self.machine.outcome is not None:
                break
            self.random.choice((self._ask, self._ask, self._ask, self._elect, self._deliver_late))()
        else:
            self._sound_leader_stays()
        self._judge()
        return self.report

    def _sound_leader_stays(self) -> None:
        self.leaders = {node: _Leader(list(self.original), None) for node in (1, 2)}
        self._elect(to=1, isr=(1, 2))
        for _ in range(STEADY_STEPS):
            if self.machine.outcome is None:
                self._ask(reliable=True)
        if self.machine.outcome is None:
            raise BrokenPromise(f"the repair goes on for ever, at offset {self.machine.position}")

    def _elect(self, *, to: int | None = None, isr: tuple[int, ...] | None = None) -> None:
        random, state = self.random, self.state
        leader = random.choice((1, 2, 1, 2, NO_NODE, REPLICA)) if to is None else to
        if isr is None:
            isr = random.choice(((1, 2), (1,), (2,), (0, 1, 2)))
        self.state = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
        self.machine.update(self.state)

    def _ask(self, *, reliable: bool = False) -> None:
        asked = self.machine.next_fetch(7)
        if asked is None:
            return
        state = self.state
        if asked.leader not in state.isr or asked.leader == REPLICA or REPLICA in state.isr:
            raise BrokenPromise(f"node {asked.leader} was asked in {state}")
        answer = self._answer(self.leaders[asked.leader], asked)
        fate = 1.0 if reliable else self.random.random()
        if fate < 0.1:
            self.machine.lost(asked)
            self.late.append((asked, answer))
        elif fate < 0.2:
            self._elect()
            self._take(asked, answer)
        else:
            self._take(asked, answer)

    def _deliver_late(self) -> None:
        if self.late:
            self._take(*self.late.pop())

    def _answer(self, leader: _Leader, asked: FetchFrom) -> RepairAnswer:
        if leader.fault == "diverged" and self.random.random() < 0.2:
            return RepairAnswer(diverges=True)
        if asked.offset < leader.log_start:
            return RepairAnswer(error=ErrorCode.offset_out_of_range, log_start=leader.log_start)
        if leader.fault == "corrupt" and not leader.heals:
            leader.heals = True
            return RepairAnswer()
        if self.random.random() < 0.1:
            errors = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)
            return RepairAnswer(error=self.random.choice((*errors, ErrorCode.kafka_storage_error)))
        found = [batch for batch in leader.batches if batch.last_offset >= asked.offset]
        return RepairAnswer(batches=found[: self.random.randint(1, 5)])

    def _take(self, asked: FetchFrom, answer: RepairAnswer) -> None:
        taken = answer.batches[: self.machine.fetched(asked, answer)]
        if not taken:
            return
        if self.random.random() < 0.1:
            self._elect()  # while they are being written
        if self.machine.written(asked, taken[-1].last_offset + 1):
            self.written.update((batch.base_offset, batch) for batch in taken)

    def _judge(self) -> None:
        outcome, machine = self.machine.outcome, self.machine
        assert outcome is not None
        self.report.outcomes[outcome.name] += 1
        if outcome is Outcome.LOG_START_MOVES and machine.leader_log_start < self.segment_end:
            raise BrokenPromise("the log start moves into the segment")
        if outcome is Outcome.FETCH_WHOLE_LOG and not set(FAULTS) & set(self.report.faults):
            raise BrokenPromise(f"a sound leader was not good enough: {machine.why}")
        if outcome is not Outcome.WHOLE:
            return
        for gap in self.gaps:
            for batch in self.original:
                inside = gap.first_offset <= batch.base_offset < gap.end_offset
                if inside and self.written.get(batch.base_offset) != batch:
                    raise BrokenPromise(f"{self.written.get(batch.base_offset)} instead of {batch}")
                self.report.records_read += inside


def _batches(random: Random) -> list[FetchedBatch]:
    offset, epoch, batches = random.randrange(50), random.randrange(3), []
    for _ in range(random.randint(6, 30)):
        count = random.randint(2, 5)
        epoch += random.random() < 0.2 and random.randint(1, 3)
        batches.append(FetchedBatch(offset, offset + count - 1, epoch, count))
        offset += count
    return batches
