# SPDX-License-Identifier: Apache-2.0
"""Live documents for many viewers: one channel for each view and its parameters, encoded once for all.

A channel keeps its newest frame only. A viewer takes it when its connection has room, so a slow one misses
documents and never delays or grows anything. Read next: event_stream.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from headrace.console.views.view import Document
from headrace.console.web.answers import error_document, json_bytes
from headrace.console.web.live_source import LiveSource
from headrace.errors import HeadraceError

RETRY_S = 2.0
"""How long after an error the view is tried again."""

log = logging.getLogger("headrace.console")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a viewer asks for. The past plays for one viewer alone, unless it stands still."""

    name: str
    params: Mapping[str, str]
    at_ms: int | None = None
    speed: float = 1.0

    @property
    def key(self) -> Hashable:
        """Equal for viewers of the same documents; None when they are not shared."""
        if self.at_ms is not None and self.speed > 0:
            return None
        return (self.name, tuple(sorted(self.params.items())), self.at_ms)


@dataclass(frozen=True, slots=True)
class Frame:
    number: int
    data: bytes


def event_frame(event: str, document: Document, number: int | None = None) -> bytes:
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %b\ndata: %b\n\n" % (event.encode("ascii"), json_bytes(document))


class Channel:
    """The newest document of one view, for its viewers. `closed`: no newer one will come."""

    def __init__(self, source: LiveSource, wanted: Wanted) -> None:
        self.wanted = wanted
        self.viewers = 0
        self.closed = False
        self._source = source
        self._frame = Frame(0, b"")
        self._problem: Document | None = None
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def next(self, after: int, timeout_s: float) -> Frame | None:
        """The newest frame when there is one after that number; None when none came in time."""
        if self._frame.number <= after and not self.closed:
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await changed.wait()
        return self._frame if self._frame.number > after else None

    async def close(self) -> None:
        self.closed = True
        self._wake()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._publish_all()
                self.closed = True
                self._wake()
                return
            except HeadraceError as error:
                self._publish_problem(error_document(error))
            except Exception:
                log.exception("the view %r failed", self.wanted.name)
                self._publish_problem({"error": "this view failed: a bug", "next": "see the console's log"})
            await asyncio.sleep(RETRY_S)

    async def _publish_all(self) -> None:
        async with aclosing(self._documents()) as documents:  # type: ignore[type-var]
            async for document in documents:
                self._problem = None
                self._publish("view", document)

    def _documents(self) -> AsyncIterator[Document]:
        wanted = self.wanted
        if wanted.at_ms is None:
            return self._source.subscribe(wanted.name, wanted.params)
        return self._source.play(wanted.name, wanted.params, wanted.at_ms, wanted.speed)

    def _publish_problem(self, problem: Document) -> None:
        if problem != self._problem:
            self._problem = problem
            self._publish("problem", problem)

    def _publish(self, event: str, document: Document) -> None:
        number = self._frame.number + 1
        self._frame = Frame(number, event_frame(event, document, number))
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Hub:
    """The channels of one principal."""

    def __init__(self, source: LiveSource) -> None:
        self._source = source
        self._shared: dict[Hashable, Channel] = {}
        self._channels: set[Channel] = set()

    def join(self, wanted: Wanted) -> Channel:
        """`leave` it once for each call."""
        key = wanted.key
        channel = self._shared.get(key) if key is not None else None
        if channel is None:
            channel = Channel(self._source, wanted)
            self._channels.add(channel)
            if key is not None:
                self._shared[key] = channel
        channel.viewers += 1
        return channel

    async def leave(self, channel: Channel) -> None:
        channel.viewers -= 1
        if channel.viewers == 0:
            self._channels.discard(channel)
            if channel.wanted.key is not None:
                self._shared.pop(channel.wanted.key, None)
            await channel.close()

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def __len__(self) -> int:
        return len(self._channels)
