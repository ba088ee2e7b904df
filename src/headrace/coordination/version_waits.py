"""Waiting until this process's picture of the cluster has reached a version. Read next: cluster.py."""

from __future__ import annotations

import asyncio

from headrace.errors import CoordinationError

_CLOSED = "the cluster view was closed"


class VersionWaits:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._ended = False

    async def until(self, version: int) -> None:
        if self._ended:
            raise CoordinationError(_CLOSED)
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
        self._ended = True
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(CoordinationError(_CLOSED))
