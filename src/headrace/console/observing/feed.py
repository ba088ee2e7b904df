# SPDX-License-Identifier: Apache-2.0
"""One view with its parameters, made once for all its viewers; a slow one gets only the newest document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from headrace.console.views.view import Document

Build = Callable[[], Awaitable[Document]]
Wait = Callable[[], Awaitable[None]]


class Feed:
    """`build` makes a document, `wait` returns when it is time for the next. Runs while it has viewers."""

    def __init__(self, build: Build, wait: Wait) -> None:
        self._build = build
        self._wait = wait
        self._document: Document | None = None
        self._failure: Exception | None = None
        self._number = 0
        self._published = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.viewers = 0

    async def documents(self) -> AsyncGenerator[Document]:
        """Raises what building the view raised; a viewer may ask again then."""
        seen = self._number if self._failure is not None else 0
        self.viewers += 1
        if self._task is None or self._task.done():
            self._failure = None
            self._task = asyncio.ensure_future(self._run())
        try:
            while True:
                while self._number <= seen:
                    await self._published.wait()
                seen = self._number
                if self._failure is not None:
                    raise self._failure
                assert self._document is not None
                yield self._document
        finally:
            self.viewers -= 1
            if not self.viewers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        try:
            while True:
                self._publish(await self._build(), None)
                await self._wait()
        except Exception as error:  # noqa: BLE001 - each viewer raises it
            self._publish(None, error)

    def _publish(self, document: Document | None, failure: Exception | None) -> None:
        self._document, self._failure = document, failure
        self._number += 1
        self._published.set()
        self._published = asyncio.Event()
