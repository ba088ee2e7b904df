# SPDX-License-Identifier: Apache-2.0
"""Heartbeats that repeat each other on a simulated node: they are decoded once, and answered each time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import decode_request
from headrace.wire.requests import repeated_codec
from tests.harness.broker.group_client import GroupClient
from tests.harness.broker.simulated_node import SimBroker, on_a_node

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
NONE = ErrorCode.none


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The API keys of the heartbeats that were not recognised as a repetition."""
    seen: list[int] = []

    def watched(api_key: int, version: int, view: memoryview, position: int, end: int) -> Any:
        seen.append(api_key)
        return decode_request(api_key, version, view, position, end)

    monkeypatch.setattr(repeated_codec, "decode_request", watched)
    return seen


async def beat_often(client: GroupClient, expected: ErrorCode, decoded: list[int]) -> None:
    decoded.clear()
    for _ in range(20):
        assert await client.heartbeat() is expected
    assert len(decoded) <= 1


async def beating_member(node: SimBroker, decoded: list[int]) -> GroupClient:
    await node.create(partitions=2)
    client = await GroupClient.of(node)
    await client.join()
    await client.sync({client.member_id: b"mine"})
    await beat_often(client, NONE, decoded)
    return client


def test_a_repeated_heartbeat_keeps_the_member_in(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, decoded)
        for _ in range(10):
            await asyncio.sleep(8)  # of a session of ten seconds
            assert await client.heartbeat() is NONE
        await asyncio.sleep(11)
        assert await client.heartbeat() is ErrorCode.unknown_member_id

    on_a_node(scenario, settings=QUICK)


def test_a_repeated_heartbeat_gets_rebalances_and_the_end_of_its_generation(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, decoded)
        other = await GroupClient.of(node)
        joining = asyncio.ensure_future(other.join())
        await asyncio.sleep(1)
        await beat_often(client, ErrorCode.rebalance_in_progress, decoded)
        generation = client.generation
        await client.join()
        await joining
        client.generation = generation
        await beat_often(client, ErrorCode.illegal_generation, decoded)

    on_a_node(scenario, settings=QUICK)


def test_a_member_that_left_gets_an_error(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, decoded)
        await client.leave()
        await beat_often(client, ErrorCode.unknown_member_id, decoded)

    on_a_node(scenario, settings=QUICK)


def test_a_kip_848_member_gets_its_new_assignment(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        first, second = await GroupClient.of(node, "k"), await GroupClient.of(node, "k")
        first.member_id, second.member_id = "first", "second"
        joined = await first.beat(0, subscribed_topic_names=["t"])
        held = _partitions(joined)
        assert len(held) == 2
        topics = [{"topic_id": joined.assignment.topic_partitions[0].topic_id, "partitions": held}]
        await first.beat(joined.member_epoch, topic_partitions=topics)
        await first.beat(joined.member_epoch)
        decoded.clear()
        for _ in range(20):
            assert (await first.beat(joined.member_epoch)).assignment is None
        assert not decoded
        assert (await second.beat(0, subscribed_topic_names=["t"])).error_code is NONE
        await asyncio.sleep(1)
        assert len(_partitions(await first.beat(joined.member_epoch))) == 1

    on_a_node(scenario, settings=QUICK)


def test_members_without_an_id_get_ids_of_their_own(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        client = await GroupClient.of(node, "k")
        joined = [await client.beat(0, version=0, subscribed_topic_names=["t"]) for _ in range(3)]
        assert len(decoded) == 1
        assert [reply.error_code for reply in joined] == [NONE] * 3
        assert len({reply.member_id for reply in joined}) == 3

    on_a_node(scenario, settings=QUICK)


def test_another_heartbeat_of_the_connection_is_not_taken_for_the_last_one(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await beating_member(node, decoded)
        member_id, client.member_id = client.member_id, "nobody"
        await beat_often(client, ErrorCode.unknown_member_id, decoded)
        client.member_id = member_id
        await beat_often(client, NONE, decoded)

    on_a_node(scenario, settings=QUICK)


def _partitions(reply: Any) -> list[int]:
    return [number for topic in reply.assignment.topic_partitions for number in topic.partitions]
