# SPDX-License-Identifier: Apache-2.0
"""R34: the wall clock may jump; sessions, time-outs and segments do not care."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.partition.retention_clock import CLOCK_FILE
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import EARLIEST, list_offset
from tests.simulation.sim_lab import TARGET, Lab, simulate

DAY_MS = 86_400_000


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, 3650 * DAY_MS])
def test_a_jump_forward_deletes_no_segment_of_a_running_node(jump_ms: int) -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(20):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.2)
        lab.node.machine.wall_jump_ms = jump_ms
        await asyncio.sleep(60)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        lab.node.machine.wall_jump_ms = 0
        await asyncio.sleep(60)
        assert await lab.produce() is ErrorCode.none

    simulate(scenario, segment_ms="500")


@pytest.mark.parametrize("jump_ms", [-3650 * DAY_MS, 3650 * DAY_MS])
def test_a_jump_ends_no_session_and_no_wait(jump_ms: int) -> None:
    async def scenario(lab: Lab) -> None:
        lab.node.machine.wall_jump_ms = jump_ms
        started = lab.now()
        if jump_ms > 0:  # backwards, the producer's clock would be ahead by more than an hour
            assert await lab.produce() is ErrorCode.none
            assert lab.now() - started < 1
        await asyncio.sleep(60)
        assert lab.node.starts == 1
        assert lab.connection.is_open
        broker = lab.node.broker
        assert broker is not None
        assert broker.cluster.is_controller
        lab.node.machine.wall_jump_ms = 0
        assert await lab.produce() is ErrorCode.none

    simulate(scenario)


def test_a_lasting_clock_jump_is_accepted_after_an_hour() -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(5):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.5)
        lab.node.machine.wall_jump_ms = 30 * DAY_MS
        await asyncio.sleep(3500)
        await lab.connect()  # the connection was closed for being idle
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        await asyncio.sleep(200)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 6

    simulate(scenario, segment_ms="500")


@pytest.mark.parametrize("end", ["kill", "cut_power"])
def test_a_clock_that_is_ahead_when_the_node_starts_deletes_nothing_for_an_hour(end: str) -> None:
    """Neither records nor the offsets of a group without members; both are too old by that clock."""

    async def scenario(lab: Lab) -> None:
        for _ in range(5):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.5)
        await commit(lab, 3)
        await restart(lab, end, ahead_ms=30 * DAY_MS)
        await asyncio.sleep(3400)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        assert await committed(lab) == 3
        await asyncio.sleep(900)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 6
        assert await committed(lab) == -1

    simulate(scenario, segment_ms="500")


def test_a_clock_that_is_put_right_in_that_hour_has_deleted_nothing() -> None:
    async def scenario(lab: Lab) -> None:
        assert await lab.produce() is ErrorCode.none
        await restart(lab, "cut_power", ahead_ms=30 * DAY_MS)
        await asyncio.sleep(1800)
        lab.node.machine.wall_jump_ms = 0
        await asyncio.sleep(2000)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0

    simulate(scenario, segment_ms="500")


def test_a_node_that_crashes_again_and_again_is_not_persuaded_by_a_wrong_clock() -> None:
    async def scenario(lab: Lab) -> None:
        assert await lab.produce() is ErrorCode.none
        for _ in range(3):
            await restart(lab, "kill", ahead_ms=30 * DAY_MS)
            await asyncio.sleep(1800)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0

    simulate(scenario, segment_ms="500")


def test_what_became_too_old_while_a_node_was_down_goes_after_an_hour_at_the_latest() -> None:
    """The time that it was down cannot be told from a clock that is wrong."""

    async def scenario(lab: Lab) -> None:
        assert await lab.produce() is ErrorCode.none
        await restart(lab, "stop_cleanly", ahead_ms=DAY_MS)  # to the node it is as if it had been down
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        await asyncio.sleep(3700)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 2

    simulate(scenario, segment_ms="500", retention_ms=str(DAY_MS // 2))


def test_a_folder_of_an_earlier_release_takes_the_clock_as_it_is() -> None:
    async def scenario(lab: Lab) -> None:
        assert await lab.produce() is ErrorCode.none
        lab.node.machine.files.unlink(DATA_DIRECTORY / CLOCK_FILE)
        await restart(lab, "kill", ahead_ms=30 * DAY_MS)
        await asyncio.sleep(60)
        await lab.connect()
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 2

    simulate(scenario, segment_ms="500")


async def restart(lab: Lab, end: str, *, ahead_ms: int) -> None:
    """With a clock that is wrong by so much."""
    getattr(lab.node, end)()
    lab.node.machine.wall_jump_ms = ahead_ms
    await asyncio.sleep(5)  # it has ended
    await lab.node.wait_until_serving()
    await lab.connect()


async def commit(lab: Lab, offset: int) -> None:
    """As a consumer without a group's assignment."""
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    topics = [{"name": "topic", "partitions": partitions}]
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    await lab.connection.call(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, version=3)
    while True:
        reply = await lab.connection.call(ApiKey.OFFSET_COMMIT, fields, version=7)
        if reply.topics[0].partitions[0].error_code is ErrorCode.none:
            return
        await asyncio.sleep(0.5)


async def committed(lab: Lab) -> int:
    topics = [{"name": "topic", "partition_indexes": [0]}]
    fields = {"group_id": "g", "topics": topics}
    while True:
        reply = await lab.connection.call(ApiKey.OFFSET_FETCH, fields, version=5)
        if reply.error_code is ErrorCode.none:
            offset: int = reply.topics[0].partitions[0].committed_offset
            return offset
        await asyncio.sleep(0.5)


def test_retention_by_time_works_while_no_clock_jumps() -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(10):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.5)
        await asyncio.sleep(30)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) > 0

    simulate(scenario, segment_ms="500", retention_ms="3000")
