# SPDX-License-Identifier: Apache-2.0
"""Runs state machines on the log of one partition, by the contract at the head of machines/machine.py.

A driver is loaded from the log, serves while this node leads the partition, and ends when leadership is lost
or an append fails; its owner then makes another. Steps within one turn of the event loop share a batch, but
for records of transactions, which have batches of their producer. A step without records is answered at once
unless an earlier one is not committed yet.

Records are appended in the order of the steps. What depends on the producers of the log (`submit` with a
check, `end_transaction`) appends all earlier records first, and its own in the same turn: what was checked
still holds when it is written.

Below min.insync.replicas nothing is begun that may write (R17). An ISR that shrinks between step and append,
or after it, is found out by the wait for the commit, as by a producer.
Independent of groups and of the protocol. Read next: machine_loading.py, machine_timers.py,
transaction_machines.py, groups/coordinator.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from headrace.broker.coordinators.machine_sums import MachineSums, Measure
from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.broker.coordinators.transaction_machines import TransactionMachines
from headrace.errors import ApiError
from headrace.machines.machine import (
    CancelTimer,
    Command,
    Effects,
    Event,
    Machine,
    Now,
    Question,
    ReplyBody,
    ReplyToken,
    SetTimer,
    TimelineEvent,
    TimerFired,
    TimerKey,
)
from headrace.types import TopicPartition
from headrace.wire.coordinator.record import BatchProducer, CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_batch
from headrace.world import World

logger = logging.getLogger(__name__)

BATCH_BYTES = 512 * 1024
"""A batch is appended when it has this size; a single step with more is written in several batches."""

RETRY_S = 1.0
"""Until an event that may write is tried again where too few replicas were in sync."""

_MARKER_REFUSALS = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.producer_fenced,
        ErrorCode.transaction_coordinator_fenced,
    }
)
"""Of a marker that came too late. Nothing was written, and the machines go on."""

_new = tuple.__new__

Answer = Callable[[ReplyBody | ApiError], None]
Check = Callable[[], None]
"""Raises ApiError when something may not be written."""


class DrivenMachine(Machine, Protocol):
    @property
    def is_gone(self) -> bool:
        """Its state equals that of a new machine: it may be dropped."""


class LeaderOfPartition(Protocol):
    @property
    def needs_insync(self) -> bool:
        """Whether `refusal_before_append` has to be asked."""

    def refusal_before_append(self) -> ApiError | None:
        """When too few replicas are in sync (R17)."""


class MachinePartition(Protocol):
    """What a driver needs of a partition."""

    @property
    def role(self) -> LeaderOfPartition: ...

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def leads(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def append_own(self, batch: bytearray) -> int: ...
    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None: ...


M = TypeVar("M", bound=DrivenMachine)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind(Generic[M]):
    """Functions that a driver needs for one kind of machine."""

    make: Callable[[str], M]
    pack: Callable[[Any, int], Iterable[tuple[bytes, int]]]
    """Encodes a record at this position of a batch: parts of (bytes, number of records)."""
    refresh: Callable[[], tuple[int, Callable[[int], Event]]] | None = None
    """The version of the cluster metadata, and the event for a machine that has an older version. It is sent
    before the machine's next step, so that a change costs nothing while there is no request."""
    answer_question: Callable[[Question], Awaitable[Event]]
    committed: Callable[[str, list[CoordinatorRecord], list[TimelineEvent]], None]
    """Called with the records and timeline events of each step once they are committed."""
    start_command: Callable[[str, Command, Callable[[Event], None]], None] | None = None
    """Called with the machine's name once the command's step is committed. What came of the command is passed
    to the function, in any turn and as often as there is something to say. None: there are no commands."""
    acts_when_loaded: Callable[[M], bool] = lambda machine: True
    """Whether a machine that was loaded has something to do: only then it is stepped with `Loaded`."""
    measure: Measure[M] | None = None
    """What is summed over all machines, for metrics. Cheap: it is called around every step."""


