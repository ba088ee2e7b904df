# SPDX-License-Identifier: Apache-2.0
"""The console's model of one cluster as one principal may see it: views of now, live views, and the past.

One for each principal, shared by all its viewers. It asks the brokers only while somebody watches.
Read next: pollers.py (what is asked), feed.py (how viewers share), past.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.network_client import NetworkClient
from headrace.client.tools.lag_samples import timestamps_at
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.budget import REQUESTS_PER_S, RequestBudget
from headrace.console.observing.current import Current
from headrace.console.observing.feed import Feed
from headrace.console.observing.past import Past
from headrace.console.observing.pollers import STOP_AFTER_S, Pollers
from headrace.console.state.model import Snapshot
from headrace.console.views.cluster.search import search
from headrace.console.views.registry import find_view
from headrace.console.views.view import Document, Interest, Params, View, ViewError
from headrace.types import TopicPartition

T = TypeVar("T")

_NOTHING = Interest()
_THREADS = 4
_TIMEOUT_MS = 5_000
_FIRST_ANSWER_S = 8.0
_SHORTEST_S = 0.1
"""A view is made at most ten times a second,"""
_COST = 5
"""and a large one for at most a fifth of the time."""
_FRAME_S = 0.2
"""Between two documents of a moment that is played."""


class Observer:
    """A `Source` for views. `start` it, and `close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        requests_per_s: float = REQUESTS_PER_S,
        stop_after_s: float = STOP_AFTER_S,
    ) -> None:
        self._cluster = cluster
        self._requests_per_s = requests_per_s
        self._stop_after_s = stop_after_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console tools")
        self._feeds: dict[tuple[str, frozenset[tuple[str, str]]], Feed] = {}
        self._wanted: Counter[tuple[str, str]] = Counter()
        """Open pages: ("topic" or "group", name)."""
        self._started = False

    async def start(self) -> None:
        """Asks nothing yet; a cluster that cannot be reached is a `problem` of the documents."""
        self._network = NetworkClient(
            self._cluster.bootstrap, security=self._cluster.security.security(), timeout_ms=_TIMEOUT_MS
        )
        calls = BrokerCalls(self._network, RequestBudget(self._requests_per_s), timeout_ms=_TIMEOUT_MS)
        self._current = Current()
        self._past = Past(calls, self._current)
        self._pollers = Pollers(
            calls, self._current, self._interest, self._timestamps, stop_after_s=self._stop_after_s
        )
        self._started = True

    async def close(self) -> None:
        if self._started:
            await self._pollers.close()
            await self._network.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- what views use ------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def network(self) -> NetworkClient:
        return self._network

    def now(self) -> Snapshot:
        return self._current.snapshot

    async def at(self, at_ms: int) -> Snapshot:
        with self._watching():
            await self._pollers.settled(_FIRST_ANSWER_S)
            return await self._past.at(at_ms)

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments, **named))

    # -- what viewers use ----------------------------------------------------------------------------------

    async def view(self, name: str, params: Params) -> Document:
        """Once. With the parameter `at` (milliseconds), as it was then."""
        view = find_view(name)
        params = dict(params)
        at_ms = params.pop("at", None)
        if at_ms is not None:
            return await view.build(self, await self.at(moment(view, at_ms)), params)
        with self._watching(view.interest(params)):
            await self._pollers.settled(_FIRST_ANSWER_S)
            return await view.build(self, self.now(), params)

    async def subscribe(self, name: str, params: Params) -> AsyncGenerator[Document, None]:
        """The view now, and again whenever it may have changed. Raises what building it raises."""
        view = find_view(name)
        key = (name, frozenset(params.items()))
        with self._watching(view.interest(params)):
            await self._pollers.settled(_FIRST_ANSWER_S)
            feed = self._feeds.setdefault(key, self._feed(view, dict(params)))
            try:
                async with aclosing(feed.documents()) as documents:
                    async for document in documents:
                        yield document
            finally:
                if not feed.viewers and self._feeds.get(key) is feed:
                    del self._feeds[key]

    async def play(
        self, name: str, params: Params, at_ms: int, speed: float
    ) -> AsyncGenerator[Document, None]:
        """The view of a moment, and of those after it, `speed` times as fast; 0: of that moment alone."""
        view = find_view(name)
        moment(view, str(at_ms))
        with self._watching():
            await self._pollers.settled(_FIRST_ANSWER_S)
            async with aclosing(self._past.play(at_ms, speed, _FRAME_S)) as snapshots:
                async for snapshot in snapshots:
                    yield await view.build(self, snapshot, params)

    async def search(self, q: str) -> list[Document]:
        """Topics, groups and nodes by a part of their name."""
        with self._watching():
            await self._pollers.settled(_FIRST_ANSWER_S)
            return search(self.now(), q)

    # -- private -------------------------------------------------------------------------------------------

    @contextmanager
    def _watching(self, interest: Interest = _NOTHING) -> Iterator[None]:
        wanted = [("topic", name) for name in interest.topics] + [("group", name) for name in interest.groups]
        self._wanted.update(wanted)
        self._pollers.join()
        try:
            yield
        finally:
            self._pollers.leave()
            self._wanted.subtract(wanted)
            self._wanted += Counter()  # drops those that nobody watches any more

    def _interest(self) -> Interest:
        return Interest(
            topics=frozenset(name for kind, name in self._wanted if kind == "topic"),
            groups=frozenset(name for kind, name in self._wanted if kind == "group"),
        )

    def _feed(self, view: View, params: Params) -> Feed:
        loop = asyncio.get_running_loop()
        built, cost_s = 0, 0.0

        async def build() -> Document:
            nonlocal built, cost_s
            built, started = self._current.version, loop.time()
            document = await view.build(self, self.now(), params)
            cost_s = loop.time() - started
            return document

        async def wait() -> None:
            if view.refresh_s is not None:
                await asyncio.sleep(view.refresh_s)
                return
            started = loop.time()
            await self._current.changed_since(built)
            shortest = max(_SHORTEST_S, _COST * cost_s)
            await asyncio.sleep(max(0.0, shortest - (loop.time() - started)))

        return Feed(build, wait)

    async def _timestamps(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return await self.run(timestamps_at, self._cluster, offsets)


def moment(view: View, at_ms: str) -> int:
    if not view.history:
        raise ViewError(f"the view {view.name!r} shows no past", next_step="leave `at` out", status=400)
    try:
        return int(at_ms)
    except ValueError:
        raise ViewError(
            f"{at_ms!r} is no moment", next_step="give milliseconds since 1970", status=400
        ) from None
