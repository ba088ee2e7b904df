# SPDX-License-Identifier: Apache-2.0
"""Live documents: same bytes for all viewers, slow viewers, limits, feeds, downloads, and hostile names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.console.endpoint import Download, Endpoint, Feed
from headrace.console.web import api, event_stream
from tests.harness.console.asgi_client import Exchange, ask
from tests.harness.console.web_app import running

HOSTILE = '</script><img src=x onerror=alert(1)>\u2028\x1b[2J\ud800"\n\nevent: view\ndata: {}'


def test_two_viewers_get_the_same_bytes_of_one_subscription(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            viewers = [Exchange(console.app, "GET", "/api/live/topic?topic=a&x=1")]
            await viewers[0].until(b"id: 1\nevent: view\n")
            viewers.append(Exchange(console.app, "GET", "/api/live/topic?x=1&topic=a"))
            for viewer in viewers:
                await viewer.until(b"id: 1\nevent: view\n")
            console.source.show({"view": "topic", "number": 2})
            first, second = [await viewer.until(b'"number":2}\n\n') for viewer in viewers]
            assert first == second
            assert console.source.subscriptions == 1
            assert viewers[0].headers["content-type"].startswith("text/event-stream")
            for viewer in viewers:
                viewer.leave()
                await viewer.whole()
            assert console.source.subscriptions == 0

    asyncio.run(body())


def test_a_slow_viewer_misses_documents_and_delays_nobody(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            slow, quick = (Exchange(console.app, "GET", "/api/live/cluster") for _ in range(2))
            await slow.until(b"id: 1\n")
            slow.room.clear()
            for number in range(2, 50):
                console.source.show({"view": "cluster", "number": number})
                await quick.until(b'"number":%d}' % number)
            slow.room.set()
            await slow.until(b'"number":49}')
            assert slow.data.count(b"event: view") <= 3
            assert quick.data.count(b"event: view") == 49

    asyncio.run(body())


def test_a_quiet_stream_says_that_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream.view_frames, "__kwdefaults__", {"comment_s": 0.01})

    async def body() -> None:
        async with running(tmp_path) as console:
            viewer = Exchange(console.app, "GET", "/api/live/cluster")
            await viewer.until(b"\n\n: still here\n\n: still here\n\n")

    asyncio.run(body())


def test_a_missing_topic_is_told_as_a_problem_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.console.web.hub.RETRY_S", 0.01)

    async def body() -> None:
        async with running(tmp_path) as console:
            assert (await ask(console.app, "GET", "/api/views/topic?topic=none")).status == 404
            viewer = Exchange(console.app, "GET", "/api/live/topic?topic=none")
            data = await viewer.until(b"event: problem\n")
            assert b'{"error":"topic \'none\' does not exist","next":"choose another"}' in data
            await asyncio.sleep(0.1)
            assert viewer.data.count(b"event: problem") == 1

    asyncio.run(body())


def test_the_past_is_played_and_the_stream_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            viewer = Exchange(console.app, "GET", "/api/live/topic?topic=a&at=5000&speed=4")
            data = (await viewer.whole()).data
            assert json.loads(data.partition(b"data: ")[2]) == {"view": "topic", "at": 5000, "speed": 4.0}
            assert viewer.complete
            for _ in range(2):
                still = Exchange(console.app, "GET", "/api/live/topic?topic=a&at=5000")
                assert (await still.whole()).data.count(b"event: view") == 1
            answer = await ask(console.app, "GET", "/api/views/topic?topic=a&at=5000")
            assert answer.status == 200
            assert console.source.asked[-1] == ("topic", {"topic": "a", "at": "5000"})

    asyncio.run(body())


def test_live_pages_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_VIEWERS", 2)

    async def body() -> None:
        async with running(tmp_path) as console:
            viewers = [Exchange(console.app, "GET", "/api/live/cluster") for _ in range(2)]
            for viewer in viewers:
                await viewer.until(b"event: view")
            assert (await ask(console.app, "GET", "/api/live/cluster")).status == 503
            viewers[0].leave()
            await viewers[0].whole()
            again = Exchange(console.app, "GET", "/api/live/cluster")
            await again.until(b"event: view")

    asyncio.run(body())


def test_stopping_ends_live_pages(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            viewer = Exchange(console.app, "GET", "/api/live/cluster")
            await viewer.until(b"event: view")
            await console.app.stop()
            await viewer.whole()
            assert viewer.complete
            assert console.source.closed

    asyncio.run(body())


def test_hostile_names_stay_inside_their_strings(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            console.source.document = {"view": "cluster", "name": HOSTILE}
            answer = await ask(console.app, "GET", "/api/views/cluster")
            assert answer.headers["content-type"] == "application/json"
            assert answer.data.isascii()
            assert answer.document["name"] == HOSTILE
            viewer = Exchange(console.app, "GET", "/api/live/cluster")
            data = await viewer.until(b"event: view")
            assert data.count(b"\ndata: ") == 1
            assert data.isascii()

    asyncio.run(body())


def _stream_endpoints(closed: list[str]) -> list[Endpoint]:
    async def events() -> AsyncIterator[tuple[str, Any]]:
        try:
            yield "record", {"value": HOSTILE}
            yield "record", {"value": 2}
        finally:
            closed.append("events")

    async def endless() -> AsyncIterator[tuple[str, Any]]:
        try:
            yield "record", {}
            await asyncio.Event().wait()
        finally:
            closed.append("endless")

    async def failing() -> AsyncIterator[Any]:
        raise ClientError("topic 'a' is gone", next_step="choose another")
        yield

    async def feed(source: Any, params: Any, body: Any) -> Feed:
        return Feed(events={"endless": endless, "failing": failing}.get(params["kind"], events)())

    async def chunks() -> AsyncIterator[bytes]:
        yield b"a,b\n"
        yield b"1,2\n"

    async def broken() -> AsyncIterator[bytes]:
        yield b"a,b\n"
        raise ClientError("the broker went away")

    async def download(source: Any, params: Any, body: Any) -> Download:
        made = {"broken": broken, "failing": failing}.get(params["kind"], chunks)()
        return Download(name='../"\n“orders”.csv', media_type="text/csv", chunks=made)

    return [
        Endpoint(method="GET", path="/feed", handle=feed),
        Endpoint(method="GET", path="/download", handle=download),
    ]


def test_a_feed_is_sent_until_it_ends_or_the_viewer_leaves(tmp_path: Path) -> None:
    closed: list[str] = []

    async def body() -> None:
        async with running(tmp_path, endpoints=_stream_endpoints(closed)) as console:
            whole = await ask(console.app, "GET", "/api/feed?kind=events", body_ends=False)
            assert whole.data.count(b"event: record") == 2
            assert whole.data.endswith(b"event: end\ndata: {}\n\n")
            failing = await ask(console.app, "GET", "/api/feed?kind=failing", body_ends=False)
            assert b"topic 'a' is gone" in failing.data
            endless = Exchange(console.app, "GET", "/api/feed?kind=endless")
            await endless.until(b"event: record")
            endless.leave()
            await endless.whole()
            assert closed == ["events", "endless"]

    asyncio.run(body())


def test_a_download_has_a_safe_name_and_a_broken_one_is_not_completed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=_stream_endpoints([])) as console:
            whole = await ask(console.app, "GET", "/api/download?kind=all")
            assert whole.data == b"a,b\n1,2\n"
            assert whole.complete
            disposition = whole.headers["content-disposition"]
            assert disposition.startswith("attachment; filename=\".._orders_.csv\"; filename*=UTF-8''")
            assert disposition.isascii()
            assert disposition.isprintable()
            broken = await ask(console.app, "GET", "/api/download?kind=broken")
            assert not broken.complete
            failing = await ask(console.app, "GET", "/api/download?kind=failing", body_ends=False)
            assert failing.document == {"error": "topic 'a' is gone", "next": "choose another"}

    asyncio.run(body())


def test_search_and_session_without_logins(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            found = (await ask(console.app, "GET", "/api/search?q=ord")).document
            assert found == {"results": [{"kind": "topic", "name": "ord", "path": "/topics/ord"}]}
            session = (await ask(console.app, "GET", "/api/session")).document
            assert not session["login_required"]
            assert session["logged_in"]
            assert session["mechanisms"] == []
            assert "cluster" in session["pages"]
            token = {"x-csrf-token": session["csrf"]}
            assert (await ask(console.app, "POST", "/api/login", headers=token)).status == 404

    asyncio.run(body())
