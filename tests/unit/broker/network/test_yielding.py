# SPDX-License-Identifier: Apache-2.0
"""Long requests yield to others, whichever part of them is long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.dispatch import dispatcher as dispatch
from headrace.broker.network.yielding import is_long, yielding, yielding_by_size
from headrace.log.checkpoints import LOG_START_FILE, read_offset_checkpoint
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import TopicPartition
from tests.harness.broker.simulated_node import LIST_OFFSETS, TOPIC, SimBroker, on_a_node

METADATA, DESCRIBE_CONFIGS, DELETE_RECORDS = 3, 32, 21


def test_everything_is_gone_through_in_order_and_others_run_in_between() -> None:
    async def run() -> tuple[list[int], int]:
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        seen = [item async for item in yielding(range(1000), 10)]
        beside.cancel()
        return seen, others

    seen, others = asyncio.run(run())
    assert seen == list(range(1000))
    assert others >= 99


@pytest.mark.parametrize(("size", "turns"), [(1, 9), (10, 99), (1000, 999)])
def test_large_items_are_fewer_at_a_time(size: int, turns: int) -> None:
    async def run() -> int:
        others, done = 0, False

        async def other() -> None:
            nonlocal others
            while not done:
                others += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        assert [item async for item in yielding_by_size(range(1000), lambda item: size, 100)] == list(
            range(1000)
        )
        done = True
        await beside
        return others

    assert asyncio.run(run()) == turns


@pytest.mark.parametrize(
    ("fields", "long"),
    [
        ({}, False),
        ({"a": 1, "b": "x" * 10_000, "c": b"y" * 10_000}, False),
        ({"list": [1] * 1000}, True),
        ({"list": [{"inner": [1] * 100}] * 10}, True),
        ({"list": [{"inner": [{"innermost": list(range(200))}] * 2}] * 2}, True),
        ({"list": [{"inner": [1, 2]}] * 10}, False),
    ],
)
def test_a_reply_is_long_when_it_holds_many_items_at_any_depth(fields: dict[str, Any], long: bool) -> None:
    assert is_long(fields) is long


def list_offsets_fields(count: int) -> dict[str, Any]:
    partitions = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in range(count)
    ]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": partitions}]}


@pytest.mark.parametrize("count", [3, 5000])
def test_large_requests_get_the_same_answers_as_small_ones(count: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=3)
        await node.produce(b"x", index=1)
        connection = await node.connect()
        reply = await connection.call(LIST_OFFSETS, list_offsets_fields(count), version=6)
        parts = reply.topics[0].partitions
        assert [part.partition_index for part in parts] == list(range(count))
        assert [part.offset for part in parts[:3]] == [0, 1, 0]
        assert all(part.error_code == 3 for part in parts[3:])
        connection.abort()
        await asyncio.sleep(1)
        assert node.broker.metrics.frames_bytes == 0

    on_a_node(scenario)


def test_replies_keep_their_order_when_a_large_request_is_among_them() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=3)
        connection = await node.connect()
        replies = [
            connection.send(LIST_OFFSETS, list_offsets_fields(count), version=6)
            for count in (1, 3000, 2, 4000, 3)
        ]
        counts = [len((await reply).topics[0].partitions) for reply in replies]
        assert counts == [1, 3000, 2, 4000, 3]

    on_a_node(scenario)


def test_a_large_request_that_is_garbage_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimBroker) -> None:
        connection = await node.connect()
        assert connection._transport is not None
        body = bytes.fromhex("0002000600000001ffff") + b"\x7f" * (dispatch.LARGE_FRAME_BYTES + 100)
        connection._transport.write(len(body).to_bytes(4, "big") + body)
        await asyncio.sleep(1)
        assert not connection.is_open
        assert node.broker.metrics.frames_bytes == 0

    on_a_node(scenario)
    assert not any(record.exc_info for record in caplog.records)
    assert len([line for line in caplog.messages if "closing connection" in line]) == 1


def test_records_deleted_in_many_partitions_are_written_down_together() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=200)
        for index in range(200):
            await node.produce(b"a", b"b", index=index)
        writes = 0

        def count(operation: str, path: Any) -> None:
            nonlocal writes
            writes += operation == "rename" and path.name.startswith(LOG_START_FILE)

        node.files.on_operation = count
        connection = await node.connect()
        partitions = [{"partition_index": index, "offset": 1} for index in range(200)]
        fields = {"topics": [{"name": TOPIC, "partitions": partitions}], "timeout": 5000}
        reply = await connection.call(DELETE_RECORDS, fields)
        assert {part.low_watermark for part in reply.topics[0].partitions} == {1}
        assert 0 < writes <= 3
        starts = read_offset_checkpoint(node.files, DATA_DIRECTORY / LOG_START_FILE)
        assert all(starts[TopicPartition(TOPIC, index)] == 1 for index in range(200))

    on_a_node(scenario, settings={"headrace.flush.default": "os"})
