# SPDX-License-Identifier: Apache-2.0
"""aiokafka, unmodified: members of groups with their listeners, commits, static members, group admin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from tests.harness.waiting import until

TIMEOUT_S = 20


class Listener(ConsumerRebalanceListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.rebalances: list[tuple[str, list[int]]] = []

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.rebalances.append(("revoked", sorted(each.partition for each in revoked)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.rebalances.append(("assigned", sorted(each.partition for each in assigned)))

    def kinds(self) -> list[tuple[str, int]]:
        return [(kind, len(partitions)) for kind, partitions in self.rebalances]


class Scene:
    """A broker, a topic name, and clients that are stopped when the scenario ends."""

    def __init__(self, bootstrap: str, topic: str, stack: AsyncExitStack) -> None:
        self.bootstrap, self.topic, self._stack = bootstrap, topic, stack

    async def started(self, client: Any, stop: Callable[[], Awaitable[None]]) -> Any:
        self._stack.push_async_callback(stop)
        await client.start()
        return client

    async def admin(self) -> AIOKafkaAdminClient:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        return await self.started(client, client.close)

    async def make_topic(self, partitions: int, *, suffix: str = "") -> str:
        name = self.topic + suffix
        await (await self.admin()).create_topics([NewTopic(name, partitions, 1)])
        return name

    async def consumer(self, **options: Any) -> AIOKafkaConsumer:
        settings = {
            "group_id": self.topic,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
            "metadata_max_age_ms": 500,
        }
        client = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, **{**settings, **options})
        return await self.started(client, client.stop)

    async def produce(self, topic: str, count: int) -> None:
        client = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        producer = await self.started(client, client.stop)
        for number in range(count):
            await producer.send_and_wait(topic, str(number).encode(), partition=0)


Scenario = Callable[[Scene], Coroutine[Any, Any, None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(group_bootstrap: str, topic: str) -> Run:
    async def in_scene(scenario: Scenario) -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            await scenario(Scene(group_bootstrap, topic, stack))

    return lambda scenario: asyncio.run(in_scene(scenario))


async def wait_for_sizes(sizes: dict[AIOKafkaConsumer, int]) -> None:
    """aiokafka rebalances in the background."""

    def found() -> list[int]:
        return [len(consumer.assignment()) for consumer in sizes]

    await until(lambda: found() == list(sizes.values()), found, timeout_s=TIMEOUT_S)


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(count)]


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
def test_listeners_are_called_at_every_rebalance(run: Run, assignor: type) -> None:
    async def scenario(scene: Scene) -> None:
        topic, first, second = await scene.make_topic(4), Listener(), Listener()
        one = await scene.consumer(partition_assignment_strategy=[assignor])
        one.subscribe([topic], listener=first)
        await wait_for_sizes({one: 4})
        two = await scene.consumer(partition_assignment_strategy=[assignor])
        two.subscribe([topic], listener=second)
        await wait_for_sizes({one: 2, two: 2})
        await two.stop()
        await wait_for_sizes({one: 4})
        async with asyncio.timeout(TIMEOUT_S):
            while first.kinds()[-1] != ("assigned", 4):  # noqa: ASYNC110 - told a little later
                await asyncio.sleep(0.02)
        calm = [note for note in first.kinds() if note[1]]
        assert calm[0] == ("assigned", 4)
        assert calm[-4:] == [("revoked", 4), ("assigned", 2), ("revoked", 2), ("assigned", 4)]
        assert ("assigned", 2) in second.kinds()

    run(scenario)


def test_a_pattern_finds_topics_that_are_created_later(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.make_topic(2, suffix="-eu")
        await scene.make_topic(2, suffix="-other")
        consumer = await scene.consumer()
        consumer.subscribe(pattern=f"^{scene.topic}-(eu|us)$")
        await wait_for_sizes({consumer: 2})
        await scene.make_topic(1, suffix="-us")
        await wait_for_sizes({consumer: 3})
        assert {each.topic for each in consumer.assignment()} == {f"{scene.topic}-eu", f"{scene.topic}-us"}

    run(scenario)


@pytest.mark.row("D14")
def test_commits_carry_metadata_and_a_successor_begins_there(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        topic = await scene.make_topic(1)
        await scene.produce(topic, 10)
        partition = TopicPartition(topic, 0)
        consumer = await scene.consumer()
        consumer.subscribe([topic])
        await read(consumer, 6)
        assert await consumer.committed(partition) is None
        await consumer.commit()
        assert await consumer.committed(partition) == 6
        await consumer.commit({partition: (4, "by hand")})
        await consumer.seek_to_committed()
        assert await consumer.position(partition) == 4
        await consumer.stop()
        successor = await scene.consumer()
        successor.subscribe([topic])
        assert [record.offset for record in await read(successor, 6)] == [4, 5, 6, 7, 8, 9]
        admin = await scene.admin()
        assert await admin.list_consumer_group_offsets(topic) == {partition: OffsetAndMetadata(4, "by hand")}

    run(scenario)


def test_automatic_commits_are_made_by_stop(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        topic = await scene.make_topic(1)
        await scene.produce(topic, 5)
        consumer = await scene.consumer(enable_auto_commit=True, auto_commit_interval_ms=60_000)
        consumer.subscribe([topic])
        await read(consumer, 5)
        await consumer.stop()
        successor = await scene.consumer()
        successor.subscribe([topic])
        await scene.produce(topic, 1)
        assert [record.offset for record in await read(successor, 1)] == [5]

    run(scenario)


def test_a_simple_consumer_commits_without_being_a_member(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        partition = TopicPartition(await scene.make_topic(1), 0)
        consumer = await scene.consumer()
        consumer.assign([partition])
        await consumer.commit({partition: 3})
        assert await consumer.committed(partition) == 3

    run(scenario)


def test_a_returning_static_member_causes_no_rebalance(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        topic, listener = await scene.make_topic(4), Listener()
        one = await scene.consumer(group_instance_id="instance-1")
        one.subscribe([topic], listener=listener)
        await wait_for_sizes({one: 4})
        two = await scene.consumer(group_instance_id="instance-2")
        two.subscribe([topic])
        await wait_for_sizes({one: 2, two: 2})
        before, rebalances = two.assignment(), list(listener.rebalances)
        await two.stop()
        again = await scene.consumer(group_instance_id="instance-2")
        again.subscribe([topic])
        await wait_for_sizes({one: 2, again: 2})
        assert again.assignment() == before
        assert listener.rebalances == rebalances

    run(scenario)


def test_groups_are_listed_and_described(run: Run) -> None:
    async def scenario(scene: Scene) -> None:
        topic = await scene.make_topic(2)
        consumer = await scene.consumer(client_id="member")
        consumer.subscribe([topic])
        await wait_for_sizes({consumer: 2})
        admin = await scene.admin()
        assert (topic, "consumer") in [found[:2] for found in await admin.list_consumer_groups()]
        (reply,) = await admin.describe_consumer_groups([topic])
        ((error, name, state, protocol_type, _, members, *_),) = reply.groups
        assert (error, name, state, protocol_type) == (0, topic, "Stable", "consumer")
        assert ["member" in member for member in members] == [True]

    run(scenario)
