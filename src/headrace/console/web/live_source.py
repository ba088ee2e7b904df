# SPDX-License-Identifier: Apache-2.0
"""What web/ uses of the observer of a principal (observing/observer.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from headrace.console.views.view import Document, Params, Source


class LiveSource(Source, Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def view(self, name: str, params: Params) -> Document: ...

    def subscribe(self, name: str, params: Params) -> AsyncIterator[Document]: ...

    def play(self, name: str, params: Params, at_ms: int, speed: float) -> AsyncIterator[Document]: ...

    async def search(self, q: str) -> list[Document]: ...
