# SPDX-License-Identifier: Apache-2.0
"""The World of a broker inside a test: sockets of the system, a disk of its own, time that can be moved.

What runs on threads or in worker processes elsewhere runs at once here: a disk in memory never waits.
Read next: virtual_clock.py, broker.py.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from random import Random, SystemRandom
from typing import Any, TypeVar

from headrace.realworld import RealListener, RealNetwork, RealTasks
from headrace.testing.embedded.client_link import ClientLink
from headrace.testing.embedded.faults import FaultPlan
from headrace.testing.embedded.virtual_clock import VirtualClock
from headrace.world import File, Files, OnSynced, TlsContext

T = TypeVar("T")


class InlineThread:
    def run(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done

    def close(self) -> None:
        pass


class InlineFileSync:
    """Files in memory need no fsync that takes time; who asked is told in the next turn of the loop."""

    def sync(self, file: File, done: OnSynced) -> None:
        failure: OSError | None = None
        try:
            file.fsync()
        except OSError as error:
            failure = error
        asyncio.get_running_loop().call_soon(done, failure, 0.0)


class EmbeddedTasks:
    def __init__(self) -> None:
        self._loop_tasks = RealTasks()
        self._inline = InlineThread()

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self._loop_tasks.spawn(coroutine, name=name)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop_tasks.call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self._loop_tasks.call_later(delay_s, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def thread(self, name: str) -> InlineThread:
        return self._inline

    def file_sync(self, *, threads: int, capacity: int) -> InlineFileSync:
        return InlineFileSync()

    def bulk(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._inline.run(function, *args)

    def compute(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        return self._inline.run(function, *args)

    async def close(self) -> None:
        pass


class EmbeddedNetwork:
    """Sockets of the system; a ClientLink is in front of each connection that the broker accepts."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._sockets = RealNetwork()
        self._links: weakref.WeakSet[ClientLink] = weakref.WeakSet()
        self.server_tls = self._sockets.server_tls
        self.client_tls = self._sockets.client_tls
        self.connect = self._sockets.connect
        self.https_get = self._sockets.https_get

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: Callable[[], TlsContext] | None = None,
    ) -> RealListener:
        if tls is not None:
            return await self._sockets.listen(factory, host, port, tls=tls)
        return await self._sockets.listen(lambda: self._linked(factory()), host, port)

    def _linked(self, inner: asyncio.BaseProtocol) -> ClientLink:
        assert isinstance(inner, asyncio.BufferedProtocol)
        link = ClientLink(inner, self._plan)
        self._links.add(link)
        return link

    def cut_all(self) -> None:
        for link in list(self._links):
            link.cut()


class EmbeddedWorld:
    def __init__(self, clock: VirtualClock, files: Files, plan: FaultPlan) -> None:
        self.clock = clock
        self.random: Random = SystemRandom()
        self.files = files
        self.network = EmbeddedNetwork(plan)
        self.tasks = EmbeddedTasks()
