"""Commits that repeat each other on a simulated node: the short way decides as the long one does."""

from __future__ import annotations

import asyncio

import pytest
from sim_broker import SimBroker, on_a_node
from sim_group_client import GroupClient

from headrace.broker.commit_run import CommitRun
from headrace.wire.error_codes import ErrorCode

QUICK = {"group.initial.rebalance.delay.ms": "0"}
NONE = ErrorCode.none
PARTITIONS = (0, 1, 2)
ALL_TAKEN = dict.fromkeys(PARTITIONS, NONE)


def refused(code: ErrorCode) -> dict[int, int]:
    return dict.fromkeys(PARTITIONS, code)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every frame that a run was shown, whether it handled it."""
    seen: list[bool] = []
    take = CommitRun.take

    def watched(run: CommitRun, view: memoryview, position: int, end: int) -> int:
        after = take(run, view, position, end)
        seen.append(after > position)
        return after

    monkeypatch.setattr(CommitRun, "take", watched)
    return seen


async def member(node: SimBroker) -> GroupClient:
    await node.create(partitions=3)
    client = await GroupClient.of(node)
    await client.join()
    await client.sync({client.member_id: b"mine"})
    await client.commit(0)
    await asyncio.sleep(6)  # the node's own topics are made by then
    return client


async def commit_often(client: GroupClient, expected: dict[int, int], taken: list[bool]) -> None:
    """Often enough that some arrive in one piece: a frame that is cut in two goes the long way."""
    taken.clear()
    for offset in range(20):
        assert await client.commit(offset, PARTITIONS) == expected
    assert any(taken)


async def busy_member(node: SimBroker, taken: list[bool]) -> GroupClient:
    client = await member(node)
    await commit_often(client, ALL_TAKEN, taken)
    return client


def test_it_outlives_a_crash(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        assert await client.committed() == dict.fromkeys(PARTITIONS, 19)
        await node.kill()
        await node.start()
        again = await GroupClient.of(node)
        await asyncio.sleep(1)
        assert await again.committed() == dict.fromkeys(PARTITIONS, 19)

    on_a_node(scenario, settings=QUICK)


def test_the_first_commit_of_other_partitions_goes_the_long_way(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        assert await client.heartbeat() is NONE
        taken.clear()
        assert await client.commit(77, (1,)) == {1: NONE}
        assert await client.commit(78, PARTITIONS) == ALL_TAKEN
        assert await client.committed() == dict.fromkeys(PARTITIONS, 78)
        assert not any(taken)

    on_a_node(scenario, settings=QUICK)


def test_a_member_that_is_out_is_told_so(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        await client.leave()
        await commit_often(client, refused(ErrorCode.unknown_member_id), taken)
        assert await client.committed() == dict.fromkeys(PARTITIONS, 19)

    on_a_node(scenario, settings=QUICK)


def test_a_generation_that_is_over_is_refused(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        before = client.generation
        await client.join()
        await client.sync({client.member_id: b"mine"})
        assert client.generation > before
        client.generation = before
        await commit_often(client, refused(ErrorCode.illegal_generation), taken)

    on_a_node(scenario, settings=QUICK)


def test_a_topic_that_is_gone_is_noticed(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        await node.delete("t")
        taken.clear()
        gone = refused(ErrorCode.unknown_topic_or_partition)
        assert await client.commit(4, PARTITIONS) == gone
        assert not any(taken)

    on_a_node(scenario, settings=QUICK)


def test_a_disk_without_room_is_told(taken: list[bool]):
    async def scenario(node: SimBroker) -> None:
        client = await busy_member(node, taken)
        node.broker.partitions.writable = False
        await commit_often(client, refused(ErrorCode.not_coordinator), taken)

    on_a_node(scenario, settings=QUICK)
