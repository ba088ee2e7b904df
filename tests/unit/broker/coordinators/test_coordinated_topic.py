# SPDX-License-Identifier: Apache-2.0
"""What groups and transactions share: drivers for the led partitions of a topic, loads and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headrace.broker.controller.topic_rules import NewTopic
from headrace.broker.coordinators.coordinated_topic import RELOAD_AFTER_S, CoordinatedTopic
from headrace.broker.coordinators.machine_driver import MachineKind
from headrace.broker.coordinators.machine_loading import MachineLoading
from headrace.broker.metrics import Histogram
from headrace.broker.partition.partition import Partition
from headrace.errors import ApiError, StorageError
from headrace.machines.machine import Event, Loaded, Question, Step
from headrace.wire.batch import BatchHeader
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode
from headrace.wire.plain_batch import plain_record
from headrace.world import Thread
from tests.harness.broker.simulated_node import SimBroker, on_a_node
from tests.harness.broker.toy_machines import Do, Said, Told, Toy, Wrote

STATE_TOPIC = "toys"


class NamedToy(Toy):
    """Remembers that it was loaded."""

    def decide(self, event: Event, step: Step) -> None:
        if isinstance(event, Loaded):
            self.received.append("loaded")
        else:
            super().decide(event, step)


class Lab:
    def __init__(
        self, node: SimBroker, *, acts_when_loaded: Callable[[Toy], bool] = lambda toy: True
    ) -> None:
        broker = node.broker
        self.loads = Histogram()
        self.loaded: list[str] = []
        kind: MachineKind[NamedToy] = MachineKind(
            make=NamedToy,
            pack=lambda record, number: [(plain_record(number, b"m", record.text.encode()), 1)],
            answer_question=self._answer_question,
            committed=lambda *step: None,
            acts_when_loaded=acts_when_loaded,
        )
        self.topic = CoordinatedTopic[NamedToy](
            topic=NewTopic(name=STATE_TOPIC, partition_count=4, replication_factor=3),
            kind=kind,
            read=self._read,
            plural="toys",
            world=broker.world,
            node_id=broker.node_id,
            cluster=broker.cluster,
            controller=broker.controller,
            partitions=broker.partitions,
            commit_timeout_ms=5_000,
            loads=self.loads,
            on_loaded=lambda toy: self.loaded.append(toy.name),
        )
        self.topic.start()

    @staticmethod
    async def _answer_question(question: Question) -> Event:
        return Told("42")

    @staticmethod
    def _read(
        header: BatchHeader, key: bytes | None, value: bytes | None
    ) -> tuple[str, CoordinatorRecord] | None:
        return None if key is None else (key.decode(), Wrote((value or b"").decode()))

    async def ask(self, what: str, name: str = "m") -> str:
        reply = await self.topic.ask(name, lambda token: Do(what, token))
        assert isinstance(reply, Said)
        return reply.text

    async def code(self, what: str, name: str = "m") -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            await self.ask(what, name)
        return refused.value.code


async def made(node: SimBroker) -> Lab:
    lab = Lab(node)
    assert await lab.code("read") is ErrorCode.not_coordinator
    await lab.topic.ensure()
    return lab


def test_a_name_belongs_to_the_leader_of_its_partition() -> None:
    async def scenario(node: SimBroker) -> None:
        lab = await made(node)
        assert len(node.broker.cluster.view.topics[STATE_TOPIC].partitions) == 4
        assert lab.topic.is_coordinator_of("m")
        assert await lab.ask("write") == "written"
        assert list(lab.topic.drivers) == [0, 1, 2, 3]
        assert node.partition(STATE_TOPIC, lab.topic.partition_of("m")).log_end_offset == 1
        assert [toy.name for toy in await lab.topic.listed()] == ["m"]

    on_a_node(scenario)


def test_what_was_written_is_loaded_by_the_next_driver() -> None:
    async def scenario(node: SimBroker) -> None:
        first = await made(node)
        await first.ask("write")
        await first.ask("write")
        await first.topic.stop()
        second = Lab(node)
        assert await second.code("read") is ErrorCode.coordinator_load_in_progress
        await asyncio.sleep(1)
        assert await second.ask("read") == "2"
        assert (second.loaded, second.loads.count) == (["m"], 1)
        toy = second.topic.peek("m")
        assert toy is not None
        assert toy.received == ["loaded"]
        assert await first.code("read") is ErrorCode.not_coordinator

    on_a_node(scenario)


def test_partitions_that_are_loaded_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimBroker) -> None:
        first = await made(node)
        for name in ("a", "b", "c"):
            await first.ask("write", name)
        await first.topic.stop()
        with caplog.at_level("INFO"):
            Lab(node)
            await asyncio.sleep(1)

    on_a_node(scenario)
    (line,) = [line for line in caplog.messages if "loaded" in line]
    assert line.startswith(f"{STATE_TOPIC}: loaded 3 toys from 3 records of 3 partitions in 0.")


def test_a_machine_with_nothing_to_do_is_loaded_without_a_step() -> None:
    async def scenario(node: SimBroker) -> None:
        await (await made(node)).ask("write")
        lab = Lab(node, acts_when_loaded=lambda toy: False)
        await asyncio.sleep(1)
        assert await lab.ask("read") == "1"
        toy = lab.topic.peek("m")
        assert toy is not None
        assert toy.received == []

    on_a_node(scenario)


def test_a_driver_that_ended_is_replaced_after_a_while() -> None:
    async def scenario(node: SimBroker) -> None:
        lab = await made(node)
        await lab.ask("write")
        lab.topic.drivers[lab.topic.partition_of("m")].end()
        assert await lab.code("read") is ErrorCode.not_coordinator
        await asyncio.sleep(RELOAD_AFTER_S + 1)
        assert await lab.ask("read") == "1"

    on_a_node(scenario)


def test_a_load_that_failed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimBroker) -> None:
        await (await made(node)).ask("write")
        load = MachineLoading.load
        remaining: list[Exception] = [StorageError("damaged"), RuntimeError("a defect")]

        async def fails_twice(self: MachineLoading[Toy], partition: Partition, thread: Thread) -> None:
            if remaining:
                raise remaining.pop()
            await load(self, partition, thread)

        with monkeypatch.context() as patched:
            patched.setattr(MachineLoading, "load", fails_twice)
            lab = Lab(node)
            await asyncio.sleep(2 * RELOAD_AFTER_S + 1)
        assert (remaining, await lab.ask("read")) == ([], "1")

    on_a_node(scenario)


def test_a_deleted_topic_ends_its_drivers() -> None:
    async def scenario(node: SimBroker) -> None:
        lab = await made(node)
        waiting = asyncio.ensure_future(lab.ask("wait"))
        await asyncio.sleep(0.1)
        await node.delete(STATE_TOPIC)
        lab.topic.match_drivers(node.broker.cluster.view)
        with pytest.raises(ApiError) as ended:
            await waiting
        assert ended.value.code is ErrorCode.not_coordinator
        assert lab.topic.drivers == {}

    on_a_node(scenario)


def test_what_waits_is_rejected_at_the_stop() -> None:
    async def scenario(node: SimBroker) -> None:
        lab = await made(node)
        waiting = asyncio.ensure_future(lab.ask("wait"))
        await asyncio.sleep(0.1)
        await lab.topic.stop()
        with pytest.raises(ApiError) as ended:
            await waiting
        assert ended.value.code is ErrorCode.not_coordinator
        assert await lab.code("read") is ErrorCode.not_coordinator

    on_a_node(scenario)
