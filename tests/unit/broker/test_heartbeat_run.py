"""Heartbeats that repeat each other on a simulated node: the short way answers as the long one does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sim_broker import SimBroker, on_a_node
from sim_group_client import GroupClient

from headrace.broker.heartbeat_run import HeartbeatRun
from headrace.wire.error_codes import ErrorCode

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
NONE = ErrorCode.none


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every frame that a run was shown, whether it handled it."""
    seen: list[bool] = []
    take = HeartbeatRun.take

    def watched(run: HeartbeatRun, view: memoryview, position: int, end: int) -> int:
        after = take(run, view, position, end)
        seen.append(after > position)
        return after

    monkeypatch.setattr(HeartbeatRun, "take", watched)
    return seen


async def beat_often(client: GroupClient, expected: ErrorCode, taken: list[bool]) -> None:
    """Often enough that some arrive in one piece: a frame that is cut in two goes the long way."""
    taken.clear()
    for _ in range(20):
        assert await client.heartbeat() is expected
    assert any(taken)


async def beating_member(node: SimBroker, taken: list[bool]) -> GroupClient:
    await node.create(partitions=2)
    client = await GroupClient.of(node)
    await client.join()
    await client.sync({client.member_id: b"mine"})
    await beat_often(client, NONE, taken)
    return client


def test_a_repeated_heartbeat_keeps_the_member_in(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, taken)
        for _ in range(10):
            await asyncio.sleep(8)  # of a session of ten seconds
            assert await client.heartbeat() is NONE
        await asyncio.sleep(11)
        assert await client.heartbeat() is ErrorCode.unknown_member_id

    on_a_node(scenario, settings=QUICK)


def test_it_hears_of_a_rebalance_and_of_the_end_of_its_generation(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, taken)
        other = await GroupClient.of(node)
        joining = asyncio.ensure_future(other.join())
        await asyncio.sleep(1)
        await beat_often(client, ErrorCode.rebalance_in_progress, taken)
        generation = client.generation
        await client.join()
        await joining
        client.generation = generation
        await beat_often(client, ErrorCode.illegal_generation, taken)

    on_a_node(scenario, settings=QUICK)


def test_who_left_is_told_so(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, taken)
        await client.leave()
        await beat_often(client, ErrorCode.unknown_member_id, taken)

    on_a_node(scenario, settings=QUICK)


def test_a_kip_848_member_hears_of_its_new_assignment(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        first, second = await GroupClient.of(node, "k"), await GroupClient.of(node, "k")
        first.member_id, second.member_id = "first", "second"
        joined = await first.beat(0, subscribed_topic_names=["t"])
        held = _partitions(joined)
        assert len(held) == 2
        topics = [{"topic_id": joined.assignment.topic_partitions[0].topic_id, "partitions": held}]
        await first.beat(joined.member_epoch, topic_partitions=topics)
        taken.clear()
        for _ in range(20):
            assert (await first.beat(joined.member_epoch)).assignment is None
        assert any(taken)
        assert (await second.beat(0, subscribed_topic_names=["t"])).error_code is NONE
        await asyncio.sleep(1)
        assert len(_partitions(await first.beat(joined.member_epoch))) == 1

    on_a_node(scenario, settings=QUICK)


def _partitions(reply: Any) -> list[int]:
    return [number for topic in reply.assignment.topic_partitions for number in topic.partitions]
