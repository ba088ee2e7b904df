# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: frames of a live view or of a feed, with a comment every 15 s, until the viewer leaves.

Read next: hub.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headrace.console.endpoint import Feed
from headrace.console.views.view import Document
from headrace.console.web.answers import error_document
from headrace.console.web.hub import Channel, event_frame
from headrace.console.web.while_connected import while_connected
from headrace.errors import HeadraceError

COMMENT_S = 15.0
_COMMENT = b": still here\n\n"
_RETRY = b"retry: 3000\n\n"
_ENDED: Document = {"error": "the session has ended", "next": "log in again"}

Frames = AsyncGenerator[bytes, None]


class EventStream(Response):
    """`on_end` runs once, however the stream ends."""

    def __init__(self, frames: Frames, on_end: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )
        del self.headers["content-length"]
        self._frames = frames
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(self._send(send), receive)
        finally:
            await self._frames.aclose()
            await self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(_body(_RETRY))
        async for frame in self._frames:
            await send(_body(frame))
        await send({"type": "http.response.body", "body": b""})


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def view_frames(
    channel: Channel, is_live: Callable[[], bool], *, comment_s: float = COMMENT_S
) -> Frames:
    """The newest document whenever there is one; ends with the session, and when the past has been played."""
    seen = 0
    while True:
        frame = await channel.next(seen, comment_s)
        if not is_live():
            yield event_frame("problem", _ENDED)
            return
        if frame is not None:
            seen = frame.number
            yield frame.data
        elif channel.closed:
            return
        else:
            yield _COMMENT


async def feed_frames(feed: Feed, is_live: Callable[[], bool], *, comment_s: float = COMMENT_S) -> Frames:
    """All events of the feed, then `end`; it is asked for the next one when the viewer has taken the last."""
    number = 0
    async with aclosing(feed.events) as events:  # type: ignore[type-var]
        upcoming = asyncio.ensure_future(anext(events, None))
        try:
            while is_live():
                done, _ = await asyncio.wait((upcoming,), timeout=comment_s)
                if not done:
                    yield _COMMENT
                    continue
                found = upcoming.result()
                if found is None:
                    yield event_frame("end", {})
                    return
                number += 1
                yield event_frame(*found, number)
                upcoming = asyncio.ensure_future(anext(events, None))
            yield event_frame("problem", _ENDED)
        except HeadraceError as error:
            yield event_frame("problem", error_document(error))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
