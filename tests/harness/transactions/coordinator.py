# SPDX-License-Identifier: Apache-2.0
"""Drives a transactional id as a coordinator does, in virtual time, and checks what holds for every history.

Records go through their bytes into a log. Replies and commands of a step wait until its records, and all
before them, are committed; a crash loses what is not. After each step: every request is answered once or
held, the live state equals a fold of the log (R33), each record may follow the one before it, and no
transaction gets both markers.
Read next: machines/machine.py, machines/transactions/transactional_id.py.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headrace.machines.machine import (
    Effects,
    Event,
    Loaded,
    Now,
    Reply,
    ReplyBody,
    ReplyToken,
    SetTimer,
    TimerFired,
    TimerKey,
)
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    AllocateProducerId,
    EndTxn,
    ErrorReply,
    InitProducerId,
    MarkerOutcome,
    MarkersAnswered,
    Producer,
    ProducerIdAllocated,
    ProducerReply,
    SendMarkers,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.machines.transactions.transactional_id import TransactionalId, TransactionSettings
from headrace.machines.transactions.transitions import MAX_EPOCH, is_exhausted
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)
from headrace.wire.error_codes import ErrorCode

ID = "tx"
START = Now(monotonic_ms=1_000_000, wall_ms=1_700_000_000_000)
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 5000

S = TransactionState
_PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
_COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
_IDLE = (S.EMPTY, *_COMPLETE)
_MAY_FOLLOW = {
    S.EMPTY: _IDLE,
    S.ONGOING: (*_IDLE, S.ONGOING),
    S.PREPARE_COMMIT: (S.ONGOING,),
    S.PREPARE_ABORT: (*_IDLE, S.ONGOING),
    S.COMPLETE_COMMIT: (S.PREPARE_COMMIT,),
    S.COMPLETE_ABORT: (S.PREPARE_ABORT,),
}


def new_machine() -> TransactionalId:
    return TransactionalId(ID, TransactionSettings())


def partitions(*names: str) -> frozenset[TopicPartition]:
    """From names like "t-0"."""
    split = (name.rsplit("-", 1) for name in names)
    return frozenset(TopicPartition(topic, int(number)) for topic, number in split)


@dataclass(slots=True)
class Held:
    """Effects of a step that wait until the log is committed up to `end`."""

    end: int
    replies: list[Reply] = field(default_factory=list)
    commands: list[SendMarkers] = field(default_factory=list)


class Coordinator:
    """`commits`: every record is committed at once, unless told otherwise."""

    def __init__(
        self,
        make: Callable[[], TransactionalId] = new_machine,
        *,
        history: Iterable[TransactionRecord] = (),
        commits: bool = True,
    ) -> None:
        self._make = make
        self.commits = commits
        self.now = START
        self.machine = make()
        self.log: list[TransactionRecord] = []
        self.committed = 0
        self.replies: dict[ReplyToken, ReplyBody] = {}
        self.timers: dict[TimerKey, int] = {}
        self.sent: list[SendMarkers] = []
        """Commands that were started, in order."""
        self.answered_from = 0
        """Those before were answered by `write_markers`, or belong to an earlier coordinator."""
        self.markers: dict[tuple[int, TopicPartition], set[bool]] = defaultdict(set)
        """By how many transactions were complete before it, and the partition: which markers were sent."""
        self.questions = 0
        """Producer ids that were asked for and not given."""
        self.timeline: list[str] = []
        self._held: list[Held] = []
        self._given: set[ReplyToken] = set()
        self._tokens = map(ReplyToken, itertools.count(1))
        self._producer_ids = itertools.count(FIRST_PRODUCER_ID)
        self.allocated: set[int] = set()
        for record in history:
            self.append(record)
        self.committed = len(self.log)
        if self.log:
            self.reload()

    # Requests, as a producer or a leader sends them. Each gives its token.

    def token(self) -> ReplyToken:
        token = next(self._tokens)
        self._given.add(token)
        return token

    def send_init(self, *, expected: Producer | None = None, timeout_ms: int = TIMEOUT_MS) -> ReplyToken:
        token = self.token()
        self.submit(InitProducerId(token=token, timeout_ms=timeout_ms, expected=expected))
        return token

    def send_add(self, producer: Producer, *names: str, version: int = BEFORE_KIP_890) -> ReplyToken:
        token = self.token()
        added = partitions(*names)
        self.submit(
            AddPartitionsToTxn(token=token, producer=producer, partitions=added, transaction_version=version)
        )
        return token

    def send_end(self, producer: Producer, *, committed: bool, version: int = BEFORE_KIP_890) -> ReplyToken:
        token = self.token()
        self.submit(EndTxn(token=token, producer=producer, committed=committed, transaction_version=version))
        return token

    def send_verify(self, producer: Producer, *names: str) -> ReplyToken:
        token = self.token()
        asked = sorted(partitions(*names))
        self.submit(VerifyPartitionsInTxn(token=token, producer=producer, partitions=asked))
        return token

    # The same with their answers; a producer id that is needed is there at once.

    def init(self, *, expected: Producer | None = None, timeout_ms: int = TIMEOUT_MS) -> ProducerReply:
        token = self.send_init(expected=expected, timeout_ms=timeout_ms)
        self.allocate_all()
        return self.producer_reply(token)

    def init_error(self) -> ErrorCode:
        """Of a request that must not need a producer id."""
        return self.producer_reply(self.send_init()).error

    def producer(self) -> Producer:
        """A producer that was just initialized."""
        reply = self.init()
        assert reply.error is ErrorCode.none, reply
        return reply.producer

    def add(self, producer: Producer, *names: str, version: int = BEFORE_KIP_890) -> ErrorCode:
        reply = self.replies[self.send_add(producer, *names, version=version)]
        assert isinstance(reply, ErrorReply)
        return reply.error

    def end(self, producer: Producer, *, committed: bool, version: int = BEFORE_KIP_890) -> ProducerReply:
        token = self.send_end(producer, committed=committed, version=version)
        self.allocate_all()
        return self.producer_reply(token)

    def verify(self, producer: Producer, *names: str) -> tuple[ErrorCode, ...]:
        reply = self.replies[self.send_verify(producer, *names)]
        assert isinstance(reply, VerifyPartitionsReply)
        return reply.errors

    def producer_reply(self, token: ReplyToken) -> ProducerReply:
        reply = self.replies[token]
        assert isinstance(reply, ProducerReply)
        return reply

    # What happens around the machine.

    def submit(self, event: Event) -> Effects:
        self._event = event
        may_write = self.machine.may_write(event)
        effects = self.machine.step(event, self.now)
        assert may_write or not effects.records, f"{event} wrote, which the driver could not know (R17)"
        for record in effects.records:
            assert isinstance(record, TransactionRecord)
            self._check_next(record)
            self.append(record)
        self.timeline += [logged.kind for logged in effects.timeline]
        self._set_timers(effects)
        assert all(isinstance(question, AllocateProducerId) for question in effects.questions)
        self.questions += len(effects.questions)
        commands = [command for command in effects.commands if isinstance(command, SendMarkers)]
        assert len(commands) == len(effects.commands)
        self._hold(Held(len(self.log), effects.replies, commands))
        self._check_machine()
        self.commit(None if self.commits else self.committed)
        return effects

    def append(self, record: TransactionRecord) -> None:
        key, value = encode(record)
        again = decode(key, value)
        assert again == record, f"{record} came back as {again}"
        self.log.append(record)

    def commit(self, end: int | None = None) -> None:
        """Everything, or the log up to `end`; what waited for it goes out."""
        self.committed = len(self.log) if end is None else max(end, self.committed)
        ready = [held for held in self._held if held.end <= self.committed]
        self._held = [held for held in self._held if held.end > self.committed]
        for held in ready:
            for token, body in held.replies:
                assert token not in self.replies, f"{body} answers a request that has its answer"
                self.replies[token] = body
            for command in held.commands:
                self.start(command)

    def start(self, command: SendMarkers) -> None:
        """The decision must be in the log for good before a marker goes out."""
        last = self.log[self.committed - 1].value if self.committed else None
        assert last is not None, f"{command} without a record"
        decided = (last.state, last.producer_id, last.producer_epoch)
        state = S.PREPARE_COMMIT if command.committed else S.PREPARE_ABORT
        assert decided == (state, *command.producer), f"{command} is not what {last} decided"
        assert command.partitions <= last.partitions
        assert command.transaction_version == last.client_transaction_version
        self.send(command)

    def send(self, command: SendMarkers) -> None:
        self.sent.append(command)
        transaction = sum(state in _COMPLETE for state in self.states)
        for partition in command.partitions:
            markers = self.markers[transaction, partition]
            markers.add(command.committed)
            assert len(markers) == 1, f"both markers for one transaction in {partition}"

    def check_every_transaction_has_its_markers(self) -> None:
        transaction = 0
        for record in self.log:
            if record.value is None:
                continue
            if record.value.state in _PREPARED:
                committed = record.value.state is S.PREPARE_COMMIT
                for partition in record.value.partitions:
                    assert self.markers[transaction, partition] == {committed}, "a marker was never sent"
            transaction += record.value.state in _COMPLETE

    def allocate(self, error: ErrorCode = ErrorCode.none) -> None:
        """Answers one question."""
        assert self.questions, "no producer id was asked for"
        self.questions -= 1
        if error is not ErrorCode.none:
            self.submit(ProducerIdAllocated(error=error))
            return
        producer_id = next(self._producer_ids)
        self.allocated.add(producer_id)
        self.submit(ProducerIdAllocated(producer_id=producer_id))

    def allocate_all(self) -> None:
        while self.questions:
            self.allocate()

    def answer(
        self, command: SendMarkers, outcome: MarkerOutcome = MarkerOutcome.WRITTEN, *names: str
    ) -> Effects:
        """For the partitions of these names; for all of the command without names."""
        answered = partitions(*names) or command.partitions
        return self.submit(
            MarkersAnswered(number=command.number, outcomes=[(each, outcome) for each in sorted(answered)])
        )

    def write_markers(self) -> None:
        """All markers that were sent and not answered are written."""
        while self.answered_from < len(self.sent):
            self.answered_from += 1
            self.answer(self.sent[self.answered_from - 1])

    def advance(self, milliseconds: int) -> None:
        """Lets time pass; timers fire at their time, in order."""
        end = self.now.monotonic_ms + milliseconds
        while self.timers:
            key = min(self.timers, key=lambda timer: self.timers[timer])
            if self.timers[key] > end:
                break
            self._pass(max(self.timers.pop(key) - self.now.monotonic_ms, 0))
            self.submit(TimerFired(key))
        self._pass(end - self.now.monotonic_ms)

    def _pass(self, milliseconds: int) -> None:
        self.now = Now(self.now.monotonic_ms + milliseconds, self.now.wall_ms + milliseconds)

    def crash(self, keep: int = 0) -> None:
        """Another coordinator takes over, with what is committed and perhaps some records more."""
        del self.log[self.committed + keep :]
        self.reload()

    def reload(self) -> None:
        self.machine = self.folded()
        self._held.clear()
        self._given &= self.replies.keys()
        self.timers.clear()
        self.questions = 0
        self.answered_from = len(self.sent)
        self.submit(Loaded())

    def folded(self) -> TransactionalId:
        machine = self._make()
        for record in self.log:
            machine.apply(record)
        return machine

    @property
    def state(self) -> TransactionState | None:
        metadata = self.machine.metadata
        return None if metadata is None else metadata.state

    @property
    def metadata(self) -> TransactionMetadata:
        assert self.machine.metadata is not None
        return self.machine.metadata

    @property
    def states(self) -> list[TransactionState | None]:
        """Of the records in the log; None for a tombstone."""
        return [None if record.value is None else record.value.state for record in self.log]

    # Rules.

    def _hold(self, held: Held) -> None:
        for token, body in held.replies:
            assert token in self._given, f"{body} answers nobody"
        if held.replies or held.commands:
            self._held.append(held)

    def _set_timers(self, effects: Effects) -> None:
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                assert timer.deadline_ms >= self.now.monotonic_ms
                self.timers[timer.key] = timer.deadline_ms
            else:
                assert self.timers.pop(timer.key, None) is not None, f"{timer.key} was not running"

    def _check_machine(self) -> None:
        assert self.machine.snapshot() == self.folded().snapshot(), "the live state is not that of the log"
        waiting = list(self.machine.open_tokens())
        held = [token for each in self._held for token, _ in each.replies]
        told = self.replies.keys() | set(held)
        assert len(held) == len(set(held)), "a request is answered twice"
        assert set(waiting) == self._given - told, "every request is answered or held"
        if self.machine.is_gone:
            assert not self.timers
            assert not self.questions

    def _check_next(self, record: TransactionRecord) -> None:
        after = record.value
        before = self.log[-1].value if self.log else None
        if after is None:
            assert before is not None
            assert before.state in _IDLE, "only an idle id expires"
        elif before is None:
            assert (after.state, after.producer_epoch) == (S.EMPTY, 0)
            assert after.producer_id in self.allocated
        else:
            assert before.state in _MAY_FOLLOW[after.state], f"{after.state!r} after {before.state!r}"
            self._check_producer(before, after)
            self._check_partitions(before, after)

    def _check_producer(self, before: TransactionMetadata, after: TransactionMetadata) -> None:
        epoch = before.producer_epoch
        assert after.previous_producer_id == before.producer_id
        if after.producer_id != before.producer_id:
            assert after.producer_id in self.allocated
            assert after.producer_epoch == 0
            assert is_exhausted(epoch), "the producer id changes before its epochs are used up"
            return
        if after.state in _PREPARED:
            raised = after.client_transaction_version >= KIP_890 or not isinstance(self._event, EndTxn)
            wanted = min(epoch + 1, MAX_EPOCH) if raised else epoch
            assert after.producer_epoch == wanted, "each end of this kind raises the epoch once"
        elif after.state is S.EMPTY:
            assert after.producer_epoch in (epoch, epoch + 1), "the epoch rises by one"
        else:
            assert after.producer_epoch == epoch

    def _check_partitions(self, before: TransactionMetadata, after: TransactionMetadata) -> None:
        if after.state is S.ONGOING:
            assert before.partitions <= after.partitions
        elif after.state in _PREPARED:
            assert after.partitions == before.partitions
        else:
            assert not after.partitions
