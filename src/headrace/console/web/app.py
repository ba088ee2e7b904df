# SPDX-License-Identifier: Apache-2.0
"""The application: which request is answered by what, as docs/design/console.md lists it.

Knows no view and no endpoint by name. Read next: guard.py (what comes before), api.py, access.py, server.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.client.cluster import Cluster
from headrace.console.endpoint import Endpoint
from headrace.console.web.access import Access
from headrace.console.web.answers import Refused
from headrace.console.web.api import Api
from headrace.console.web.guard import Guard
from headrace.console.web.hosts import OwnAddresses
from headrace.console.web.live_source import LiveSource
from headrace.console.web.principals import Principals
from headrace.console.web.settings import WebSettings
from headrace.console.web.static_files import StaticFiles

_API, _STATIC = "/api/", "/static/"
_NO_PAGES = ("/api", "/static", "/favicon.ico", "/robots.txt")
_SWEEP_S = 30.0


class ConsoleApp:
    """An ASGI application. `start` it before the first request, `stop` it before the server ends."""

    def __init__(
        self,
        settings: WebSettings,
        *,
        observe: Callable[[Cluster], LiveSource],
        endpoints: Iterable[Endpoint] = (),
        static: StaticFiles | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._static = static or StaticFiles()
        self._principals = Principals(observe)
        self._access = Access(settings, self._principals, now)
        self._api = Api(settings, self._access, endpoints)
        self._sweeping: asyncio.Task[None] | None = None
        self._guarded = Guard(self._answer, OwnAddresses.of(settings))

    async def start(self) -> None:
        await self._access.start()
        self._sweeping = asyncio.ensure_future(self._sweep())

    async def stop(self) -> None:
        """Ends live pages and closes the connections to the brokers."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._principals.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"]
        if path.startswith(_API):
            response = await self._api.answer(request)
        else:
            response = self._file(request, path)
        await response(scope, receive, send)

    def _file(self, request: Request, path: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, f"{request.method} has no meaning here", "use GET")
        if path in _NO_PAGES:
            raise Refused(404, "there is no such file")
        if not path.startswith(_STATIC):
            return self._static.index.answer(request)
        file = self._static.get(path.removeprefix(_STATIC))
        if file is None:
            raise Refused(404, "there is no such file")
        return file.answer(request)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._access.sessions.end_expired()
