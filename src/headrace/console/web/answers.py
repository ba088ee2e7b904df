# SPDX-License-Identifier: Apache-2.0
"""Answers: JSON documents, errors as `{"error", "next"}`, and files sent while they are made.

Read next: event_stream.py.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.client.connection import ConnectionLost, RequestTimedOut
from headrace.client.errors import ClientError, as_flags
from headrace.console.endpoint import Download
from headrace.console.views.view import ViewError
from headrace.console.web.while_connected import while_connected
from headrace.errors import HeadraceError

JSON = "application/json"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 150
_FORBIDDEN = re.compile(r"AUTHORIZATION_FAILED|SECURITY_DISABLED|POLICY_VIOLATION")


class Refused(HeadraceError):
    """A request that is refused, with the status that says so."""

    def __init__(self, status: int, what: str, next_step: str | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.next_step = next_step


def json_bytes(document: Any) -> bytes:
    """ASCII only: names from strangers may hold any character, and halves of one (S17)."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_answer(document: Any, status: int = 200) -> Response:
    return Response(
        json_bytes(document), status_code=status, media_type=JSON, headers={"cache-control": "no-store"}
    )


def error_answer(error: HeadraceError) -> Response:
    return json_answer(error_document(error), _status(error))


def error_document(error: HeadraceError) -> dict[str, Any]:
    what = getattr(error, "what", None) or str(error)
    return {"error": what, "next": as_flags(getattr(error, "next_step", None))}


def _status(error: HeadraceError) -> int:
    if isinstance(error, ViewError | Refused):
        return error.status
    if isinstance(error, RequestTimedOut):
        return 504
    if isinstance(error, ConnectionLost):
        return 502
    if isinstance(error, ClientError) and _FORBIDDEN.search(error.code or ""):
        return 403
    return 400


class DownloadAnswer(Response):
    """Sends each chunk as soon as it is made; ends without completing the answer when making it fails."""

    def __init__(self, download: Download) -> None:
        super().__init__(
            media_type=download.media_type,
            headers={"content-disposition": _disposition(download.name), "cache-control": "no-store"},
        )
        del self.headers["content-length"]
        self._download = download

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chunks = self._download.chunks
        try:
            first = await anext(chunks, None)  # an error before the first byte still has a status
        except HeadraceError as error:
            await error_answer(error)(scope, receive, send)
            return
        async with aclosing(chunks):  # type: ignore[type-var]
            await while_connected(self._send(first or b"", send), receive)

    async def _send(self, chunk: bytes, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        async for chunk in self._download.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0)  # others get their turn even if making a chunk waits for nothing
        await send({"type": "http.response.body", "body": b""})


def _disposition(name: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "download"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name[:_LONGEST_NAME], safe='')}"
