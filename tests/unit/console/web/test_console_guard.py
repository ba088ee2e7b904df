# SPDX-License-Identifier: Apache-2.0
"""What the console refuses: foreign hosts and origins, missing tokens, changes if read-only, large bodies."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from headrace.console.endpoint import Endpoint
from headrace.console.views.view import ViewError
from headrace.console.web.bodies import MOST_BYTES
from headrace.console.web.guard import CONTENT_SECURITY_POLICY
from tests.harness.console.asgi_client import Exchange, ask, post
from tests.harness.console.web_app import running

SAFE = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


async def _echo(source: Any, params: Any, body: Any) -> Any:
    return {"params": dict(params), "body": dict(body)}


async def _broken(source: Any, params: Any, body: Any) -> Any:
    raise ZeroDivisionError("secret-in-a-message")


async def _refusing(source: Any, params: Any, body: Any) -> Any:
    raise ViewError("topic 'x' has no partition 7", next_step="choose 0 to 3", status=409)


ENDPOINTS = (
    Endpoint(method="POST", path="/change", handle=_echo),
    Endpoint(method="GET", path="/read", handle=_echo),
    Endpoint(method="GET", path="/broken", handle=_broken),
    Endpoint(method="GET", path="/refusing", handle=_refusing),
)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "",
        "localhost@evil",
        "127.0.0.1:x",
        "[::1",
    ],
)
def test_a_foreign_host_is_refused_everywhere(tmp_path: Path, host: str) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            for target in ("/", "/static/app.css", "/api/session"):
                answer = await ask(console.app, "GET", target, headers={"host": host})
                assert answer.status == 421
                assert set(answer.document) == {"error", "next"}

    asyncio.run(body())


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:9000", "127.0.0.1:8080", "[::1]:8080", "streams.example.org"]
)
def test_own_names_on_any_port_are_served(tmp_path: Path, host: str) -> None:
    async def body() -> None:
        async with running(tmp_path, allowed_hosts=("streams.example.org",)) as console:
            assert (await ask(console.app, "GET", "/", headers={"host": host})).status == 200

    asyncio.run(body())


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost:8080"},
        {"origin": "http://localhost:8081"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("target", ["/api/session", "/api/views/cluster", "/api/live/cluster", "/api/read"])
def test_pages_of_other_origins_cannot_read(tmp_path: Path, headers: dict[str, str], target: str) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            assert (await ask(console.app, "GET", target, headers=headers)).status == 403
            token = {"x-csrf-token": await console.csrf()}
            assert (await post(console.app, "/api/change", {}, token | headers)).status == 403

    asyncio.run(body())


def test_the_own_origin_may_read_and_change(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            own = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}
            assert (await ask(console.app, "GET", "/api/read?a=1", headers=own)).document["params"] == {
                "a": "1"
            }
            token = {"x-csrf-token": await console.csrf()}
            answer = await post(console.app, "/api/change", {"x": 1}, token | own)
            assert answer.document["body"] == {"x": 1}

    asyncio.run(body())


@pytest.mark.parametrize("token", [None, "", "wrong", "\xe9"])
def test_a_change_without_the_token_is_refused(tmp_path: Path, token: str | None) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            headers = {} if token is None else {"x-csrf-token": token}
            answer = await post(console.app, "/api/change", {}, headers)
            assert answer.status == 403
            assert "reload" in answer.document["next"]

    asyncio.run(body())


def test_read_only_refuses_every_change(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS, read_only=True) as console:
            answer = await post(console.app, "/api/change", {}, {"x-csrf-token": await console.csrf()})
            assert answer.status == 403
            assert "read-only" in answer.document["error"]
            assert (await ask(console.app, "GET", "/api/read")).status == 200

    asyncio.run(body())


@pytest.mark.parametrize(
    ("headers", "pieces", "status"),
    [
        ({"content-length": str(MOST_BYTES + 1)}, [], 413),
        ({"content-length": "9" * 30}, [], 413),
        ({"content-length": "-1"}, [], 413),
        ({}, [b"x" * (MOST_BYTES // 2)] * 3, 413),
        ({}, [b'{"a": '], 400),
        ({}, [b"[1]"], 400),
        ({}, [b"[" * 100_000], 400),
        ({}, [b'{"a": ' + b"1" * 10_000 + b"}"], 400),
        ({}, [b"\xff\xfe{"], 400),
        ({"content-type": "text/plain"}, [b"{}"], 415),
    ],
)
def test_a_body_that_is_too_large_or_no_json_object_is_refused(
    tmp_path: Path, headers: dict[str, str], pieces: list[bytes], status: int
) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            token = await console.csrf()
            answer = await ask(
                console.app,
                "POST",
                "/api/change",
                headers={"x-csrf-token": token, "content-type": "application/json", **headers},
                body=pieces,
            )
            assert answer.status == status
            assert answer.headers["connection"] == "close"

    asyncio.run(body())


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.console.web.bodies.DEADLINE_S", 0.05)

    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            headers = {"x-csrf-token": await console.csrf(), "content-type": "application/json"}
            slow = Exchange(
                console.app, "POST", "/api/change", headers=headers, body=[b'{"a"'], body_ends=False
            )
            assert (await slow.whole()).status == 408

    asyncio.run(body())


def test_errors_are_documents_without_tracebacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            refused = await ask(console.app, "GET", "/api/refusing")
            assert (refused.status, refused.document) == (
                409,
                {"error": "topic 'x' has no partition 7", "next": "choose 0 to 3"},
            )
            broken = await ask(console.app, "GET", "/api/broken")
            assert broken.status == 500
            assert b"secret-in-a-message" not in broken.data
            assert (await ask(console.app, "GET", "/api/nothing")).status == 404
            assert (await ask(console.app, "DELETE", "/api/read")).status == 405
            assert (await ask(console.app, "POST", "/")).status == 405
            assert (await ask(console.app, "GET", "/api/views/nonsense")).status == 404
            assert (await ask(console.app, "GET", "/api/live/nonsense")).status == 404
            for query in ("at=x", "at=-1", "at=1&speed=nan", "at=1&speed=-1", "at=" + "9" * 30):
                assert (await ask(console.app, "GET", f"/api/live/cluster?{query}")).status == 400
            assert (await ask(console.app, "GET", f"/api/read?a={'x' * 9000}")).status == 400

    asyncio.run(body())
    assert "a bug" in caplog.text


def test_every_answer_has_the_security_headers_and_no_cors(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, endpoints=ENDPOINTS) as console:
            for target in (
                "/",
                "/static/app.css",
                "/static/none",
                "/api/session",
                "/api/none",
                "/api/broken",
            ):
                answer = await ask(console.app, "GET", target, headers={"host": "localhost"})
                assert answer.headers.items() >= SAFE.items()
                assert not [name for name in answer.headers if name.startswith("access-control")]

    asyncio.run(body())


def test_the_log_has_no_queries_and_no_control_characters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            await ask(console.app, "GET", "/topics/%1b%5b31m%0aforged?key=secret-key")

    with caplog.at_level(logging.DEBUG, "headrace.console"):
        asyncio.run(body())
    (line,) = [each.getMessage() for each in caplog.records if "/topics/" in each.getMessage()]
    assert "secret-key" not in caplog.text
    assert line.isprintable()
    assert "\\x1b[31m\\x0aforged" in line
