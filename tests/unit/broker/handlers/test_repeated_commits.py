# SPDX-License-Identifier: Apache-2.0
"""Commits that repeat each other on a simulated node: they are decoded once, and decided each time."""

from __future__ import annotations

import asyncio

import pytest

from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests import offset_commit_codec
from headrace.wire.requests.offset_commit import OffsetCommitRequest, read_offset_commit
from tests.harness.broker.group_client import GroupClient
from tests.harness.broker.simulated_node import SimBroker, on_a_node

QUICK = {"group.initial.rebalance.delay.ms": "0"}
NONE = ErrorCode.none
PARTITIONS = (0, 1, 2)
ALL_TAKEN = dict.fromkeys(PARTITIONS, NONE)


def refused(code: ErrorCode) -> dict[int, int]:
    return dict.fromkeys(PARTITIONS, code)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generations of the commits that were not recognised as a repetition."""
    seen: list[int] = []

    def watched(version: int, view: memoryview, position: int, end: int) -> OffsetCommitRequest:
        request = read_offset_commit(version, view, position, end)
        seen.append(request.generation)
        return request

    monkeypatch.setattr(offset_commit_codec, "read_offset_commit", watched)
    return seen


async def member(node: SimBroker) -> GroupClient:
    await node.create(partitions=3)
    client = await GroupClient.of(node)
    await client.join()
    await client.sync({client.member_id: b"mine"})
    await client.commit(0)
    await asyncio.sleep(6)  # the node's own topics are made by then
    return client


async def commit_often(client: GroupClient, expected: dict[int, int], decoded: list[int]) -> None:
    decoded.clear()
    for offset in range(20):
        assert await client.commit(offset, PARTITIONS) == expected
    assert len(decoded) <= 2


async def busy_member(node: SimBroker, decoded: list[int]) -> GroupClient:
    client = await member(node)
    await commit_often(client, ALL_TAKEN, decoded)
    return client


def test_repeated_commits_survive_a_crash(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        assert await client.committed() == dict.fromkeys(PARTITIONS, 19)
        await node.kill()
        await node.start()
        again = await GroupClient.of(node)
        await asyncio.sleep(1)
        assert await again.committed() == dict.fromkeys(PARTITIONS, 19)

    on_a_node(scenario, settings=QUICK)


def test_a_commit_of_other_partitions_is_decoded_again(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        assert await client.heartbeat() is NONE
        decoded.clear()
        assert await client.commit(77, (1,)) == {1: NONE}
        assert await client.commit(78, PARTITIONS) == ALL_TAKEN
        assert await client.committed() == dict.fromkeys(PARTITIONS, 78)
        assert len(decoded) == 2

    on_a_node(scenario, settings=QUICK)


def test_a_removed_member_gets_an_error(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        await client.leave()
        await commit_often(client, refused(ErrorCode.unknown_member_id), decoded)
        assert await client.committed() == dict.fromkeys(PARTITIONS, 19)

    on_a_node(scenario, settings=QUICK)


def test_a_generation_that_is_over_is_refused(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        before = client.generation
        await client.join()
        await client.sync({client.member_id: b"mine"})
        assert client.generation > before
        client.generation = before
        await commit_often(client, refused(ErrorCode.illegal_generation), decoded)

    on_a_node(scenario, settings=QUICK)


def test_a_topic_that_is_gone_is_noticed(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        await node.delete("t")
        decoded.clear()
        gone = refused(ErrorCode.unknown_topic_or_partition)
        assert await client.commit(4, PARTITIONS) == gone

    on_a_node(scenario, settings=QUICK)


def test_a_full_disk_is_an_error(decoded: list[int]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, decoded)
        node.broker.partitions.writable = False
        await commit_often(client, refused(ErrorCode.not_coordinator), decoded)

    on_a_node(scenario, settings=QUICK)
