# SPDX-License-Identifier: Apache-2.0
"""A test broker that hangs fails its test within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.testing.embedded.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test", longest_call_s=0.2, longest_end_s=0.2)
    yield thread
    if not thread.loop.is_closed():
        thread.end()


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_call_that_does_not_return_is_named_and_cancelled(thread: LoopThread) -> None:
    with pytest.raises(TimeoutError, match=r"not finished never within 0\.2 s"):
        thread.call(never())
    assert thread.call(asyncio.sleep(0, "the next call works")) == "the next call works"


def test_an_error_of_the_call_itself_is_passed_on(thread: LoopThread) -> None:
    async def times_out() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        thread.call(times_out())


def test_a_task_that_does_not_end_is_not_waited_for(thread: LoopThread) -> None:
    released = False

    async def stubborn() -> None:
        while not released:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(stubborn())

    running = thread.call(start())
    with pytest.raises(TimeoutError, match="not ended its tasks"):
        thread.end()
    released = True
    thread._thread.join(10)
    assert running.done()
