"""Which topics a reader wants and which of them are there: names and patterns, looked up again and again.

New topics and partitions are found this way, and where partitions are led. Read next: ../arrow/cluster.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from headrace.client.arrow.cluster import LOST, Cluster, NoSuchTopic, Patience, TopicView
from headrace.client.errors import ClientError

Topics = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]
"""A name, a compiled pattern that whole names must match, or several of either."""


def as_list(topics: Topics) -> list[str | re.Pattern[str]]:
    return [topics] if isinstance(topics, str | re.Pattern) else list(topics)


class TopicWatch:
    """`open`, then `run` in a task; `views` is always what was seen last."""

    def __init__(self, cluster: Cluster, topics: Topics, *, refresh_ms: int, timeout_ms: int) -> None:
        given = as_list(topics)
        self._named = [topic for topic in given if isinstance(topic, str)]
        self._patterns = [topic for topic in given if isinstance(topic, re.Pattern)]
        if not given or len(self._named) + len(self._patterns) < len(given):
            raise ClientError(
                f"{topics!r} names no topic",
                next_step='give a name, a list of names, or a pattern like re.compile("orders-.*")',
            )
        self._cluster = cluster
        self._refresh_s = refresh_ms / 1000
        self._timeout_ms = timeout_ms
        self._also: frozenset[str] = frozenset()
        self._looking: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self.views: dict[str, TopicView] = {}

    @property
    def subscribed(self) -> tuple[str, ...]:
        """Named topics whether they are there or not, and those that match a pattern."""
        matching = [name for name in self.views if any(pattern.fullmatch(name) for pattern in self._patterns)]
        return tuple(sorted({*self._named, *matching}))

    def counts(self, names: Iterable[str]) -> dict[str, int]:
        return {name: len(self.views[name].leaders) for name in names if name in self.views}

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, view in self.views.items() if view.topic_id == topic_id), None)

    def also(self, names: Collection[str]) -> None:
        """Look at these too: other members of the group read them."""
        self._also = frozenset(names)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called whenever other topics, partitions or leaders were seen."""
        self._listeners.append(listener)

    async def open(self) -> None:
        """The first look. Says at once when a named topic is not there."""
        for name in self._named:
            self.views[name] = await self._cluster.find(name)
        await self._look_once()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            await self.look()

    async def look(self) -> None:
        """Returns when a look that began now or a moment ago is done. Callers share it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_patiently())
        await asyncio.shield(self._looking)

    async def _look_patiently(self) -> None:
        patience = Patience(self._timeout_ms)
        while True:
            try:
                return await self._look_once()
            except LOST as error:
                await patience.wait(error)

    async def _look_once(self) -> None:
        wanted = None if self._patterns else sorted({*self._named, *self._also})
        views = await self._cluster.topics(wanted)
        if wanted is None and (internal := [name for name in self._named if name not in views]):
            views |= await self._cluster.topics(internal)
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
