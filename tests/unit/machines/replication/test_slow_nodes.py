# SPDX-License-Identifier: Apache-2.0
"""Which nodes count as slow, when they move, and how often (R16b)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from headrace.coordination import documents
from headrace.machines.replication.ack_times import AckTimes
from headrace.machines.replication.election import Contest, elect, preferred
from headrace.machines.replication.leader import Leader, LeaderSettings, Nodes, OwnLog
from headrace.machines.replication.slow_nodes import (
    MOST_RETURN_MS,
    TICK_MS,
    SlowChange,
    SlowNodes,
    SlowSettings,
    found_slow,
)
from headrace.types import Node, PartitionState
from headrace.wire.error_codes import ErrorCode

EPOCHS = {0: 10, 1: 11, 2: 12}
STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)
SETTINGS = SlowSettings(floor_ms=40, factor=5, after_ms=5_000, return_ms=60_000)


class Watching:
    """Node 0 leads; the times are those of a second."""

    def __init__(self, settings: SlowSettings = SETTINGS) -> None:
        self.machine = SlowNodes(0, settings)
        self.machine.update_nodes(EPOCHS)
        self.now_ms = 0
        self.changes: list[SlowChange] = []

    def seconds(self, count: int, times: dict[int, int], flush_ms: float | None = None) -> frozenset[int]:
        for _ in range(count):
            for node, took_ms in times.items():
                self.machine.acknowledged(node, took_ms)
            self.now_ms += TICK_MS
            self.changes += self.machine.tick(self.now_ms, flush_ms)
        return self.machine.slow


def test_a_follower_is_slow_when_it_was_for_the_stated_time_and_not_before() -> None:
    watching = Watching()
    assert watching.seconds(4, {0: 2, 1: 3, 2: 200}) == frozenset()
    assert watching.seconds(1, {0: 2, 1: 3, 2: 200}) == {2}
    (change,) = watching.changes
    assert (change.node, change.slow, change.typical_ms, change.others_ms) == (2, True, 200, 3)


def test_the_leaders_own_disk_is_compared_with_its_followers() -> None:
    assert Watching().seconds(5, {0: 200, 1: 3, 2: 4}) == {0}


@pytest.mark.parametrize(
    "times",
    [
        {0: 200, 1: 200, 2: 210},
        {0: 2, 1: 200, 2: 210},  # the leader's network: both followers look slow from there
        {0: 2, 1: 12, 2: 39},
        {0: 2, 1: 12, 2: 59},
        {0: 2, 2: 200},
    ],
    ids=["all are slow", "both followers are", "below the floor", "below the factor", "no other follower"],
)
def test_no_node_is_slow(times: dict[int, int]) -> None:
    assert Watching().seconds(60, times) == frozenset()


def test_a_node_that_answers_nothing_is_not_slow() -> None:
    watching = Watching()
    watching.seconds(60, {0: 2, 1: 3})
    watching.seconds(1, {0: 2, 1: 3, 2: 60_000})
    assert watching.seconds(60, {0: 2, 1: 3}) == frozenset()


def test_slow_now_and_then_is_not_persistently_slow() -> None:
    watching = Watching()
    for _ in range(20):
        watching.seconds(3, {0: 2, 1: 3, 2: 200})
        assert watching.seconds(3, {0: 2, 1: 3, 2: 4}) == frozenset()


def test_it_returns_when_it_was_fast_for_the_stated_time() -> None:
    watching = Watching()
    watching.seconds(5, {0: 2, 1: 3, 2: 200})
    assert watching.seconds(59, {0: 2, 1: 3, 2: 4}) == {2}
    assert watching.seconds(1, {0: 2, 1: 3, 2: 200}) == {2}
    assert watching.seconds(59, {0: 2, 1: 3, 2: 4}) == {2}
    assert watching.seconds(1, {0: 2, 1: 3, 2: 4}) == frozenset()
    assert [change.slow for change in watching.changes] == [True, False]


def test_a_little_faster_than_slow_is_not_fast() -> None:
    watching = Watching()
    watching.seconds(5, {0: 2, 1: 3, 2: 200})
    assert watching.seconds(600, {0: 2, 1: 3, 2: 30}) == {2}


def test_a_node_that_leads_nothing_any_more_is_judged_by_its_own_flushes() -> None:
    watching = Watching()
    watching.seconds(5, {0: 200, 1: 3, 2: 4})
    assert watching.seconds(600, {}, flush_ms=200.0) == {0}
    assert watching.seconds(59, {}, flush_ms=2.0) == {0}
    assert watching.seconds(1, {}, flush_ms=2.0) == frozenset()


def test_a_disk_is_not_slow_because_appends_wait_for_it_under_load() -> None:
    """Each fsync takes 5 ms; hundreds of logs share the threads that wait for them."""
    watching = Watching()
    assert watching.seconds(60, {0: 200, 1: 3, 2: 4}, flush_ms=5.0) == frozenset()
    assert watching.seconds(5, {0: 200, 1: 3, 2: 4}, flush_ms=150.0) == {0}
    assert watching.seconds(60, {0: 200, 1: 3, 2: 4}, flush_ms=5.0) == frozenset()


def test_appends_that_do_not_wait_for_the_disk_say_nothing_against_the_node() -> None:
    """Flush `os` and a slow fsync now and then: no producer waits for it."""
    assert Watching().seconds(60, {0: 2, 1: 3, 2: 4}, flush_ms=200.0) == frozenset()


def test_each_return_takes_twice_as_long_up_to_an_hour() -> None:
    watching = Watching()
    waits = []
    for _ in range(8):
        watching.seconds(5, {0: 2, 1: 3, 2: 200})
        waits.append(watching.changes[-1].return_ms)
        watching.seconds(waits[-1] // TICK_MS, {0: 2, 1: 3, 2: 4})
        assert not watching.machine.slow
    assert waits == [60_000 * 2**n for n in range(6)] + [MOST_RETURN_MS] * 2


def test_a_restarted_node_is_measured_anew_and_its_moves_still_count() -> None:
    watching = Watching()
    watching.seconds(5, {0: 2, 1: 3, 2: 200})
    watching.machine.update_nodes({**EPOCHS, 2: 22})
    assert watching.machine.slow == frozenset()
    watching.seconds(5, {0: 2, 1: 3, 2: 200})
    assert watching.changes[-1].return_ms == 2 * SETTINGS.return_ms


def test_a_floor_of_zero_turns_it_off() -> None:
    assert Watching(replace(SETTINGS, floor_ms=0)).seconds(60, {0: 2, 1: 3, 2: 2_000}) == frozenset()


def test_a_node_leads_nothing_by_its_own_finding_or_by_those_of_two_others() -> None:
    nobody: frozenset[int] = frozenset()
    assert found_slow({0: frozenset({0}), 1: nobody, 2: nobody}) == {0}
    assert found_slow({0: nobody, 1: frozenset({0}), 2: nobody}) == nobody
    assert found_slow({0: nobody, 1: frozenset({0}), 2: frozenset({0})}) == {0}
    assert found_slow({1: frozenset({0}), 2: frozenset({0})}) == nobody, "it is not live"


# The leader


def proposed(slow: set[int], *, min_insync: int | None = None, state: PartitionState = STATE) -> object:
    own = OwnLog(log_end=5, durable_end=5, high_watermark=5)
    machine = Leader(0, state, Nodes(EPOCHS, slow=slow), own, LeaderSettings(min_insync=min_insync), 0)
    for node in (1, 2):
        machine.follower_fetched(node, EPOCHS[node], 5, 0)
    proposal = machine.propose(0)
    return None if proposal is None else proposal.members


def test_slow_followers_leave_as_long_as_enough_remain() -> None:
    assert proposed({2}) == (0, 1)
    assert proposed({0}) is None, "a leader does not drop itself"
    assert proposed({2}, min_insync=3) is None
    assert proposed({2}, min_insync=1) == (0, 1)
    assert proposed({1, 2}, min_insync=1) == (0, 2), "it does not stay alone"


def test_a_slow_follower_that_is_needed_joins_and_one_outside_does_not_replace_one_inside() -> None:
    assert proposed({2}, state=replace(STATE, isr=(0,))) == (0, 1)
    assert proposed({1, 2}, state=replace(STATE, isr=(0, 2))) is None
    without_one = replace(STATE, replicas=(0, 2), isr=(0,))
    own = OwnLog(log_end=5, durable_end=5, high_watermark=5)
    machine = Leader(0, without_one, Nodes(EPOCHS, slow={2}), own, LeaderSettings(min_insync=2), 0)
    machine.follower_fetched(2, 12, 5, 0)
    proposal = machine.propose(0)
    assert proposal is not None
    assert proposal.members == (0, 2)


def test_a_follower_that_catches_up_after_its_start_does_not_keep_up() -> None:
    own = OwnLog(log_end=100, durable_end=100, high_watermark=5)
    machine = Leader(0, STATE, Nodes(EPOCHS), own, LeaderSettings(min_insync=None), 0)
    kept = []
    for offset, log_end in ((0, 110), (50, 120), (120, 130), (130, 130), (130, 140), (140, 150)):
        machine.follower_fetched(1, 11, offset, 0)
        kept.append(machine.keeps_up(1))
        machine.update_log_end(log_end, log_end)
    assert kept == [False, False, True, True, True, True]
    machine.update(STATE, Nodes({**EPOCHS, 1: 21}), 0)
    machine.follower_fetched(1, 21, 150, 0)
    assert not machine.keeps_up(1), "it has restarted"


# Elections


def elected(slow: set[int], state: PartitionState = STATE) -> PartitionState:
    return elect(Contest(state=state, min_insync=None), Nodes(EPOCHS, slow=slow), Counter()).state


def test_a_slow_leader_hands_over_to_an_in_sync_replica_that_is_not_slow() -> None:
    after = elected({0, 1})
    assert (after.leader, after.isr, after.leader_epoch) == (2, (0, 1, 2), 4)
    assert elected({0, 1, 2}) is STATE, "all are slow"
    assert elected({1, 2}) is STATE
    alone = replace(STATE, isr=(0, 1))
    assert elected({0, 1}, alone) is alone, "the fast one is not in sync"


def test_after_a_death_a_replica_that_is_not_slow_is_preferred() -> None:
    nodes = Nodes({1: 11, 2: 12}, slow={1})
    assert elect(Contest(state=STATE, min_insync=None), nodes, Counter()).state.leader == 2


def test_a_preferred_election_does_not_bring_a_slow_leader_back() -> None:
    led_by_one = replace(STATE, leader=1)
    assert preferred(led_by_one, Nodes(EPOCHS, slow={0})) is ErrorCode.preferred_leader_not_available
    both = preferred(led_by_one, Nodes(EPOCHS, slow={0, 1}))
    assert isinstance(both, PartitionState)
    assert both.leader == 0


# Measurement and store


def test_one_append_per_replica_is_timed_at_a_time() -> None:
    times: list[tuple[int, int]] = []
    clock = [0]
    acks = AckTimes((0, 1), lambda: clock[0], lambda node, ms: times.append((node, ms)))
    acks.appended(10)
    clock[0] = 5
    acks.appended(20)
    acks.reached(1, 9)
    acks.reached(0, 10)
    clock[0] = 7
    acks.reached(1, 20)
    assert times == [(0, 5), (1, 7)]
    acks.appended(30)
    acks.set_replicas((0, 2))
    acks.appended(40)
    clock[0] = 10
    for node in (0, 1, 2):
        acks.reached(node, 40)
    assert times[2:] == [(0, 3), (2, 3)], "replica 1 was removed, replica 2 is new"
    acks.appended(50)
    acks.forget(2)
    acks.reached(2, 50)
    assert len(times) == 4


def test_the_finding_is_in_the_nodes_entry_and_earlier_entries_have_none() -> None:
    node = Node(node_id=1, epoch=5, host_id="h", hostname="h", endpoints=(), slow=frozenset({2, 0}))
    encoded = documents.encode_node(node)
    assert documents.decode_node("key", encoded, 1, 5).node == node
    without = {key: value for key, value in json.loads(encoded).items() if key != "slow"}
    assert documents.decode_node("key", json.dumps(without).encode(), 1, 5).node.slow == frozenset()
