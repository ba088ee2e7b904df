# SPDX-License-Identifier: Apache-2.0
"""Tasks of the real world: none ends by an error unheard."""

from __future__ import annotations

import asyncio

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
