# SPDX-License-Identifier: Apache-2.0
"""One node of three with a slow disk or a slow network, on the real broker code (R16b).

The schedules say what must follow, and how often: a slow follower leaves the ISR, a slow leader hands over,
and each returns once it was fast for long enough; never below min.insync.replicas, never to and fro. Seeds
draw when a node is slow, and how. Read next: machines/replication/slow_nodes.py, cluster_lab.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

from headrace.testing.simnetwork import NetworkProfile
from headrace.testing.simworld import WorkProfile
from headrace.types import PartitionState
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import BrokenPromise, SimConnection
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.several_nodes import TOPIC

RETURN_S = 15
SETTINGS = {
    "headrace.slow.replica.after.ms": "5000",
    "headrace.slow.replica.return.ms": str(RETURN_S * 1000),
}
SLOW_DISK = WorkProfile(least_ms=200, most_ms=220, slow_probability=0)
FAST_DISK = WorkProfile(least_ms=0.05, most_ms=1, slow_probability=0)
SLOW_NETWORK = NetworkProfile(least_delay_ms=50, most_delay_ms=55, loss_probability=0.05, resent_after_ms=250)
PAUSE_S = 0.1
WATCH_S = 0.05
NOTICED_S = 15
MIN_INSYNC = 2


@dataclass(slots=True)
class Watched:
    """What a partition went through, and the times of its writes."""

    shrinks: Counter[int] = field(default_factory=Counter)
    returns: Counter[int] = field(default_factory=Counter)
    leaders: list[int] = field(default_factory=list)
    smallest_isr: int = 3
    write_s: list[float] = field(default_factory=list)

    def see(self, before: PartitionState, after: PartitionState) -> None:
        self.shrinks.update(set(before.isr) - set(after.isr))
        self.returns.update(set(after.isr) - set(before.isr))
        self.smallest_isr = min(self.smallest_isr, len(after.isr))
        if after.leader != before.leader:
            self.leaders.append(after.leader)


class SlowLab:
    """A writer that waits for each record, and somebody who watches."""

    def __init__(self, lab: ClusterLab) -> None:
        self.lab = lab
        self.seen = Watched()
        self.acknowledged: list[bytes] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> SlowLab:
        await self.lab.until(lambda: set(self.lab.state.isr) == {0, 1, 2}, "all replicas are in sync")
        for node in self.lab.nodes:
            node.machine.work = FAST_DISK
        self._tasks = [asyncio.ensure_future(self._write()), asyncio.ensure_future(self._watch())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            value, started = b"%d" % len(self.acknowledged), loop.time()
            await self.lab.produced(value)
            self.acknowledged.append(value)
            self.seen.write_s.append(loop.time() - started)
            await asyncio.sleep(PAUSE_S)

    async def _watch(self) -> None:
        before = self.lab.state
        while True:
            await asyncio.sleep(WATCH_S)
            self.seen.see(before, before := self.lab.state)

    def set_disk(self, node_id: int, *, slow: bool) -> None:
        self.lab.nodes[node_id].machine.work = SLOW_DISK if slow else FAST_DISK

    def set_network(self, node_id: int, *, slow: bool) -> None:
        profiles, name = self.lab.simulation.network.host_profiles, self.lab.nodes[node_id].machine.name
        if slow:
            profiles[name] = SLOW_NETWORK
        else:
            profiles.pop(name, None)

    async def until(self, holds: Callable[[], bool], goal: str, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not holds():
            if loop.time() > deadline:
                raise BrokenPromise(f"not within {within_s} s: {goal}: {self.lab.state}")
            await asyncio.sleep(WATCH_S)

    async def typical_write_s(self, writes: int = 30) -> float:
        """The median of the next writes; some begin with a question to the slow node."""
        first = len(self.seen.write_s)
        await self.until(lambda: len(self.seen.write_s) >= first + writes, "writes go on", 60)
        return median(self.seen.write_s[first:])

    async def check_records(self) -> None:
        await self.__aexit__()
        found = await self.lab.read_all()
        missing = set(self.acknowledged) - set(found)
        if missing:
            raise BrokenPromise(f"{len(missing)} acknowledged records are lost")


Story = Callable[[SlowLab], Coroutine[Any, Any, None]]


def _simulate(story: Story, *, flush: str = "ack", seed: int = 1) -> None:
    async def scenario(lab: ClusterLab) -> None:
        async with SlowLab(lab) as slow:
            await story(slow)
            await slow.check_records()
            if slow.seen.smallest_isr < MIN_INSYNC:
                raise BrokenPromise(f"the ISR shrank to {slow.seen.smallest_isr}")

    simulate_cluster(scenario, seed, flush=flush, settings=SETTINGS)


def _follower(lab: ClusterLab) -> int:
    return next(node for node in lab.state.replicas if node != lab.state.leader)


def a_follower_with_a_slow_disk_leaves_the_isr_and_returns_once() -> None:
    async def story(slow: SlowLab) -> None:
        lab, victim = slow.lab, _follower(slow.lab)
        slow.set_disk(victim, slow=True)
        assert await slow.typical_write_s(10) > 0.2, "the slow disk is felt"
        await slow.until(lambda: victim not in lab.state.isr, "it leaves the ISR", NOTICED_S)
        assert await slow.typical_write_s() < 0.1
        await asyncio.sleep(2 * RETURN_S)
        slow.set_disk(victim, slow=False)
        await slow.until(lambda: victim in lab.state.isr, "it returns", RETURN_S + NOTICED_S)
        await asyncio.sleep(RETURN_S)
        assert (slow.seen.shrinks, slow.seen.returns) == ({victim: 1}, {victim: 1})
        assert slow.seen.leaders == []

    _simulate(story)


def a_follower_with_a_slow_network_leaves_the_isr_under_flush_os() -> None:
    async def story(slow: SlowLab) -> None:
        lab, victim = slow.lab, _follower(slow.lab)
        slow.set_network(victim, slow=True)
        await slow.until(lambda: victim not in lab.state.isr, "it leaves the ISR", NOTICED_S)
        assert await slow.typical_write_s() < 0.1
        slow.set_network(victim, slow=False)
        await slow.until(lambda: slow.seen.returns[victim] > 0, "it returns", RETURN_S + NOTICED_S)
        assert (slow.seen.shrinks, slow.seen.returns) == ({victim: 1}, {victim: 1})

    _simulate(story, flush="os")


def a_leader_with_a_slow_disk_hands_over_and_is_not_elected_while_it_is_slow() -> None:
    async def story(slow: SlowLab) -> None:
        lab, victim = slow.lab, slow.lab.state.leader
        slow.set_disk(victim, slow=True)
        await slow.until(lambda: lab.state.leader != victim, "another leads", NOTICED_S)
        await slow.until(lambda: victim not in lab.state.isr, "it leaves the ISR", NOTICED_S)
        assert await slow.typical_write_s() < 0.1
        await lab.cluster.with_any(_elect_preferred)
        await asyncio.sleep(2)
        assert lab.state.leader != victim, "a preferred election does not bring it back"
        slow.set_disk(victim, slow=False)
        await slow.until(lambda: victim in lab.state.isr, "it returns", RETURN_S + NOTICED_S)
        await asyncio.sleep(1)
        await lab.cluster.with_any(_elect_preferred)
        await slow.until(lambda: lab.state.leader == lab.state.replicas[0], "the preferred one leads", 5)
        await asyncio.sleep(RETURN_S)
        assert slow.seen.shrinks == slow.seen.returns == {victim: 1}
        assert len(slow.seen.leaders) <= 2

    _simulate(story)


def where_all_are_slow_nothing_moves() -> None:
    async def story(slow: SlowLab) -> None:
        for node_id in range(3):
            slow.set_disk(node_id, slow=True)
        await asyncio.sleep(3 * NOTICED_S)
        assert (slow.seen.shrinks, slow.seen.leaders) == ({}, [])

    _simulate(story)


def a_slow_replica_that_is_needed_stays_or_comes_back_at_once() -> None:
    """min.insync.replicas comes first: with one node dead the slow one is one of two."""

    async def story(slow: SlowLab) -> None:
        lab, victim = slow.lab, _follower(slow.lab)
        slow.set_disk(victim, slow=True)
        await slow.until(lambda: victim not in lab.state.isr, "it leaves the ISR", NOTICED_S)
        other = next(node for node in lab.state.isr if node != lab.state.leader)
        lab.nodes[other].kill()
        await slow.until(lambda: victim in lab.state.isr, "it is back", NOTICED_S)
        await slow.typical_write_s(5)
        await asyncio.sleep(NOTICED_S)
        assert set(lab.state.isr) == {lab.state.leader, victim}
        slow.seen.smallest_isr = MIN_INSYNC  # the death took one more, and nobody was there to replace it
        lab.start(other)
        await slow.until(lambda: other in lab.state.isr, "the dead one is back", NOTICED_S)

    _simulate(story)


def a_disk_that_is_slow_now_and_then_moves_a_bounded_number_of_times() -> None:
    async def story(slow: SlowLab) -> None:
        victim = _follower(slow.lab)
        for _ in range(7):
            slow.set_disk(victim, slow=True)
            await asyncio.sleep(12)
            slow.set_disk(victim, slow=False)
            await asyncio.sleep(RETURN_S + 8)
        assert 1 <= slow.seen.shrinks[victim] <= 3, slow.seen.shrinks

    _simulate(story)


async def _elect_preferred(connection: SimConnection) -> None:
    partitions = [{"topic": TOPIC, "partitions": [0]}]
    fields = {"election_type": 0, "topic_partitions": partitions, "timeout": 5_000}
    reply = await connection.call(ApiKey.ELECT_LEADERS, fields)
    assert ErrorCode(reply.error_code) is ErrorCode.none


SCENARIOS = (
    where_all_are_slow_nothing_moves,
    a_slow_replica_that_is_needed_stays_or_comes_back_at_once,
    a_follower_with_a_slow_disk_leaves_the_isr_and_returns_once,
    a_follower_with_a_slow_network_leaves_the_isr_under_flush_os,
    a_leader_with_a_slow_disk_hands_over_and_is_not_elected_while_it_is_slow,
    a_disk_that_is_slow_now_and_then_moves_a_bounded_number_of_times,
)


@dataclass(slots=True)
class SlowReport:
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0


def run_seed(seed: int) -> SlowReport:
    """Nodes slow for random times, one after the other: nothing is lost, and moves stay few."""
    random, report = Random(f"slow {seed}"), SlowReport()

    async def story(slow: SlowLab) -> None:
        for _ in range(3):
            victim = random.randrange(3)
            kind, change = random.choice((("disk", slow.set_disk), ("network", slow.set_network)))
            change(victim, slow=True)
            report.faults[kind] += 1
            await asyncio.sleep(random.uniform(1, 20))
            if random.random() < 0.3:
                lab, dead = slow.lab, random.randrange(3)
                lab.nodes[dead].kill()
                lab.start(dead)
                report.faults["kill"] += 1
                await lab.nodes[dead].wait_until_serving()
            change(victim, slow=False)
            await asyncio.sleep(random.uniform(0, 10))
        await slow.until(lambda: set(slow.lab.state.isr) == {0, 1, 2}, "all are in sync again", 8 * RETURN_S)
        report.records_read = len(slow.acknowledged)
        if report.faults["kill"]:
            slow.seen.smallest_isr = MIN_INSYNC

    _simulate(story, flush=random.choice(("ack", "os")), seed=seed)
    return report
