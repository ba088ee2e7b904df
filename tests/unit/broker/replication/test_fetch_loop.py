# SPDX-License-Identifier: Apache-2.0
"""What a loop of replication does with time: it never waits for a moment that has passed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.replication.fetch_loop import LATER_S, SOON_S, FetchLoop
from headrace.machines.replication.follower import FetchFrom, Work
from headrace.testing.simworld import Simulation, SimWorld
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.replica_fetch import ReplicaAnswer

TOPIC_ID = UUID(int=7)


class HurriedClock:
    """Time passes between two looks at it, as it does when a process must share its processor."""

    def __init__(self, world: SimWorld, per_look_s: float) -> None:
        self._clock, self._per_look_s, self._passed_s = world.clock, per_look_s, 0.0

    def monotonic(self) -> float:
        self._passed_s += self._per_look_s
        return self._clock.monotonic() + self._passed_s

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


class OnePartition:
    """Stands in for a following and its machine; the leader's view is older at first."""

    topic_id = TOPIC_ID
    waits_for_flush = False
    is_current = True

    def __init__(self, index: int = 0) -> None:
        self.topic_partition = TopicPartition("t", index)
        self.partition = self.machine = self
        self.questions = 0
        self._is_open = False

    def next_fetch(self) -> FetchFrom | None:
        if self._is_open:
            return None
        self._is_open = True
        self.questions += 1
        return FetchFrom(
            leader=1, leader_epoch=2, node=3, node_epoch=4, offset=0, last_fetched_epoch=-1, log_start=0
        )

    def fetched(self, *_: Any) -> None:
        self._is_open = False

    def lost(self, _: FetchFrom) -> None:
        self._is_open = False

    def update_high_watermark(self) -> None: ...


class SlowToReach:
    """Stands in for the peers: a connection takes its time."""

    def __init__(self, world: SimWorld, seconds: float) -> None:
        self._world, self._seconds = world, seconds

    async def reach(self, *_: object) -> None:
        await self._world.tasks.sleep(self._seconds)


class Hesitant(FetchLoop):
    """Every question is refused, to be asked again soon."""

    def __init__(self, world: SimWorld, peers: SlowToReach) -> None:
        super().__init__(
            world,
            peers,  # type: ignore[arg-type]
            1,
            purpose="fetch",
            max_wait_ms=500,
            persist_offsets=None,  # type: ignore[arg-type]
            on_moved=lambda _: None,
            on_round=lambda *_: None,
        )
        self.asked_at_once: list[int] = []

    async def _fetch(self, asked: Any, wait_ms: int) -> dict[tuple[UUID, int], ReplicaAnswer]:
        self.asked_at_once.append(len(asked))
        refused = ReplicaAnswer(
            error_code=ErrorCode.unknown_leader_epoch,
            high_watermark=-1,
            log_start=-1,
            diverging=None,
            records=memoryview(b""),
        )
        return {(TOPIC_ID, each.following.topic_partition.partition): refused for each in asked}


def test_a_retry_that_becomes_due_between_two_clock_reads_is_sent() -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        following = OnePartition()

        async def scenario() -> None:
            peers = SlowToReach(world, 0)
            world.clock = HurriedClock(world, SOON_S * 0.6)  # type: ignore[assignment]
            Hesitant(world, peers).add(following)  # type: ignore[arg-type]
            await asyncio.sleep(2)

        simulation.run(scenario())
        assert following.questions > 2 / SOON_S / 10


def test_a_partition_added_during_connecting_is_in_the_first_fetch() -> None:
    """Else it would wait for the end of that poll: four seconds for those that were quiet so far."""
    with Simulation(1) as simulation:
        world = simulation.start_process("node")

        async def scenario() -> list[int]:
            loop = Hesitant(world, SlowToReach(world, 0.2))
            loop.add(OnePartition(0))  # type: ignore[arg-type]
            await asyncio.sleep(0.1)
            loop.add(OnePartition(1))  # type: ignore[arg-type]
            await asyncio.sleep(1)
            return loop.asked_at_once

        assert simulation.run(scenario())[0] == 2


class Unlucky(Hesitant):
    """The first question meets an error that nobody foresaw."""

    async def _fetch(self, asked: Any, wait_ms: int) -> dict[tuple[UUID, int], ReplicaAnswer]:
        if not self.asked_at_once:
            self.asked_at_once.append(0)
            raise RuntimeError("nobody foresaw this")
        return await super()._fetch(asked, wait_ms)


def test_a_question_that_met_an_unforeseen_error_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        following = OnePartition()

        async def scenario() -> None:
            Unlucky(world, SlowToReach(world, 0)).add(following)  # type: ignore[arg-type]
            await asyncio.sleep(LATER_S + 0.5)

        simulation.run(scenario())
        assert following.questions > 1
        assert "nobody foresaw this" in caplog.text


class Replica(OnePartition):
    """Appends what comes; the first of two has the second become a leader meanwhile."""

    def __init__(self, index: int, heir: OnePartition | None = None) -> None:
        super().__init__(index)
        self.heir = heir
        self.appended = 0
        self.settings = SimpleNamespace(flush="os")
        self.log = SimpleNamespace(log_start_offset=0, log_end_offset=0)

    def append_as_replica(self, records: memoryview) -> None:
        assert self.is_current, "behind the start of its own epoch"
        self.appended += 1
        if self.heir is not None:
            self.heir.is_current = False

    def worked(self, **_: int) -> None: ...


def test_a_replica_that_became_leader_meanwhile_appends_nothing_of_the_earlier_leader(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its epoch would begin in the middle of a batch of the earlier one, where no follower could go on."""
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        second = Replica(1)
        first = Replica(0, heir=second)

        async def scenario() -> None:
            loop = Hesitant(world, SlowToReach(world, 0))
            for each in (first, second):
                await loop._work(each, Work(append=True), memoryview(b"batch"))  # type: ignore[arg-type]

        simulation.run(scenario())
        assert (first.appended, second.appended) == (1, 0)
        assert not caplog.records


def test_a_log_that_went_offline_is_not_fetched_for_and_another_one_in_its_place_is() -> None:
    """R27: its role ended with it. A fetch would say of the next log what the damaged one held."""
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        damaged, anew = OnePartition(), OnePartition()

        async def scenario() -> None:
            loop = Hesitant(world, SlowToReach(world, 0))
            loop.add(damaged)  # type: ignore[arg-type]
            await asyncio.sleep(1)
            damaged.is_current = False
            asked = damaged.questions
            assert asked
            await asyncio.sleep(1)
            assert damaged.questions == asked
            loop.forget(damaged.partition)  # type: ignore[arg-type]
            loop.add(anew)  # type: ignore[arg-type]
            assert (len(loop), damaged in loop, anew in loop) == (1, False, True)  # type: ignore[comparison-overlap, operator]
            await asyncio.sleep(1)
            assert anew.questions

        simulation.run(scenario())