class _Entry(Generic[M]):
    __slots__ = ("known_version", "machine", "timers")

    def __init__(self, machine: M, known_version: int | None = None) -> None:
        self.machine = machine
        self.known_version = known_version
        """Of the cluster metadata; None: the machine was made with the present one."""
        self.timers: dict[TimerKey, int] = {}


class _Part:
    """The records of one batch in the log."""

    __slots__ = ("bytes", "count", "packed", "producer")

    def __init__(self, producer: BatchProducer | None) -> None:
        self.packed: list[bytes] = []
        self.count = 0
        self.bytes = 0
        self.producer = producer

    def encoded(self, timestamp: int) -> bytearray:
        if self.producer is None:
            return plain_batch(self.packed, self.count, timestamp)
        producer_id, epoch = self.producer
        return plain_batch(self.packed, self.count, timestamp, producer_id=producer_id, producer_epoch=epoch)


class _Batch(Generic[M]):
    """Replies, events and commands that wait for the same offset to be committed."""

    __slots__ = ("commands", "committed_steps", "end_offset", "parts", "replies")

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.replies: list[tuple[Answer, ReplyBody]] = []
        self.committed_steps: list[tuple[str, list[CoordinatorRecord], list[TimelineEvent]]] = []
        self.commands: list[tuple[str, _Entry[M], Command]] = []
        self.end_offset = 0

    def part_for(self, producer: BatchProducer | None) -> _Part:
        """Where the next record goes."""
        if self.parts:
            last = self.parts[-1]
            if last.producer == producer and last.bytes < BATCH_BYTES:
                return last
        part = _Part(producer)
        self.parts.append(part)
        return part

    @property
    def is_full(self) -> bool:
        return len(self.parts) > 1 or bool(self.parts and self.parts[-1].bytes >= BATCH_BYTES)


