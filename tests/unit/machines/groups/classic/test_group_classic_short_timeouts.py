# SPDX-License-Identifier: Apache-2.0
"""Rebalance timeouts of zero: a group waits for sessions to expire without a timer that always fires."""

from __future__ import annotations

from headrace.machines.groups.classic.rebalance import JOIN_TIMER
from headrace.machines.machine import TimerFired
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import SESSION_MS, ClassicHarness

NO_TIME = {"rebalance_timeout_ms": 0}


def test_a_static_member_that_does_not_rejoin_is_waited_for_without_a_busy_timer() -> None:
    group = ClassicHarness()

    def fire_join_timer() -> None:
        """Alone: a sync timer of no time at all is due in the same moment; waiting requests come first."""
        group._pass(max(group.timers.pop(JOIN_TIMER) - group.now.monotonic_ms, 0))
        group.submit(TimerFired(JOIN_TIMER))

    static = group.join(group_instance_id="i", **NO_TIME)
    fire_join_timer()
    member, generation = group.joined(static).member_id, group.joined(static).generation
    assert group.sync_error(member, generation, group_instance_id="i", assignments=()) is ErrorCode.none
    other = group.joined(group.join(**NO_TIME)).member_id
    joined = group.join(other, **NO_TIME)
    fire_join_timer()
    assert group.joined(joined).error is ErrorCode.none
    group.leave(other)
    for _ in range(3):
        assert group.timers[JOIN_TIMER] - group.now.monotonic_ms <= SESSION_MS
        fire_join_timer()
    assert group.timers[JOIN_TIMER] > group.now.monotonic_ms, "it would fire again at once, and so on"
