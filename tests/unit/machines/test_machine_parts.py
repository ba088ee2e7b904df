# SPDX-License-Identifier: Apache-2.0
"""What all machines are made of: steps, timers, the short memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.machines.machine import (
    BaseMachine,
    CancelTimer,
    Event,
    Now,
    ReplyBody,
    ReplyToken,
    SetTimer,
    Step,
    TimelineEvent,
)
from headrace.machines.timers import TimerBook
from headrace.wire.coordinator.record import CoordinatorRecord


@dataclass(frozen=True, slots=True)
class Add(Event):
    amount: int
    token: ReplyToken


@dataclass(frozen=True, slots=True)
class Added(CoordinatorRecord):
    amount: int


@dataclass(frozen=True, slots=True)
class Total(ReplyBody):
    value: int


class Adder(BaseMachine):
    """Adds, and answers with the total: nothing is added for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def decide(self, event: Event, step: Step) -> None:
        assert isinstance(event, Add)
        if event.amount:
            step.emit(Added(event.amount))
            step.log_event("added", amount=event.amount)
        step.reply(event.token, Total(self.total))

    def apply(self, record: CoordinatorRecord) -> None:
        assert isinstance(record, Added)
        self.total += record.amount

    def snapshot(self) -> int:
        return self.total

    def open_tokens(self) -> Iterable[ReplyToken]:
        return ()


def test_an_emitted_record_has_changed_the_machine_before_the_step_goes_on() -> None:
    effects = Adder().step(Add(3, ReplyToken(1)), Now(5, 7))
    assert effects.records == [Added(3)]
    assert effects.replies == [(1, Total(3))]
    assert effects.timeline == [TimelineEvent(7, "added", {"amount": 3})]


def step_at(monotonic_ms: int) -> Step:
    return Step(Now(monotonic_ms, 0), lambda record: None)


def test_a_deadline_that_moves_later_costs_no_effect() -> None:
    timers, first = TimerBook(), step_at(0)
    timers.arm(first, ("k",), 100)
    assert first.timers == [SetTimer(("k",), 100)]
    later = step_at(50)
    timers.arm(later, ("k",), 100)
    assert not later.timers
    fired = step_at(100)
    assert not timers.fired(fired, ("k",))
    assert fired.timers == [SetTimer(("k",), 150)]
    assert timers.fired(step_at(150), ("k",))
    assert not timers.armed()


def test_an_earlier_deadline_resets_the_timer() -> None:
    timers = TimerBook()
    timers.arm(step_at(0), ("k",), 100)
    nearer = step_at(10)
    timers.arm(nearer, ("k",), 20)
    assert nearer.timers == [SetTimer(("k",), 30)]


def test_a_timer_given_up_is_cancelled_once_and_does_not_count_when_it_fires_all_the_same() -> None:
    timers = TimerBook()
    timers.arm(step_at(0), ("k",), 100)
    given_up = step_at(10)
    timers.disarm(given_up, ("k",))
    timers.disarm(given_up, ("k",))
    assert given_up.timers == [CancelTimer(("k",))]
    assert not timers.fired(step_at(100), ("k",))
