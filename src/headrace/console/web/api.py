# SPDX-License-Identifier: Apache-2.0
"""What is below /api: the session, views once and live, search, and the endpoints of messages/ and actions/.

Every request but those of login needs a session; what changes the cluster also needs the CSRF token, and is
refused in read-only mode. Read next: access.py, hub.py, event_stream.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from headrace.console.endpoint import Download, Endpoint, Feed
from headrace.console.views.registry import VIEWS, find_view
from headrace.console.web.access import Access
from headrace.console.web.answers import DownloadAnswer, Refused, json_answer
from headrace.console.web.bodies import read_object, read_parameters
from headrace.console.web.event_stream import EventStream, Frames, feed_frames, view_frames
from headrace.console.web.guard import printable
from headrace.console.web.hub import Wanted
from headrace.console.web.sessions import Session
from headrace.console.web.settings import WebSettings
from headrace.version import __version__

MOST_VIEWERS = 300
MOST_VIEWERS_OF_A_USER = 40
_MOST_AT_ONCE = 32
_ANSWER_S = 60.0
_FASTEST = 10_000.0
_VIEW, _LIVE = "/api/views/", "/api/live/"
_PAGES = {
    "cluster": "cluster",
    "topics": "topics",
    "groups": "groups",
    "pipelines": "pipelines",
    "plan": "plan",
    "clients": "clients",
    "configs": "configs",
    "security": "acls",
    "transactions": "transactions",
}
"""Page to the view that it cannot be without."""

log = logging.getLogger("headrace.console")
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


class Api:
    def __init__(self, settings: WebSettings, access: Access, endpoints: Iterable[Endpoint]) -> None:
        self._settings = settings
        self._access = access
        self._endpoints = {(each.method, f"/api{each.path}"): each for each in endpoints}
        self._own: dict[tuple[str, str], Handler] = {
            ("GET", "/api/session"): self._session,
            ("GET", "/api/search"): self._search,
            ("POST", "/api/login"): self._log_in,
            ("POST", "/api/logout"): self._log_out,
        }
        self._paths = {path for _, path in (*self._own, *self._endpoints)}
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)
        self._viewers = 0

    async def answer(self, request: Request) -> Response:
        method, path = request.method, request.scope["path"]
        if handler := self._own.get((method, path)):
            return await handler(request)
        if endpoint := self._endpoints.get((method, path)):
            return await self._call(request, endpoint)
        if method == "GET" and path.startswith(_VIEW):
            return await self._view(request, path.removeprefix(_VIEW))
        if method == "GET" and path.startswith(_LIVE):
            return self._live(request, path.removeprefix(_LIVE))
        if path in self._paths or path.startswith((_VIEW, _LIVE)):
            raise Refused(405, f"{printable(method)} has no meaning here", "use the other of GET and POST")
        raise Refused(404, f"there is no {printable(path)}", "reload the page")

    # -- the session ---------------------------------------------------------------------------------------

    async def _session(self, request: Request) -> Response:
        return await self._session_document(self._access.session(request))

    async def _session_document(self, session: Session | None) -> Response:
        login = self._settings.login
        return json_answer(
            {
                "user": session.user if session else None,
                "login_required": login,
                "logged_in": session is not None,
                "mechanisms": list(await self._access.logins.mechanisms()) if login else [],
                "read_only": self._settings.read_only,
                "csrf": self._access.csrf(session),
                "engine": session.principal.source.now().engine if session else None,
                "version": __version__ if session else None,
                "pages": [page for page, view in _PAGES.items() if view in VIEWS],
            }
        )

    async def _log_in(self, request: Request) -> Response:
        session, cookie = await self._access.log_in(request)
        answer = await self._session_document(session)
        answer.headers["set-cookie"] = cookie
        return answer

    async def _log_out(self, request: Request) -> Response:
        cookie = self._access.log_out(request)
        answer = await self._session_document(self._access.session(request))
        answer.headers["set-cookie"] = cookie
        return answer

    # -- views ---------------------------------------------------------------------------------------------

    async def _view(self, request: Request, name: str) -> Response:
        session = self._access.require(request)
        find_view(name)
        params = read_parameters(request)
        return json_answer(await self._in_time(session.principal.source.view(name, params)))

    def _live(self, request: Request, name: str) -> Response:
        session = self._access.require(request)
        find_view(name)
        wanted = _wanted(name, read_parameters(request))
        self._check_room(session)
        hub = session.principal.hub
        channel = hub.join(wanted)
        frames = view_frames(channel, lambda: self._access.is_live(session))
        return self._stream(session, frames, lambda: hub.leave(channel))

    async def _search(self, request: Request) -> Response:
        session = self._access.require(request)
        q = read_parameters(request).get("q", "")
        return json_answer({"results": await self._in_time(session.principal.source.search(q))})

    # -- endpoints -----------------------------------------------------------------------------------------

    async def _call(self, request: Request, endpoint: Endpoint) -> Response:
        session = self._access.require(request)
        if endpoint.changes:
            self._check_change(request, session)
        body = await read_object(request) if endpoint.changes else {}
        params = read_parameters(request)
        found = await self._in_time(endpoint.handle(session.principal.source, params, body))
        if isinstance(found, Download):
            return DownloadAnswer(found)
        if isinstance(found, Feed):
            self._check_room(session)
            return self._stream(session, feed_frames(found, lambda: self._access.is_live(session)))
        return json_answer(found)

    def _check_change(self, request: Request, session: Session) -> None:
        self._access.check_csrf(request, session)
        if self._settings.read_only:
            raise Refused(403, "this console is read-only", "use the command line, or another console")
        log.info("%r: %s %s", printable(session.user or "console"), request.method, request.scope["path"])

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(_ANSWER_S), self._at_once:
                return await work
        except TimeoutError:
            raise Refused(504, f"there was no answer within {_ANSWER_S:g} s", "ask for less") from None

    # -- streams -------------------------------------------------------------------------------------------

    def _check_room(self, session: Session) -> None:
        own = MOST_VIEWERS if session.user is None else MOST_VIEWERS_OF_A_USER
        if self._viewers >= MOST_VIEWERS or session.viewers >= own:
            raise Refused(503, "too many live pages are open", "close some, then reload")

    def _stream(
        self, session: Session, frames: Frames, leave: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        self._viewers += 1
        session.viewers += 1

        async def end() -> None:
            self._viewers -= 1
            session.viewers -= 1
            if leave is not None:
                await leave()

        return EventStream(frames, end)


def _wanted(name: str, params: dict[str, str]) -> Wanted:
    at, speed = params.pop("at", None), params.pop("speed", None)
    if at is None:
        return Wanted(name=name, params=params)
    try:
        at_ms, times = int(at), float(speed or 0)
    except ValueError:
        at_ms, times = -1, -1.0
    if at_ms < 0 or len(at) > 15 or not 0 <= times <= _FASTEST:
        raise Refused(
            400, "this moment cannot be shown", f"at: milliseconds since 1970; speed: 0 to {_FASTEST:g}"
        )
    return Wanted(name=name, params=params, at_ms=at_ms, speed=times)
