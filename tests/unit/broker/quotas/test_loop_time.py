# SPDX-License-Identifier: Apache-2.0
"""The time of the event loop is charged to the client it worked for, also when requests overlap."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.quotas.loop_time import LoopTime, Slice, measured

ALICE, BOB = ("alice", "app"), ("bob", "app")


def test_time_within_another_request_belongs_to_that_one() -> None:
    loop_time = LoopTime()
    assert loop_time.begin(ALICE, 1.0) is None
    before = loop_time.begin(BOB, 3.0)
    assert before == Slice(ALICE, 2.0)
    assert loop_time.taken(ALICE, 3.5) == 0.0
    assert loop_time.taken(BOB, 4.0) == 1.0
    assert loop_time.end(before, 4.5) == Slice(BOB, 0.5)
    assert loop_time.owner == ALICE
    assert loop_time.end(None, 5.0) == Slice(ALICE, 0.5)
    assert loop_time.owner is None
    assert loop_time.end(None, 9.0) is None


def test_each_step_of_a_task_is_measured_and_its_result_kept() -> None:
    calls: list[str] = []

    async def work() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return "done"

    def begin() -> None:
        calls.append("begin")

    def end(before: Slice | None) -> None:
        calls.append("end")

    assert asyncio.run(measured(work(), begin=begin, end=end)) == "done"
    assert calls == ["begin", "end"] * 3


def test_errors_and_cancellation_reach_the_task() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("disk")

    async def main() -> None:
        task = asyncio.create_task(measured(work(), begin=lambda: None, end=lambda before: None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OSError, match="disk"):
            await measured(fail(), begin=lambda: None, end=lambda before: None)

    asyncio.run(main())
    assert seen == ["cancelled"]
