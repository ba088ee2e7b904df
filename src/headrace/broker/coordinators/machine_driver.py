"""Runs state machines on the log of one partition, by the contract at the head of machines/machine.py.

A driver is loaded from the log, serves while this node leads the partition, and ends when leadership is lost
or an append fails; its owner then makes another. Steps within one turn of the event loop share a batch. A
step without records is answered at once unless an earlier one is not committed yet. Independent of groups and
of the protocol. Read next: machine_loading.py, machine_timers.py, groups/coordinator.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.errors import ApiError
from headrace.machines.machine import (
    CancelTimer,
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
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_batch
from headrace.world import World

logger = logging.getLogger(__name__)

BATCH_BYTES = 512 * 1024
"""A batch is appended when it has this size; a single step with more is written in several batches."""

Answer = Callable[[ReplyBody | ApiError], None]


class DrivenMachine(Machine, Protocol):
    @property
    def is_gone(self) -> bool:
        """Its state equals that of a new machine: it may be dropped."""


class MachinePartition(Protocol):
    """What a driver needs of a partition."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def leads(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def append_own(self, batch: bytearray) -> int: ...
    def wait_for_ack(
        self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]
    ) -> None: ...


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


class _Entry(Generic[M]):
    __slots__ = ("known_version", "machine", "timers")

    def __init__(self, machine: M, known_version: int | None = None) -> None:
        self.machine = machine
        self.known_version = known_version
        """Of the cluster metadata; None: the machine was made with the present one."""
        self.timers: dict[TimerKey, int] = {}


