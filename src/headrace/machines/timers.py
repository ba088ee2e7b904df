# SPDX-License-Identifier: Apache-2.0
"""Which timers of a machine run, so that none is set twice or left behind.

A deadline that moves later costs nothing: the timer fires at its old time and is set again for the rest. So
a heartbeat changes one number and asks nothing of the driver. Read next: machine.py.
"""

from __future__ import annotations

from collections.abc import KeysView

from headrace.machines.machine import Step, TimerKey


class TimerBook:
    __slots__ = ("_deadlines", "_set_for")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._set_for: dict[TimerKey, int] = {}
        """When the driver's timer will fire; never later than the deadline."""

    def arm(self, step: Step, key: TimerKey, after_ms: int) -> None:
        deadline = step.now.monotonic_ms + after_ms
        self._deadlines[key] = deadline
        if self._set_for.get(key, deadline + 1) > deadline:
            self._set_for[key] = deadline
            step.set_timer(key, after_ms)

    def disarm(self, step: Step, key: TimerKey) -> None:
        self._deadlines.pop(key, None)
        if self._set_for.pop(key, None) is not None:
            step.cancel_timer(key)

    def disarm_all(self, step: Step) -> None:
        for key in list(self._set_for):
            self.disarm(step, key)
        self._deadlines.clear()

    def fired(self, step: Step, key: TimerKey) -> bool:
        """Whether the time has come. False: the deadline had moved, or the timer was given up."""
        self._set_for.pop(key, None)
        deadline = self._deadlines.get(key)
        if deadline is None:
            return False
        if deadline > step.now.monotonic_ms:
            self.arm(step, key, deadline - step.now.monotonic_ms)
            return False
        del self._deadlines[key]
        return True

    def armed(self) -> KeysView[TimerKey]:
        return self._deadlines.keys()
