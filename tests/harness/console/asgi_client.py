# SPDX-License-Identifier: Apache-2.0
"""Asks an ASGI application without a socket, and reads its answer whole or piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

HOST = "localhost:8080"


class Exchange:
    """One request and what came back so far."""

    def __init__(
        self,
        app: Any,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Sequence[bytes] = (),
        body_ends: bool = True,
    ) -> None:
        path, _, query = target.partition("?")
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"host": HOST, **(headers or {})}.items()
            ],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
        }
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.complete = False
        self._requests = [{"type": "http.request", "body": piece, "more_body": True} for piece in body]
        if body_ends:
            self._requests.append({"type": "http.request", "body": b"", "more_body": False})
        self._left = asyncio.Event()
        self._arrived = asyncio.Event()
        self.room = asyncio.Event()
        """Cleared: the viewer takes nothing more."""
        self.room.set()
        self.task = asyncio.ensure_future(app(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._requests:
            return self._requests.pop(0)
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await self.room.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.pieces.append(message.get("body", b""))
            self.complete = not message.get("more_body", False)
        arrived, self._arrived = self._arrived, asyncio.Event()
        arrived.set()

    def leave(self) -> None:
        self._left.set()

    async def whole(self) -> Exchange:
        await asyncio.wait_for(self.task, 30)
        return self

    async def until(self, text: bytes) -> bytes:
        """Everything received, once that text is in it."""
        async with asyncio.timeout(30):
            while text not in self.data:
                await self._arrived.wait()
        return self.data

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def document(self) -> Any:
        return json.loads(self.data)


async def ask(app: Any, method: str, target: str, **options: Any) -> Exchange:
    return await Exchange(app, method, target, **options).whole()


async def post(app: Any, target: str, document: Any, headers: Mapping[str, str]) -> Exchange:
    body = json.dumps(document).encode()
    return await ask(
        app, "POST", target, body=[body], headers={"content-type": "application/json", **headers}
    )
