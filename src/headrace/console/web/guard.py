# SPDX-License-Identifier: Apache-2.0
"""The outermost layer of the application: Host and Origin checks, security headers, errors, log of requests.

Only method, path, status and time of a request are logged: queries and bodies may hold keys and passwords.
Read next: hosts.py, app.py.
"""

from __future__ import annotations

import asyncio
import logging
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.web.answers import Refused, error_answer, error_document, json_answer
from headrace.console.web.hosts import OwnAddresses
from headrace.errors import HeadraceError

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
]
_FETCHED_FROM = ("same-origin", "none")
_LONGEST_LOGGED = 200
_BUG = {"error": "the console failed: a bug", "next": "see the console's log"}

log = logging.getLogger("headrace.console")
requests_log = logging.getLogger("headrace.console.requests")


class Guard:
    def __init__(self, app: ASGIApp, addresses: OwnAddresses) -> None:
        self._app = app
        self._addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = _Answer(send, closes=scope["method"] not in ("GET", "HEAD"))
        started = time.monotonic()
        try:
            self._check(Request(scope))
            await self._app(scope, receive, answer.send)
        except asyncio.CancelledError:
            raise
        except HeadraceError as error:
            if answer.status:  # it is left incomplete, which closes the connection
                log.warning("an answer was broken off: %s", printable(error_document(error)["error"]))
            else:
                await error_answer(error)(scope, receive, answer.send)
        except Exception:
            log.exception("a request failed: a bug")
            if not answer.status:
                await json_answer(_BUG, 500)(scope, receive, answer.send)
        finally:
            elapsed_ms = (time.monotonic() - started) * 1000
            path = printable(scope["path"])
            requests_log.debug("%s %s %s %.1f ms", scope["method"], path, answer.status, elapsed_ms)

    def _check(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not self._addresses.is_host(host):
            raise Refused(
                421,
                f"the console is not reached as {printable(host)!r}",
                "use localhost, or start it with --allow-host NAME",
            )
        if not request.url.path.startswith("/api/"):
            return
        origin = request.headers.get("origin")
        if origin is not None and not self._addresses.is_origin(origin, host):
            raise Refused(403, "pages of other origins may not use the console", "open it directly")
        if request.headers.get("sec-fetch-site", "none") not in _FETCHED_FROM:
            raise Refused(403, "pages of other sites may not use the console", "open it directly")


class _Answer:
    """Adds the security headers and remembers the status.

    `closes`: after a refusal the connection is closed, for the rest of the body may still be on its way.
    """

    def __init__(self, send: Send, *, closes: bool) -> None:
        self._send = send
        self._closes = closes
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            closing = [(b"connection", b"close")] if self._closes and self.status >= 400 else []
            message = {**message, "headers": [*message["headers"], *SECURITY_HEADERS, *closing]}
        await self._send(message)


def printable(text: str) -> str:
    """For a log: one line, without control characters, not long (S17)."""
    if len(text) > _LONGEST_LOGGED:
        text = text[:_LONGEST_LOGGED] + "…"
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
