# SPDX-License-Identifier: Apache-2.0
"""Metadata of the subscribed topics, by names and patterns, refreshed periodically.

Finds new topics, new partitions and moved leaders. Read next: ../network_client.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import Backoff, retry

Topics = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""A name, a compiled pattern that whole names must match, or several of either."""


def as_list(topics: Topics) -> list[str | re.Pattern[str]]:
    return [topics] if isinstance(topics, str | re.Pattern) else list(topics)


class TopicWatch:
    """`open`, then `run` in a task; `views` is the last metadata received."""

    def __init__(self, client: NetworkClient, topics: Topics, *, refresh_ms: int, timeout_ms: int) -> None:
        given = as_list(topics)
        self._named = [topic for topic in given if isinstance(topic, str)]
        self._patterns = [topic for topic in given if isinstance(topic, re.Pattern)]
        if not given or len(self._named) + len(self._patterns) < len(given):
            raise ClientError(
                f"{topics!r} names no topic",
                next_step='give a name, a list of names, or a pattern like re.compile("orders-.*")',
            )
        self._client = client
        self._refresh_s = refresh_ms / 1000
        self._timeout_ms = timeout_ms
        self._also: frozenset[str] = frozenset()
        self._refreshing: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self.views: dict[str, TopicView] = {}

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Topics subscribed by name, whether they exist or not, and those that match a pattern."""
        matching = [name for name in self.views if any(pattern.fullmatch(name) for pattern in self._patterns)]
        return tuple(sorted({*self._named, *matching}))

    def counts(self, names: Iterable[str]) -> dict[str, int]:
        return {name: len(self.views[name].leaders) for name in names if name in self.views}

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, view in self.views.items() if view.topic_id == topic_id), None)

    def also(self, names: Collection[str]) -> None:
        """Watch these topics too: other members of the group subscribe to them."""
        self._also = frozenset(names)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is called whenever topics, partitions or leaders changed."""
        self._listeners.append(listener)

    async def open(self) -> None:
        """The first refresh. NoSuchTopic when a topic subscribed by name does not exist."""
        for name in self._named:
            self.views[name] = await self._client.find(name)
        await self._refresh_once()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            await self.refresh()

    async def refresh(self) -> None:
        """Refreshes the metadata. Concurrent callers share one refresh."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_with_retries())
        await asyncio.shield(self._refreshing)

    async def _refresh_with_retries(self) -> None:
        await retry(self._refresh_once, Backoff(self._timeout_ms).wait)

    async def _refresh_once(self) -> None:
        wanted = None if self._patterns else sorted({*self._named, *self._also})
        views = await self._client.topics(wanted)
        if wanted is None and (internal := [name for name in self._named if name not in views]):
            views |= await self._client.topics(internal)
        if views != self.views:
            self.views = views
            for listener in self._listeners:
                listener()

    def missing(self, name: str) -> NoSuchTopic:
        return NoSuchTopic(
            f"topic {name!r} does not exist any more",
            next_step="list them: headrace topics list",
            code="UNKNOWN_TOPIC_OR_PART",
        )