class MachineDriver(Generic[M]):
    def __init__(
        self,
        *,
        world: World,
        partition: MachinePartition,
        kind: MachineKind[M],
        timers: MachineTimers,
        commit_timeout_ms: int,
        on_end: Callable[[], None],
    ) -> None:
        self._clock = world.clock
        self._tasks = world.tasks
        self.partition = partition
        self._kind = kind
        self._measures = kind.measure is not None
        self._timers = timers
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._on_end = on_end
        self._entries: dict[str, _Entry[M]] = {}
        self.sums = MachineSums(kind.measure)
        self._answers: dict[ReplyToken, Answer] = {}
        self._last_token = 0
        self._transactions = TransactionMachines()
        self._open: _Batch[M] | None = None
        self._in_flight: deque[_Batch[M]] = deque()
        """Appended but not committed, in order."""
        self._end_offset = partition.log_end_offset
        self._stopping = False
        self.serving = False
        self.ended = False

    # Start and end

    def set_machines(
        self,
        machines: dict[str, M],
        version: int,
        transactions: TransactionMachines | None = None,
        sums: MachineSums[M] | None = None,
    ) -> None:
        """Machines loaded from the log. The caller then steps each with `Loaded` and calls `serve`.

        `sums`: of these machines, where they were worked out on a thread.
        """
        if self.ended:
            return
        self.sums = sums or MachineSums(self._kind.measure, machines.values())
        self._transactions = transactions or TransactionMachines()
        self._entries = {name: _Entry(machine, version) for name, machine in machines.items()}
        self._end_offset = self.partition.log_end_offset

    def serve(self) -> None:
        self.serving = not self.ended

    def end(self, code: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Leadership is lost or the log's state unknown: answers all waiting requests with an error."""
        if self.ended:
            return
        self.ended, self.serving = True, False
        waiting = [answer for batch in self._in_flight for answer, _ in batch.replies]
        waiting += [answer for answer, _ in self._open.replies] if self._open is not None else ()
        waiting += self._answers.values()
        self._in_flight.clear()
        self._answers.clear()
        self._entries.clear()
        self.sums = MachineSums(self._kind.measure)
        self._open = None
        for answer in waiting:
            answer(ApiError(code))
        self._on_end()

    def reject_waiting(self, code: ErrorCode) -> None:
        """The node stops: answers requests that wait for other members, not those that wait for a commit."""
        self._stopping = True
        waiting = list(self._answers.values())
        self._answers.clear()
        for answer in waiting:
            answer(ApiError(code))

    # Requests and events

    def submit(
        self,
        name: str,
        make_event: Callable[[ReplyToken], Event],
        answer: Answer,
        *,
        check: Check | None = None,
    ) -> None:
        """Steps the machine `name`; `answer` is called exactly once, perhaps before this returns.

        `check`: called with all earlier records appended, in the turn in which those of the step are. It asks
        whether a producer may write (epoch, verified transaction).
        """
        try:
            self._check_serving()
            if check is not None:
                self._append_open()
                self._check_serving()
                check()
        except ApiError as refusal:
            answer(refusal)
            return
        self._last_token += 1
        token = ReplyToken(self._last_token)
        entry = self._entries.get(name) or _Entry(self._kind.make(name))
        event = make_event(token)
        if self._too_few_in_sync and entry.machine.may_write(event):
            answer(ApiError(ErrorCode.coordinator_not_available))
            return
        self._answers[token] = answer
        self._entries[name] = entry
        self._step(name, entry, event)
        if check is not None:
            self._append_open()

    def end_transaction(
        self, producer_id: int, marker: CoordinatorRecord, append: Callable[[], int], answer: Answer
    ) -> None:
        """Writes a transaction marker behind all that was decided before it, and applies it to the machines
        that the transaction wrote to, as a load does (R33).

        `append` writes the control batch and returns its offset. When it raises an error that refuses the
        marker (fenced, see Kafka's WriteTxnMarkers), that is the answer and nothing has changed.
        """
        try:
            self._check_serving()
            if self._too_few_in_sync:
                raise ApiError(ErrorCode.coordinator_not_available)
            self._append_open()
            self._check_serving()
        except ApiError as refusal:
            answer(refusal)
            return
        batch: _Batch[M] = _Batch()
        batch.replies.append((answer, ReplyBody()))
        try:
            self._end_offset = append() + 1
        except Exception as problem:  # noqa: BLE001 - what was written is not known
            if isinstance(problem, ApiError) and problem.code in _MARKER_REFUSALS:
                answer(problem)
            else:
                self._append_failed(batch, problem)
            return
        for name in self._transactions.end(producer_id):
            if (entry := self._entries.get(name)) is not None:
                measured = self.sums.of(entry.machine)
                entry.machine.apply(marker)
                self.sums.update(measured, entry.machine)
                self._drop_if_gone(name, entry)
                batch.committed_steps.append((name, [marker], []))
        self._await_commit(batch)

    def notify(self, name: str, event: Event, *, may_be_skipped: bool = False) -> None:
        """Steps a machine, if it exists, with an event that has no reply.

        `may_be_skipped`: it comes again by itself, so it need not wait where too few replicas are in sync.
        """
        entry = self._entries.get(name)
        if entry is not None:
            self._tell(name, entry, event, may_be_skipped=may_be_skipped)

    def _tell(self, name: str, entry: _Entry[M], event: Event, *, may_be_skipped: bool = False) -> None:
        if self.ended or self._entries.get(name) is not entry:
            return
        if not (self._too_few_in_sync and entry.machine.may_write(event)):
            self._step(name, entry, event)
        elif not may_be_skipped:
            self._tasks.call_later(RETRY_S, self._tell, name, entry, event)

    def _check_serving(self) -> None:
        if not self.serving or not self.partition.leads:
            loading = not self.ended and not self.serving
            raise ApiError(ErrorCode.coordinator_load_in_progress if loading else ErrorCode.not_coordinator)

    @property
    def _too_few_in_sync(self) -> bool:
        role = self.partition.role
        return role.needs_insync and role.refusal_before_append() is not None

    def get(self, name: str) -> M | None:
        """A machine to read from, with the newest cluster metadata."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        self._refresh(name, entry)
        return entry.machine

    def names(self) -> list[str]:
        return list(self._entries)

    def machines(self) -> Iterator[M]:
        return (entry.machine for entry in self._entries.values())

    @property
    def all_committed(self) -> bool:
        """Whether all state of the machines is committed."""
        return self._open is None and self.partition.high_watermark >= self._end_offset

    def when_all_committed(self, answer: Callable[[], None]) -> None:
        """Calls back when the present state is committed (perhaps at once), or when that failed."""
        if self.all_committed:
            answer()
            return
        batch = self._open or _Batch()
        batch.replies.append((lambda _: answer(), ReplyBody()))
        if batch is not self._open:
            self._await_commit(batch)

    # Steps

    def _now(self) -> Now:
        return _new(Now, (int(self._clock.monotonic() * 1000), self._clock.wall_ms()))

    def _refresh(self, name: str, entry: _Entry[M]) -> None:
        if self._kind.refresh is None:
            return
        version, make_event = self._kind.refresh()
        known = entry.known_version
        if known is None or known == version:
            entry.known_version = version
            return
        event = make_event(known)
        if self._too_few_in_sync and entry.machine.may_write(event):
            return  # it comes before a later step
        entry.known_version = version
        self._run(name, entry, event)

    def _step(self, name: str, entry: _Entry[M], event: Event) -> None:
        self._refresh(name, entry)
        self._run(name, entry, event)
        self._drop_if_gone(name, entry)

    def _drop_if_gone(self, name: str, entry: _Entry[M]) -> None:
        if not entry.timers and entry.machine.is_gone and self._entries.get(name) is entry:
            del self._entries[name]

    def _run(self, name: str, entry: _Entry[M], event: Event) -> None:
        machine = entry.machine
        measured = self.sums.of(machine) if self._measures else ()
        try:
            effects = machine.step(event, self._now())
        except Exception:
            logger.exception("%s: a machine failed at %r; its state is read again", name, event)
            self._fail_step(event)
            return
        if self._measures:
            self.sums.update(measured, machine)
        if effects.timers:
            self._set_timers(name, entry, effects.timers)
        for question in effects.questions:
            self._tasks.spawn(self._answer_question(name, entry, question), name="question of a machine")
        if effects.records or effects.replies or effects.timeline or effects.commands:
            self._give_out(name, entry, effects)

    def _fail_step(self, event: Event) -> None:
        answer = self._answers.pop(getattr(event, "token", ReplyToken(0)), None)
        if answer is not None:
            answer(ApiError(ErrorCode.unknown_server_error))
        self.end()

    def _give_out(self, name: str, entry: _Entry[M], effects: Effects) -> None:
        answers = self._answers
        replies = []
        for token, body in effects.replies:
            if token in answers:
                replies.append((answers.pop(token), body))
        commands = [(name, entry, command) for command in effects.commands] if effects.commands else []
        if not effects.records and self.all_committed:
            if effects.timeline:
                self._kind.committed(name, [], effects.timeline)
            for answer, body in replies:
                answer(body)
            if commands:
                self._start(commands)
            return
        batch = self._batch_for(bool(effects.records))
        if effects.records:
            self._write(name, batch, effects.records)
        batch.replies += replies
        batch.commands += commands
        if effects.records or effects.timeline:
            batch.committed_steps.append((name, effects.records, effects.timeline))
        if batch.is_full and batch is self._open:
            self._append(batch)

    def _batch_for(self, writes: bool) -> _Batch[M]:
        if self._open is not None:
            return self._open
        if not writes and self._in_flight:
            return self._in_flight[-1]
        batch = self._open = _Batch()
        self._tasks.call_soon(self._append, batch)
        return batch

    def _write(self, name: str, batch: _Batch[M], records: list[CoordinatorRecord]) -> None:
        for record in records:
            producer = record.producer
            if producer is not None:
                self._transactions.add(producer.producer_id, name)
            part = batch.part_for(producer)
            for packed, count in self._kind.pack(record, part.count):
                part.packed.append(packed)
                part.count += count
                part.bytes += len(packed)

    # The log

    def _append_open(self) -> None:
        while self._open is not None:  # a reply may be followed by the next request at once
            self._append(self._open)

    def _append(self, batch: _Batch[M]) -> None:
        """At the end of the event-loop turn that opened the batch, or earlier when it is full."""
        if batch is not self._open or self.ended:
            return
        self._open = None
        try:
            for part in batch.parts:
                self._end_offset = self.partition.append_own(part.encoded(self._clock.wall_ms())) + 1
        except Exception as problem:  # noqa: BLE001 - whatever the error, the machines are ahead of the log
            self._append_failed(batch, problem)
            return
        self._await_commit(batch)

    def _append_failed(self, batch: _Batch[M], problem: Exception) -> None:
        """Ends the driver: the machines are ahead of the log and must be loaded again. A batch that is too
        large gets an error that clients do not retry."""
        known = isinstance(problem, ApiError)
        where = self.partition.topic_partition
        logger.warning("%s: append failed: %s", where, problem, exc_info=None if known else problem)
        too_large = isinstance(problem, ApiError) and problem.code is ErrorCode.message_too_large
        code = ErrorCode.unknown_server_error if too_large else ErrorCode.not_coordinator
        replies, batch.replies = batch.replies, []
        for answer, _ in replies:
            answer(ApiError(code))
        self.end()

    def _await_commit(self, batch: _Batch[M]) -> None:
        batch.end_offset = self._end_offset
        if self.partition.high_watermark >= self._end_offset:
            self._committed(batch, ErrorCode.none)
            return
        self._in_flight.append(batch)
        self._wait(batch)

    def _wait(self, batch: _Batch[M]) -> None:
        if self.ended:
            return
        deadline = self._clock.monotonic() + self._commit_timeout_s
        self.partition.wait_for_ack(batch.end_offset - 1, deadline, lambda code: self._committed(batch, code))

    def _committed(self, batch: _Batch[M], code: ErrorCode) -> None:
        if self.ended:
            return
        if batch in self._in_flight:
            self._in_flight.remove(batch)  # usually the first
        if code is not ErrorCode.none:
            self._not_committed(batch)
            return
        for answer, body in batch.replies:
            answer(body)
        for name, records, timeline in batch.committed_steps:  # after the replies, in the same turn
            self._kind.committed(name, records, timeline)
        self._start(batch.commands)

    def _not_committed(self, batch: _Batch[M]) -> None:
        """Timed out or leadership lost. The log keeps the records unless leadership was lost.

        Commands are kept, too: what was decided has to be done whenever its record is committed.
        """
        replies, batch.replies = batch.replies, []
        for answer, _ in replies:
            answer(ApiError(ErrorCode.coordinator_not_available))
        if not self.partition.leads:
            self.end()
        elif batch.commands and self.partition.high_watermark >= batch.end_offset:
            self._start(batch.commands)
        elif batch.commands:
            self._tasks.call_later(RETRY_S, self._wait, batch)

    # Commands, timers and questions

    def _start(self, commands: list[tuple[str, _Entry[M], Command]]) -> None:
        for name, entry, command in commands:
            assert self._kind.start_command is not None, f"nobody carries out {command!r}"
            self._kind.start_command(name, command, partial(self._tell, name, entry))

    def _set_timers(self, name: str, entry: _Entry[M], timers: list[SetTimer | CancelTimer]) -> None:
        for timer in timers:
            key = timer.key
            if isinstance(timer, SetTimer):
                fire = partial(self._fire, name, key)
                entry.timers[key] = self._timers.set(timer.deadline_ms, fire)
            else:
                entry.timers.pop(key, None)

    def _fire(self, name: str, key: TimerKey, number: int) -> None:
        entry = self._entries.get(name)
        if entry is None or entry.timers.get(key) != number:
            return
        event = TimerFired(key)
        if self._too_few_in_sync and entry.machine.may_write(event):
            later_ms = self._now().monotonic_ms + int(RETRY_S * 1000)
            entry.timers[key] = self._timers.set(later_ms, partial(self._fire, name, key))
        else:
            del entry.timers[key]
            self._step(name, entry, event)

    async def _answer_question(self, name: str, entry: _Entry[M], question: Question) -> None:
        event = await self._kind.answer_question(question)
        if not self._stopping:
            self._tell(name, entry, event)
