# SPDX-License-Identifier: Apache-2.0
"""Gets what a tool answers with: a view's document or a part of it, or the answer of a reading endpoint.

The observer begins to look at the cluster with the first question; rates, positions and recorded events are
there some seconds later, so answers wait for them. Knows no protocol. Read next: answers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol

from headrace.console.assistant.answers import Answer
from headrace.console.assistant.catalog import ReadTool
from headrace.console.endpoint import Endpoint
from headrace.console.messages.endpoints import ENDPOINTS
from headrace.console.views.view import Document, Params, Source, ViewError

READING: Mapping[str, Endpoint] = {each.path: each for each in ENDPOINTS if not each.changes}
"""What tools may call; an endpoint that changes the cluster is not among them."""
WATCHED_S = 60.0
"""How long the observer goes on after an answer, so that the next question finds rates and trends."""
WARM_S = 3.0
"""From the first look at the cluster until its events have been read and rates are known."""
OPEN_S = 2.0
"""How long one topic or group is watched for its positions and rates."""


class Reader(Source, Protocol):
    """The observer."""

    async def view(self, name: str, params: Params) -> Document: ...

    def subscribe(self, name: str, params: Params) -> AsyncIterator[Document]: ...


class Asker:
    """For all questions of one assistant."""

    def __init__(self, reader: Reader, *, warm_s: float = WARM_S, open_s: float = OPEN_S) -> None:
        self._reader = reader
        self._warm_s, self._open_s = warm_s, open_s
        self._first_look = self._last_look = float("-inf")

    async def begin(self) -> None:
        """Look at the cluster before anything is asked."""
        self._looks()
        await self._reader.view("cluster", {})

    async def ask(self, tool: ReadTool, arguments: Mapping[str, Any]) -> Answer:
        """ViewError for a wrong argument, or when there is nothing to show."""
        params = tool.params(arguments)
        self._looks()
        document = await (self._call(tool, params) if tool.endpoint else self._view(tool, params))
        self._looks()
        return Answer(
            document={key: document.get(key) for key in tool.only} if tool.only else document,
            listed=tool.listed,
            narrow=tool.narrow,
            without=tool.without,
            longest_text=tool.longest_text,
        )

    def _looks(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._last_look > WATCHED_S:
            self._first_look = now
        self._last_look = now

    async def _call(self, tool: ReadTool, params: Params) -> Document:
        document = await READING[tool.endpoint].handle(self._reader, params, {})
        if not isinstance(document, dict):
            raise ViewError(f"{tool.name} is answered with a file, which no tool shows")
        return document

    async def _view(self, tool: ReadTool, params: Params) -> Document:
        if tool.is_open and "at" not in params:
            return await self._newest(tool.view, params)
        document = await self._reader.view(tool.view, params)
        left_s = self._first_look + self._warm_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            return document
        await asyncio.sleep(left_s)
        return await self._reader.view(tool.view, params)

    async def _newest(self, view: str, params: Params) -> Document:
        """After the page was open for a moment."""
        ends = asyncio.get_running_loop().time() + self._open_s
        found: Document = {}
        documents: Any = self._reader.subscribe(view, params)
        async with aclosing(documents):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(max(ends, self._first_look + self._warm_s)):
                    async for document in documents:
                        found = document
        return found or await self._reader.view(view, params)
