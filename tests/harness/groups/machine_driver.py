# SPDX-License-Identifier: Apache-2.0
"""Drives a machine as a broker does, in virtual time, and checks the rules that hold for every machine.

A token is answered exactly once; a timer that is cancelled or replaced does not fire; what a machine emitted,
taken through its bytes, makes an equal machine (R33); what surely does not write does not.
Read next: machines/machine.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from headrace.machines.machine import (
    CancelTimer,
    Effects,
    Event,
    Loaded,
    Machine,
    Now,
    ReplyBody,
    ReplyToken,
    SetTimer,
    TimelineEvent,
    TimerFired,
    TimerKey,
)
from headrace.wire.coordinator.commit_records import OffsetCommitsRecord
from headrace.wire.coordinator.group_records import GroupRecord, decode, encode
from headrace.wire.coordinator.record import CoordinatorRecord

M = TypeVar("M", bound=Machine)

START = Now(monotonic_ms=1_000_000, wall_ms=1_700_000_000_000)


class MachineRunner:
    def __init__(self, machine: Machine, now: Now = START) -> None:
        self.machine = machine
        self.now = now
        self.records: list[CoordinatorRecord] = []
        self.replies: dict[ReplyToken, ReplyBody] = {}
        self.timers: dict[TimerKey, int] = {}
        self.timeline: list[TimelineEvent] = []
        self._tokens = map(ReplyToken, itertools.count(1))
        self.given: set[ReplyToken] = set()

    def token(self) -> ReplyToken:
        token = next(self._tokens)
        self.given.add(token)
        return token

    def submit(self, event: Event) -> Effects:
        may_write = self.machine.may_write(event)
        effects = self.machine.step(event, self.now)
        assert may_write or not effects.records, f"{event} wrote, which the driver could not know (R17)"
        for record in effects.records:
            self.records += record.each() if isinstance(record, OffsetCommitsRecord) else [record]
        self.timeline += effects.timeline
        for token, body in effects.replies:
            assert token in self.given, f"{body} answers nobody"
            assert token not in self.replies, f"{body} answers a request that has its answer"
            self.replies[token] = body
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                assert timer.deadline_ms >= self.now.monotonic_ms
                self.timers[timer.key] = timer.deadline_ms
            else:
                assert isinstance(timer, CancelTimer)
                assert self.timers.pop(timer.key, None) is not None, f"{timer.key} was not running"
        waiting = list(self.machine.open_tokens())
        assert len(waiting) == len(set(waiting))
        assert set(waiting) == self.given - self.replies.keys(), "every request is answered or held"
        return effects

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

    def replayed(self, make: Callable[[], M]) -> M:
        """A machine that only read the log. Not told `Loaded`: it leads nothing yet."""
        machine = make()
        for record in self.records:
            machine.apply(through_bytes(record))
        return machine

    def restart(self, make: Callable[[], Machine]) -> None:
        """Another coordinator takes over: open requests are lost, the log is all that is left."""
        self.machine = self.replayed(make)
        self.timers.clear()
        self.given &= self.replies.keys()
        self.submit(Loaded())


def through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    """The record as a reader of the log gets it."""
    if not isinstance(record, GroupRecord):
        return record
    key, value = encode(record)
    again = decode(key, value, producer_id=getattr(record, "producer_id", -1))
    assert again == record, f"{record} came back as {again}"
    return again
