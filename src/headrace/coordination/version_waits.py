"""Waiting until this process's picture of the cluster has reached a version. Read next: cluster.py."""

from __future__ import annotations

import asyncio

from headrace.errors import CoordinationError


class VersionWaits:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def until(self, version: int) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((version, reached))
        await reached

    def reached(self, version: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, waiter in waiting:
            if wanted > version:
                self._waiting.append((wanted, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def end(self) -> None:
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(CoordinationError("the cluster view was closed"))
