# SPDX-License-Identifier: Apache-2.0
"""A source of documents without a cluster: tests say what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.console.state.model import Snapshot
from headrace.console.views.view import Document, ViewError


class FakeSource:
    """Every view is the newest of `show`ed documents; a topic named "none" does not exist."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.document: Document = {"view": "cluster"}
        self.started = False
        self.closed = False
        self.subscriptions = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self._changed = asyncio.Event()

    @property
    def network(self) -> Any:
        raise AssertionError("not used here")

    def now(self) -> Snapshot:
        return Snapshot(at_ms=0, engine="headrace")

    async def at(self, at_ms: int) -> Snapshot:
        return Snapshot(at_ms=at_ms, live=False)

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    async def start(self) -> None:
        self.started = True

    async def close(self) -> None:
        self.closed = True

    def show(self, document: Document) -> None:
        self.document = document
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def view(self, name: str, params: Mapping[str, str]) -> Document:
        self.asked.append((name, dict(params)))
        self._check(params)
        return self.document

    async def subscribe(self, name: str, params: Mapping[str, str]) -> AsyncIterator[Document]:
        self.subscriptions += 1
        try:
            while True:
                self._check(params)
                changed = self._changed
                yield self.document
                await changed.wait()
        finally:
            self.subscriptions -= 1

    async def play(
        self, name: str, params: Mapping[str, str], at_ms: int, speed: float
    ) -> AsyncIterator[Document]:
        yield {"view": name, "at": at_ms, "speed": speed}

    async def search(self, q: str) -> list[Document]:
        return [{"kind": "topic", "name": q, "path": f"/topics/{q}"}]

    @staticmethod
    def _check(params: Mapping[str, str]) -> None:
        if params.get("topic") == "none":
            raise ViewError("topic 'none' does not exist", next_step="choose another")
