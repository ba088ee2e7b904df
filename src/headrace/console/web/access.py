# SPDX-License-Identifier: Apache-2.0
"""Who asks: the session of a request, login, logout and the CSRF token (S15, S16).

Without `--login` all visitors share one session, whose principal is that of the command line.
Read next: logins.py, sessions.py.
"""

from __future__ import annotations

import hmac
import logging
import math
from collections.abc import Callable

from starlette.requests import Request

from headrace.client.security_settings import PasswordLogin
from headrace.console.web.answers import Refused
from headrace.console.web.bodies import read_object
from headrace.console.web.guard import printable
from headrace.console.web.logins import Attempts, Logins
from headrace.console.web.principals import Principals
from headrace.console.web.sessions import LONGEST_S, Session, Sessions, new_token
from headrace.console.web.settings import WebSettings

CSRF_HEADER = "x-csrf-token"

log = logging.getLogger("headrace.console")


class Access:
    def __init__(self, settings: WebSettings, principals: Principals, now: Callable[[], float]) -> None:
        self._settings = settings
        self._principals = principals
        self.sessions = Sessions(now, self._on_end)
        self.logins = Logins(settings.cluster, plain_is_safe=settings.plain_is_safe)
        self._by_user = Attempts(now, at_once=5, every_s=10)
        self._by_address = Attempts(now, at_once=30, every_s=2)
        self._shared: Session | None = None
        self._csrf = new_token()
        """Of visitors who are not logged in."""
        self._cookie = f"{'__Host-' if settings.secure else ''}headrace-{settings.port}"

    async def start(self) -> None:
        if not self._settings.login:
            principal = await self._principals.acquire(None, self._settings.cluster)
            self._shared = Session(user=None, principal=principal)

    def session(self, request: Request) -> Session | None:
        if self._shared is not None:
            return self._shared
        token = request.cookies.get(self._cookie)
        return self.sessions.find(token) if token else None

    def require(self, request: Request) -> Session:
        session = self.session(request)
        if session is None:
            raise Refused(401, "you are not logged in", "log in")
        return session

    def is_live(self, session: Session) -> bool:
        return session is self._shared or self.sessions.is_live(session)

    def csrf(self, session: Session | None) -> str:
        return self._csrf if session is None else session.csrf

    def check_csrf(self, request: Request, session: Session | None) -> None:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(self.csrf(session).encode(), given.encode("utf-8", "replace")):
            raise Refused(
                403,
                "the request does not come from a page of this console, or the session has changed",
                "reload the page",
            )

    async def log_in(self, request: Request) -> tuple[Session, str]:
        """(the new session, the Set-Cookie header of its id)."""
        if not self._settings.login:
            raise Refused(404, "this console asks for no login", "use it as it is")
        before = self.session(request)
        self.check_csrf(request, before)
        login = self.logins.read(await read_object(request))
        session, token = await self._open(login, self._address(request))
        if before is not None:
            self.sessions.end(before)
        return session, self._set_cookie(token, LONGEST_S)

    def log_out(self, request: Request) -> str:
        """The Set-Cookie header that removes the id."""
        session = self.session(request)
        self.check_csrf(request, session)
        if session is not None and session is not self._shared:
            self.sessions.end(session)
        return self._set_cookie("", 0)

    def _set_cookie(self, token: str, seconds: int) -> str:
        secure = "; Secure" if self._settings.secure else ""
        return f"{self._cookie}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"

    async def _open(self, login: PasswordLogin, address: str) -> tuple[Session, str]:
        user_key = f"{address} {login.user}"
        wait_s = max(self._by_user.wait_s(user_key), self._by_address.wait_s(address))
        if wait_s > 0:
            raise Refused(429, "too many failed logins", f"try again in {math.ceil(wait_s)} s")
        try:
            cluster = await self.logins.check(login)
        except Refused as error:
            if error.status == 401:
                self._by_user.failed(user_key)
                self._by_address.failed(address)
                log.warning("a login as %r from %s failed", printable(login.user), address)
            raise
        self._by_user.succeeded(user_key)
        principal = await self._principals.acquire(login, cluster)
        try:
            token, session = self.sessions.open(login.user, principal)
        except Refused:
            self._principals.release(principal)
            raise
        log.info("%r logged in from %s", printable(login.user), address)
        return session, token

    def _address(self, request: Request) -> str:
        """Of the visitor, as the proxy saw it where there is one."""
        if self._settings.behind_tls_proxy:
            forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
            if forwarded:
                return printable(forwarded)
        return request.client.host if request.client else "unknown"

    def _on_end(self, session: Session) -> None:
        log.info("the session of %r ended", printable(session.user or ""))
        self._principals.release(session.principal)
