# SPDX-License-Identifier: Apache-2.0
"""The interface of every state machine: events in, effects out, records as the only durable change.

A machine only decides: it has no clock, randomness, disk or socket. What it needs of these comes with the
event (`fresh_member_id`) or as `now`; what it wants done leaves as an effect.

How a driver (broker/coordinators/machine_driver.py) runs one:
- Load: `apply` every record of the log in order, then one `step(Loaded(), now)`; its effects set the timers.
  Where a kind of machine says that there is nothing to do (`acts_when_loaded`), the step is left out.
- Request: `step(event, now)` where the event carries a `ReplyToken`. The machine has applied its records when
  `step` returns; the driver appends them in order, a large step in several batches, and gives the step's
  replies when they, and all that was appended before them, are committed (R31). A step without records may
  still carry what an earlier, uncommitted step decided, so its replies wait for the same point.
- Every token is answered exactly once, perhaps by a later step (JoinGroup waits for the others).
- A machine keeps no event of a heartbeat beyond its step: the driver may get it again for the next one.
- Questions: a `Question` asks for what a machine may not work out itself (a regular expression, off the
  loop); its answer comes back as the event that the question names. A failure is answered too.
- Commands: a `Command` is carried out outside the machine because of what was decided (transaction markers).
  It starts when the records of its step, and all that was appended before them, are committed: a step without
  records may act on what an earlier, uncommitted one decided. What came of it comes back as events. A commit
  that takes longer than a request waits loses no command.
- Timers: `SetTimer` replaces the timer of the same key; a timer that is due comes back as `TimerFired(key)`.
- Too few replicas in sync (R17): an event for which `may_write` is true is refused before the step, a request
  with COORDINATOR_NOT_AVAILABLE; timers and answers wait until records can be written again.
- A failed append leaves the outcome unknown: drop the machine, answer the open tokens (`open_tokens`) with
  NOT_COORDINATOR, reload from the log. Nothing is rolled back (R31).

Read next: wire/coordinator/group_records.py (the records), groups/classic/group.py, groups/consumer/group.py,
groups/offsets.py, transactions/transactional_id.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType, Protocol

from headrace.wire.coordinator.record import CoordinatorRecord

_new = tuple.__new__

ReplyToken = NewType("ReplyToken", int)
"""Names one request that waits for its reply. The driver makes them and never uses one twice."""

TimerKey = tuple[str, ...]
"""Names one timer of one machine, e.g. ("session", member_id)."""


class Now(NamedTuple):
    """Time-outs count on `monotonic_ms`; record timestamps and retention on `wall_ms` (R34)."""

    monotonic_ms: int
    wall_ms: int


class Event:
    """Base of everything that may happen to a machine."""

    __slots__ = ()


class ReplyBody:
    """Base of every answer. Free of protocol versions: the handler drops what an older version lacks."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Base of everything that a machine asks its driver to find out."""


@dataclass(frozen=True, slots=True)
class Command:
    """Base of everything that a machine wants done once its decision is committed."""


@dataclass(frozen=True, slots=True)
class Loaded(Event):
    """All records of the log have been applied; from here on the machine leads."""


@dataclass(frozen=True, slots=True)
class TimerFired(Event):
    key: TimerKey


class Reply(NamedTuple):
    token: ReplyToken
    body: ReplyBody


class SetTimer(NamedTuple):
    key: TimerKey
    deadline_ms: int
    """On the monotonic clock."""


class CancelTimer(NamedTuple):
    key: TimerKey


class TimelineEvent(NamedTuple):
    """One line of a group's timeline (`headrace groups events`, D21): `kind` and what belongs to it."""

    wall_ms: int
    kind: str
    details: Mapping[str, Any]


class Effects:
    """What one step wants done. Order matters within each list, not between them."""

    __slots__ = ("commands", "questions", "records", "replies", "timeline", "timers")
    records: list[CoordinatorRecord]
    replies: list[Reply]
    timers: list[SetTimer | CancelTimer]
    timeline: list[TimelineEvent]
    questions: list[Question]
    commands: list[Command]


class Step(Effects):
    """One step under way: the present, and what has been decided so far. Every request makes one."""

    __slots__ = ("_apply", "now")

    def __init__(self, now: Now, apply: Callable[[CoordinatorRecord], None]) -> None:
        self.now = now
        self.records, self.replies, self.timers = [], [], []
        self.timeline, self.questions, self.commands = [], [], []
        self._apply = apply

    def emit(self, record: CoordinatorRecord) -> None:
        """Writes a record and changes the machine by it at once: the rest of the step sees the change."""
        self.records.append(record)
        self._apply(record)

    def reply(self, token: ReplyToken, body: ReplyBody) -> None:
        self.replies.append(_new(Reply, (token, body)))

    def set_timer(self, key: TimerKey, after_ms: int) -> None:
        self.timers.append(SetTimer(key, self.now.monotonic_ms + after_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(CancelTimer(key))

    def ask(self, question: Question) -> None:
        self.questions.append(question)

    def command(self, command: Command) -> None:
        self.commands.append(command)

    def log_event(self, kind: str, **details: Any) -> None:
        """Adds an event to the timeline of the group."""
        self.timeline.append(TimelineEvent(self.now.wall_ms, kind, details))


class Machine(Protocol):
    """What a driver sees of a machine."""

    def step(self, event: Event, now: Now) -> Effects: ...

    def may_write(self, event: Event) -> bool:
        """Whether a step with this event may emit records. False only where it surely emits none."""

    def apply(self, record: CoordinatorRecord) -> None:
        """Changes the lasting state; the same function live and at load (R33)."""

    def snapshot(self) -> Any:
        """The lasting state as a value: equal for a machine and for one that only applied its records."""

    def open_tokens(self) -> Iterable[ReplyToken]:
        """The requests that still wait."""


class BaseMachine(ABC):
    """Runs a step. A subclass writes `decide`, `apply`, `snapshot` and `open_tokens`."""

    def step(self, event: Event, now: Now) -> Effects:
        step = Step(now, self.apply)
        self.decide(event, step)
        return step

    def may_write(self, event: Event) -> bool:
        return not isinstance(event, Loaded)

    @abstractmethod
    def decide(self, event: Event, step: Step) -> None:
        """Says through `step` what follows. A machine made of parts passes its step on to them."""

    @abstractmethod
    def apply(self, record: CoordinatorRecord) -> None: ...

    @abstractmethod
    def snapshot(self) -> Any: ...

    @abstractmethod
    def open_tokens(self) -> Iterable[ReplyToken]: ...
