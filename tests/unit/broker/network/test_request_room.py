# SPDX-License-Identifier: Apache-2.0
"""What a large control request is decoded to and answered with counts as memory of requests (S1)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from headrace.broker.metrics import Metrics
from headrace.broker.network.frame_memory import FrameMemory
from headrace.broker.network.request_room import Sender, room_for
from headrace.realworld import RealClock
from headrace.wire.api_key import ApiKey
from headrace.wire.request_bounds import estimated_bytes, max_items

CONFIGS, LIMIT = ApiKey.DESCRIBE_CONFIGS, 100 << 20
FRAME = 100_000


def sender(address: str) -> Sender:
    return cast(Sender, SimpleNamespace(address=address, has_memory_of_its_own=False))


class Bench:
    def __init__(self) -> None:
        self.metrics = Metrics(RealClock())
        loop = asyncio.get_running_loop()
        self.memory = FrameMemory(self.metrics, LIMIT, loop.call_soon, lambda: None)
        self.inside = self.most = 0

    async def request(self, address: str, frame_bytes: int) -> None:
        async with room_for(self.memory, sender(address), CONFIGS, frame_bytes):
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.01)
            self.inside -= 1


def test_large_requests_wait_for_each_other_where_memory_is_short() -> None:
    async def scenario() -> None:
        bench = Bench()
        await asyncio.gather(*(bench.request(f"10.0.0.{n % 5}", FRAME) for n in range(20)))
        room = estimated_bytes(CONFIGS, FRAME)
        assert 1 <= bench.most <= LIMIT // room + 1
        assert bench.metrics.frames_bytes == 0
        assert not bench.memory.short

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_no_memory_held_and_nobody_waiting() -> None:
    async def scenario() -> None:
        bench = Bench()
        tasks = [asyncio.create_task(bench.request("10.0.0.1", FRAME)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks[:9]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not tasks[9].cancelled()
        assert bench.metrics.frames_bytes == 0
        assert not bench.memory.short

    asyncio.run(scenario())


def test_small_requests_are_not_counted() -> None:
    async def scenario() -> None:
        bench = Bench()
        async with room_for(bench.memory, sender("10.0.0.1"), CONFIGS, 500):
            assert bench.metrics.frames_bytes == 0

    asyncio.run(scenario())


def test_an_estimate_never_exceeds_what_the_bound_of_items_allows() -> None:
    assert estimated_bytes(CONFIGS, 100 << 20) == (100 << 20) + max_items(CONFIGS) * 4_500