class _Batch:
    """Replies and events that wait for the same offset to be committed."""

    __slots__ = ("bytes", "committed_steps", "count", "full", "packed", "replies")

    def __init__(self) -> None:
        self.packed: list[bytes] = []
        self.count = 0
        self.bytes = 0
        self.full: list[tuple[list[bytes], int]] = []
        """Batches that are complete: records and their number."""
        self.replies: list[tuple[Answer, ReplyBody]] = []
        self.committed_steps: list[tuple[str, list[CoordinatorRecord], list[TimelineEvent]]] = []

    def begin_another(self) -> None:
        self.full.append((self.packed, self.count))
        self.packed, self.count, self.bytes = [], 0, 0

    def parts(self) -> list[tuple[list[bytes], int]]:
        return [*self.full, (self.packed, self.count)] if self.packed else self.full


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
        self._timers = timers
        self._commit_timeout_s = commit_timeout_ms / 1000
        self._on_end = on_end
        self._entries: dict[str, _Entry[M]] = {}
        self._answers: dict[ReplyToken, Answer] = {}
        self._last_token = 0
        self._open: _Batch | None = None
        self._in_flight: deque[_Batch] = deque()
        """Appended but not committed, in order."""
        self._end_offset = partition.log_end_offset
        self._stopping = False
        self.serving = False
        self.ended = False

    # Start and end

    def set_machines(self, machines: dict[str, M], version: int) -> None:
        """Machines loaded from the log. The caller then steps each with `Loaded` and calls `serve`."""
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

    def submit(self, name: str, make_event: Callable[[ReplyToken], Event], answer: Answer) -> None:
        """Steps the machine `name`; `answer` is called exactly once, perhaps before this returns."""
        if not self.serving or not self.partition.leads:
            loading = not self.ended and not self.serving
            code = ErrorCode.coordinator_load_in_progress if loading else ErrorCode.not_coordinator
            answer(ApiError(code))
            return
        self._last_token += 1
        token = ReplyToken(self._last_token)
        self._answers[token] = answer
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry(self._kind.make(name))
        self._step(name, entry, make_event(token))

    def notify(self, name: str, event: Event) -> None:
        """Steps a machine, if it exists, with an event that has no reply."""
        entry = self._entries.get(name)
        if entry is not None and not self.ended:
            self._step(name, entry, event)

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
        return Now(int(self._clock.monotonic() * 1000), self._clock.wall_ms())

    def _refresh(self, name: str, entry: _Entry[M]) -> None:
        if self._kind.refresh is None:
            return
        version, make_event = self._kind.refresh()
        known, entry.known_version = entry.known_version, version
        if known is not None and known != version:
            self._run(name, entry, make_event(known))

    def _step(self, name: str, entry: _Entry[M], event: Event) -> None:
        self._refresh(name, entry)
        self._run(name, entry, event)
        if not entry.timers and entry.machine.is_gone and self._entries.get(name) is entry:
            del self._entries[name]

    def _run(self, name: str, entry: _Entry[M], event: Event) -> None:
        try:
            effects = entry.machine.step(event, self._now())
        except Exception:
            logger.exception("%s: a machine failed at %r; its state is read again", name, event)
            self._fail_step(event)
            return
        if effects.timers:
            self._set_timers(name, entry, effects.timers)
        for question in effects.questions:
            self._tasks.spawn(self._answer_question(name, entry, question), name="question of a machine")
        if effects.records or effects.replies or effects.timeline:
            self._give_out(name, effects)

    def _fail_step(self, event: Event) -> None:
        answer = self._answers.pop(getattr(event, "token", ReplyToken(0)), None)
        if answer is not None:
            answer(ApiError(ErrorCode.unknown_server_error))
        self.end()

    def _give_out(self, name: str, effects: Effects) -> None:
        answers = self._answers
        replies = [(answers.pop(token), body) for token, body in effects.replies if token in answers]
        if not effects.records and self.all_committed:
            if effects.timeline:
                self._kind.committed(name, [], effects.timeline)
            for answer, body in replies:
                answer(body)
            return
        batch = self._batch_for(bool(effects.records))
        if effects.records:
            self._write(batch, effects.records)
        batch.replies += replies
        if effects.records or effects.timeline:
            batch.committed_steps.append((name, effects.records, effects.timeline))
        if batch.full or batch.bytes >= BATCH_BYTES:
            self._append(batch)

    def _batch_for(self, writes: bool) -> _Batch:
        if self._open is not None:
            return self._open
        if not writes and self._in_flight:
            return self._in_flight[-1]
        batch = self._open = _Batch()
        self._tasks.call_soon(self._append, batch)
        return batch

    def _write(self, batch: _Batch, records: list[CoordinatorRecord]) -> None:
        for record in records:
            if batch.bytes >= BATCH_BYTES:
                batch.begin_another()
            for packed, count in self._kind.pack(record, batch.count):
                batch.packed.append(packed)
                batch.count += count
                batch.bytes += len(packed)

    # The log

    def _append(self, batch: _Batch) -> None:
        """At the end of the event-loop turn that opened the batch, or earlier when it is full."""
        if batch is not self._open or self.ended:
            return
        self._open = None
        try:
            for packed, count in batch.parts():
                batch_bytes = plain_batch(packed, count, self._clock.wall_ms())
                self._end_offset = self.partition.append_own(batch_bytes) + 1
        except Exception as problem:  # noqa: BLE001 - whatever the error, the machines are ahead of the log
            self._append_failed(batch, problem)
            return
        self._await_commit(batch)

    def _append_failed(self, batch: _Batch, problem: Exception) -> None:
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

    def _await_commit(self, batch: _Batch) -> None:
        if self.partition.high_watermark >= self._end_offset:
            self._committed(batch, ErrorCode.none)
            return
        self._in_flight.append(batch)
        deadline = self._clock.monotonic() + self._commit_timeout_s
        self.partition.wait_for_ack(
            self._end_offset - 1, deadline, lambda code: self._committed(batch, code)
        )

    def _committed(self, batch: _Batch, code: ErrorCode) -> None:
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

    def _not_committed(self, batch: _Batch) -> None:
        """Timed out or leadership lost. The log keeps the records unless leadership was lost."""
        for answer, _ in batch.replies:
            answer(ApiError(ErrorCode.coordinator_not_available))
        if not self.partition.leads:
            self.end()

    # Timers and questions

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
        if entry is not None and entry.timers.get(key) == number:
            del entry.timers[key]
            self._step(name, entry, TimerFired(key))

    async def _answer_question(self, name: str, entry: _Entry[M], question: Question) -> None:
        event = await self._kind.answer_question(question)
        if not self._stopping and not self.ended and self._entries.get(name) is entry:
            self._step(name, entry, event)
