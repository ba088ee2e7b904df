# SPDX-License-Identifier: Apache-2.0
"""What runs while somebody watches: topology, recorded events, overviews, open pages. Wires them together.

Stops some seconds after the last viewer left, and begins again with the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.current import Current
from headrace.console.observing.lag_samples import LagSampleLog
from headrace.console.observing.open_pages import AgeOf, OpenPages
from headrace.console.observing.overview import Overview
from headrace.console.observing.recorder import Recorder
from headrace.console.observing.topology import Topology
from headrace.console.state.group_folding import Place
from headrace.console.state.rates import Rates
from headrace.console.views.view import Interest
from headrace.types import TopicPartition

log = logging.getLogger(__name__)

STOP_AFTER_S = 10.0
_ENDS_WINDOW_MS = 15_000
_COMMITS_WINDOW_MS = 60_000
_RETRY_S = 2.0


class Pollers:
    def __init__(
        self,
        calls: BrokerCalls,
        current: Current,
        interest: Callable[[], Interest],
        timestamps: AgeOf,
        *,
        stop_after_s: float = STOP_AFTER_S,
    ) -> None:
        ends = Rates[TopicPartition](_ENDS_WINDOW_MS)
        commits = Rates[Place](_COMMITS_WINDOW_MS)
        samples = LagSampleLog(calls)
        self._current = current
        self._stop_after_s = stop_after_s
        self._topology = Topology(calls, current, self._answered)
        self._recorder = Recorder(calls, current, commits, self._changed)
        self._overview = Overview(calls, current, ends, commits, samples, self._topology.ask_soon)
        self._pages = OpenPages(calls, current, ends, commits, samples, interest, timestamps)
        self._task: asyncio.Task[None] | None = None
        self._viewers = 0
        self._left_at = 0.0
        self._settled = asyncio.Event()

    def join(self) -> None:
        """Somebody watches; `leave` it once for each call."""
        self._viewers += 1
        if self._task is None or self._task.done():
            self._settled.clear()
            self._overview.ready.clear()
            self._task = asyncio.ensure_future(self._run())

    def leave(self) -> None:
        self._viewers -= 1
        self._left_at = asyncio.get_running_loop().time()

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def settled(self, timeout_s: float) -> None:
        """Returns when everything was asked for once, when that cannot be, or when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _changed(self, what: str, name: str) -> None:
        if what == "group":
            self._pages.members_changed(name)
        else:
            self._topology.ask_soon()

    def _answered(self, success: bool) -> None:
        if not success:
            self._settled.set()

    async def _run(self) -> None:
        tasks = [
            asyncio.ensure_future(_again_and_again(run))
            for run in (self._topology.run, self._recorder.run, self._overview.run, self._pages.run)
        ]
        tasks.append(asyncio.ensure_future(self._settle()))
        try:
            while not self._idle():  # noqa: ASYNC110 - it is about time
                await asyncio.sleep(min(1.0, self._stop_after_s / 4))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> None:
        await self._overview.ready.wait()
        self._settled.set()

    def _idle(self) -> bool:
        if self._viewers:
            return False
        return asyncio.get_running_loop().time() - self._left_at > self._stop_after_s


async def _again_and_again(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A failure of one poller must not end what the others show."""
    while True:
        try:
            await run()
        except ClientError as error:
            log.debug("a request failed: %s", error)
        except Exception:
            log.exception("a poller failed; it begins again in %s s", _RETRY_S)
        await asyncio.sleep(_RETRY_S)
