# SPDX-License-Identifier: Apache-2.0
"""The time-outs of a KIP-848 group, on virtual time, and what a restart of the coordinator does to them."""

from __future__ import annotations

import pytest

from headrace.machines.groups.consumer.events import ConfigChanged, ConsumerGroupConfig
from headrace.machines.machine import Loaded, SetTimer, TimerFired
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

T = topic_id("t")


def test_a_member_that_falls_silent_is_gone_after_its_session_and_its_partitions_are_free() -> None:
    group = GroupDriver({"t": 2})
    silent, alive = Consumer(group, "silent", "t"), Consumer(group, "alive", "t")
    beat_until_stable(silent, alive)
    silent.beat()
    for _ in range(8):
        group.advance(5_000)
        alive.beat_and_process()
    group.advance(4_999)
    assert set(group.machine.state.members) == {"alive", "silent"}
    group.advance(1)
    assert set(group.machine.state.members) == {"alive"}
    beat_until_stable(alive)
    assert alive.load == 2
    assert silent.beat() is ErrorCode.unknown_member_id


def test_heartbeats_move_the_session_without_touching_its_timer() -> None:
    group = GroupDriver({"t": 1})
    epoch = group.join("a", "t").member_epoch
    assert group.timers == {("session", "a"): 45_000}
    group.advance(44_000)
    _, effects = group.heartbeat_effects("a", epoch)
    assert effects.timers == []
    fired = group.advance(1_000)
    assert [effects.timers for effects in fired] == [[SetTimer(("session", "a"), 89_000)]]
    group.advance(43_999)
    assert "a" in group.machine.state.members
    group.advance(1)
    assert "a" not in group.machine.state.members


def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced() -> None:
    group = GroupDriver({"t": 2})
    stubborn = Consumer(group, "stubborn", "t", rebalance_timeout_ms=20_000)
    beat_until_stable(stubborn)
    other = Consumer(group, "other", "t")
    other.beat()
    stubborn.beat()
    for _ in range(3):
        group.advance(5_000)
        assert stubborn.beat() is ErrorCode.none, "heartbeats alone do not count"
        other.beat_and_process()
    assert other.load == 0
    group.advance(5_000)
    assert stubborn.beat() is ErrorCode.unknown_member_id
    beat_until_stable(other)
    assert other.load == 2


def test_giving_up_in_time_stops_the_clock() -> None:
    group = GroupDriver({"t": 2})
    first = Consumer(group, "first", "t", rebalance_timeout_ms=20_000)
    beat_until_stable(first)
    second = Consumer(group, "second", "t")
    beat_until_stable(first, second)
    assert not any(kind == "rebalance" for kind, _ in group.timers)
    group.advance(15_000)
    assert first.beat() is ErrorCode.none


def test_a_timer_that_was_already_on_its_way_when_it_was_cancelled_does_nothing() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.heartbeat("a", -1)
    for key in (("session", "a"), ("rebalance", "a")):
        effects = group.step(TimerFired(key))
        assert (effects.records, effects.timers) == ([], [])


@pytest.mark.parametrize("compacted", [False, True])
def test_sessions_and_revocation_timeouts_restart_after_a_load(compacted: bool) -> None:
    group = GroupDriver({"t": 2})
    first = Consumer(group, "first", "t", rebalance_timeout_ms=20_000)
    beat_until_stable(first)
    second = Consumer(group, "second", "t")
    second.beat()
    first.beat()
    group.advance(15_000)
    group.reload(compacted=compacted)
    now = group.now_ms
    assert group.timers == {
        ("session", "first"): now + 45_000,
        ("session", "second"): now + 45_000,
        ("rebalance", "first"): now + 20_000,
    }
    beat_until_stable(first, second)
    assert (first.load, second.load) == (1, 1)


def test_a_restart_alone_causes_no_rebalance() -> None:
    group = GroupDriver({"t": 3})
    consumers = [Consumer(group, name, "t") for name in "ab"]
    beat_until_stable(*consumers)
    epoch, length = group.machine.state.group_epoch, len(group.log)
    group.reload(compacted=True)
    beat_until_stable(*consumers)
    assert (group.machine.state.group_epoch, len(group.log)) == (epoch, length)


def test_an_empty_group_has_no_timers() -> None:
    group = GroupDriver({"t": 1})
    assert group.step(Loaded()).timers == []
    group.join("a", "t")
    group.heartbeat("a", -1)
    assert group.timers == {}


def test_new_settings_count_from_the_next_heartbeat_on() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.step(ConfigChanged(config=ConsumerGroupConfig(session_timeout_ms=6_000, heartbeat_interval_ms=100)))
    assert group.heartbeat("a", 2).heartbeat_interval_ms == 100
    group.advance(6_000)
    assert "a" not in group.machine.state.members


def test_group_settings_are_clamped_to_the_node_limits() -> None:
    node = ConsumerGroupConfig(min_heartbeat_interval_ms=100)
    own = node.for_group(
        {
            "consumer.session.timeout.ms": 10,
            "consumer.heartbeat.interval.ms": 50,
            "consumer.assignment.interval.ms": 99_999,
        }
    )
    assert (own.session_timeout_ms, own.heartbeat_interval_ms, own.assignment_interval_ms) == (
        45_000,
        100,
        15_000,
    )
    assert node.for_group({}) == node
