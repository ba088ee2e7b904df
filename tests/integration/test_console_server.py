# SPDX-License-Identifier: Apache-2.0
"""The console's server on real sockets: slow peers are cut off, viewers share bytes, TLS, and a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.console.endpoint import Download, Endpoint
from headrace.console.views.registry import VIEWS
from headrace.console.web import bodies, protocol, server
from headrace.console.web.app import ConsoleApp
from headrace.console.web.server import ConsoleServer, open_socket
from headrace.console.web.settings import WebSettings
from tests.harness.console.command import Visitor
from tests.harness.console.fake_source import FakeSource
from tests.harness.live.certificates import Authority

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _views(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any = object()
    monkeypatch.setitem(VIEWS, "cluster", view)


class Served:
    def __init__(self, settings: WebSettings, sources: list[FakeSource]) -> None:
        self.settings = settings
        self.sources = sources
        self.visitor = Visitor(f"{settings.scheme}://127.0.0.1:{settings.port}")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.settings.port)

    async def request(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(text.replace("\n", "\r\n").encode())
        return reader, writer


ENDED: list[str] = []


async def _endless(source: Any, params: Any, body: Any) -> Download:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 16)
        finally:
            ENDED.append("endless")

    return Download(name="endless", media_type="application/octet-stream", chunks=chunks())


async def _echo(source: Any, params: Any, body: Any) -> Any:
    return dict(body)


ENDPOINTS = (
    Endpoint(method="GET", path="/endless", handle=_endless),
    Endpoint(method="POST", path="/change", handle=_echo),
)


@contextlib.asynccontextmanager
async def serving(**given: Any) -> AsyncIterator[Served]:
    settings = WebSettings(cluster=Cluster(bootstrap="127.0.0.1:9092"), port=0, **given)
    sources: list[FakeSource] = []

    def observe(cluster: Cluster) -> Any:
        sources.append(FakeSource(cluster))
        return sources[-1]

    with open_socket(settings) as sock:
        settings = replace(settings, port=sock.getsockname()[1])
        running = ConsoleServer(settings, ConsoleApp(settings, observe=observe, endpoints=ENDPOINTS), sock)
        ready = asyncio.Event()
        task = asyncio.ensure_future(running.run(ready.set))
        await asyncio.wait_for(ready.wait(), WAIT_S)
        try:
            yield Served(settings, sources)
        finally:
            running.stop()
            await asyncio.wait_for(task, WAIT_S)


async def _ends(reader: asyncio.StreamReader) -> bytes:
    """What came until the server closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.wait_for(reader.read(), WAIT_S)
    return b""


@pytest.mark.parametrize("sent", ["", "GET / HTTP/1.1\nHost: local"])
def test_headers_that_do_not_come_end_the_connection(monkeypatch: pytest.MonkeyPatch, sent: str) -> None:
    monkeypatch.setattr(protocol, "HEADERS_S", 0.3)

    async def body() -> None:
        async with serving() as console:
            reader, writer = await console.request(sent)
            assert await _ends(reader) == b""
            writer.close()

    asyncio.run(body())


def test_headers_byte_by_byte_do_not_move_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADERS_S", 0.5)

    async def body() -> None:
        async with serving() as console:
            reader, writer = await console.request("GET / HTTP/1.1\nHost: localhost\n\n")
            await reader.readuntil(b"</html>")
            trickle = asyncio.ensure_future(_trickle(writer, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000))
            assert (await _ends(reader)).strip() == b""
            trickle.cancel()
            await asyncio.gather(trickle, return_exceptions=True)
            writer.close()

    asyncio.run(body())


async def _trickle(writer: asyncio.StreamWriter, data: bytes) -> None:
    for number in range(len(data)):
        writer.write(data[number : number + 1])
        await writer.drain()
        await asyncio.sleep(0.05)


