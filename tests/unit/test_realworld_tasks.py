# SPDX-License-Identifier: Apache-2.0
"""Tasks and threads of the real world: none ends by an error unheard, and none is left behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.realworld import RealTasks


def test_a_failed_task_is_logged_although_it_is_referenced(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> None:
        raise ValueError("not foreseen")

    async def main() -> None:
        kept = RealTasks().spawn(failing(), name="node heartbeat")
        await asyncio.wait({kept})
        await asyncio.sleep(0)
        assert caplog.messages == ["the task 'node heartbeat' failed"]
        (record,) = caplog.records
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], ValueError)

    asyncio.run(main())


def test_a_task_that_was_cancelled_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        task = RealTasks().spawn(asyncio.sleep(60), name="node heartbeat")
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)
        assert caplog.messages == []

    asyncio.run(main())


def test_what_is_computed_runs_beside_the_loop_and_beside_each_other() -> None:
    both = threading.Barrier(2, timeout=30)

    async def main() -> None:
        tasks = RealTasks()
        await asyncio.gather(tasks.compute(both.wait), tasks.compute(both.wait))
        await tasks.close()

    asyncio.run(main())


def test_no_thread_is_left_when_what_is_computed_has_ended() -> None:
    ended: list[int] = []

    async def main() -> None:
        tasks = RealTasks()
        jobs = [asyncio.ensure_future(tasks.compute(ended.append, number)) for number in range(100)]
        await tasks.close()
        await asyncio.wait(jobs)
        # Threads take jobs from the queue while closing cancels those in it: any job may have run.
        assert sorted(ended) == [number for number, job in enumerate(jobs) if not job.cancelled()]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("compute")]

    asyncio.run(main())