def test_a_body_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DEADLINE_S", 0.5)

    async def body() -> None:
        async with serving() as console:
            session = await asyncio.to_thread(console.visitor.session)
            reader, writer = await console.request(
                "POST /api/change HTTP/1.1\nHost: localhost\nContent-Length: 100000\n"
                f"Content-Type: application/json\nX-CSRF-Token: {session['csrf']}\n\n"
            )
            trickle = asyncio.ensure_future(_trickle(writer, b"x" * 100_000))
            answer = await asyncio.wait_for(reader.readuntil(b"did not arrive within 0.5 s"), WAIT_S)
            assert answer.startswith(b"HTTP/1.1 408 ")
            trickle.cancel()
            await asyncio.gather(trickle, return_exceptions=True)
            writer.close()

    asyncio.run(body())


def test_a_body_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with serving() as console:
            session = await asyncio.to_thread(console.visitor.session)
            reader, writer = await console.request(
                "POST /api/change HTTP/1.1\nHost: localhost\nContent-Length: 99999999\n"
                f"Content-Type: application/json\nX-CSRF-Token: {session['csrf']}\n\n"
            )
            assert (await _ends(reader)).startswith(b"HTTP/1.1 413 ")
            writer.close()

    asyncio.run(body())


def test_a_viewer_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALLED_S", 0.3)
    ENDED.clear()

    async def body() -> None:
        async with serving() as console:
            with socket.create_connection(("127.0.0.1", console.settings.port)) as peer:
                peer.setblocking(False)
                loop = asyncio.get_running_loop()
                request = b"GET /api/endless HTTP/1.1\r\nHost: localhost\r\n\r\n"
                await loop.sock_sendall(peer, request)
                await _until(lambda: ENDED == ["endless"])

    asyncio.run(body())


def test_two_viewers_read_the_same_bytes_and_free_what_they_used() -> None:
    async def body() -> None:
        async with serving() as console:
            with contextlib.ExitStack() as stack:
                viewers = [
                    stack.enter_context(await asyncio.to_thread(console.visitor.live, "/api/live/cluster"))
                    for _ in range(2)
                ]
                first = [await asyncio.to_thread(viewer.event) for viewer in viewers]
                console.sources[0].show({"view": "cluster", "name": "\u2028</script>"})
                second = [await asyncio.to_thread(viewer.event) for viewer in viewers]
                assert first[0] == first[1]
                assert second[0] == second[1] != first[0]
                assert console.sources[0].subscriptions == 1
            await _until(lambda: console.sources[0].subscriptions == 0)

    asyncio.run(body())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_it_ends_at_once_with_a_viewer_and_half_a_request_open() -> None:
    async def body() -> None:
        async with serving() as console:
            viewer = await asyncio.to_thread(console.visitor.live, "/api/live/cluster")
            await asyncio.to_thread(viewer.event)
            _, writer = await console.request("GET / HTTP/1.1\nHo")
            before = asyncio.get_running_loop().time()
        assert console.sources[0].closed
        assert asyncio.get_running_loop().time() - before < 20
        with viewer:
            pass
        writer.close()

    asyncio.run(body())


def test_https_with_a_certificate_that_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOOK_AT_FILES_S", 0.1)
    authority, next_authority = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    certificate = tmp_path / "console.pem"
    certificate.write_bytes(authority.issue("console").read_bytes())

    def is_trusted(visitor: Visitor) -> bool:
        try:
            return visitor.get("/api/session").status == 200
        except ssl.SSLCertVerificationError:
            return False

    async def body() -> None:
        async with serving(certificate=certificate) as console:
            url = f"https://127.0.0.1:{console.settings.port}"
            old, new = (Visitor(url, each.client_context()) for each in (authority, next_authority))
            assert await asyncio.to_thread(is_trusted, old)
            assert not await asyncio.to_thread(is_trusted, new)
            with pytest.raises(OSError, match=r".*"):
                await asyncio.to_thread(Visitor(f"http://127.0.0.1:{console.settings.port}").get, "/")
            certificate.write_text("not PEM yet")
            await asyncio.sleep(0.5)
            assert await asyncio.to_thread(is_trusted, old)
            certificate.write_bytes(next_authority.issue("console").read_bytes())
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(is_trusted, new):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    asyncio.run(body())
