# SPDX-License-Identifier: Apache-2.0
"""Logins and sessions: what needs one, cookies, expiry, limits, and that no password is logged."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from headrace.console.endpoint import Endpoint
from headrace.console.web import sessions
from tests.harness.console.asgi_client import Exchange, ask, post
from tests.harness.console.web_app import PASSWORD, running


async def _handle(source: Any, params: Any, body: Any) -> Any:
    return {"user": source.cluster.security.login.user}


WHO = Endpoint(method="GET", path="/who", handle=_handle)
CHANGE = Endpoint(method="POST", path="/change", handle=_handle)


@pytest.mark.parametrize("target", ["/api/views/cluster", "/api/live/cluster", "/api/search?q=a", "/api/who"])
def test_without_a_login_nothing_is_shown(tmp_path: Path, target: str) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[WHO, CHANGE]) as console:
            for cookie in ("", "headrace-8080=forged", "headrace-8080=\xff"):
                assert (await ask(console.app, "GET", target, headers={"cookie": cookie})).status == 401
            token = {"x-csrf-token": await console.csrf()}
            assert (await post(console.app, "/api/change", {}, token)).status == 401
            assert console.sources == []

    asyncio.run(body())


def test_before_the_login_the_session_tells_how_to_log_in_and_nothing_else(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            session = (await ask(console.app, "GET", "/api/session")).document
            assert session["login_required"]
            assert not session["logged_in"]
            assert session["mechanisms"] == ["SCRAM-SHA-512"]
            assert (session["user"], session["engine"], session["version"]) == (None, None, None)
            cookie = await console.cookie()
            session = (await ask(console.app, "GET", "/api/session", headers={"cookie": cookie})).document
            assert (session["user"], session["engine"], session["logged_in"]) == ("ann", "headrace", True)

    asyncio.run(body())


def test_every_user_has_an_observer_with_the_own_login(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[WHO]) as console:
            cookies = [await console.cookie(user) for user in ("ann", "bob", "ann")]
            users = [
                (await ask(console.app, "GET", "/api/who", headers={"cookie": each})).document["user"]
                for each in cookies
            ]
            assert users == ["ann", "bob", "ann"]
            assert len(console.sources) == 2

    asyncio.run(body())


@pytest.mark.parametrize("secure", [False, True])
def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(tmp_path: Path, secure: bool) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, behind_tls_proxy=secure) as console:
            answer = await console.log_in(origin=f"{'https' if secure else 'http'}://localhost:8080")
            name, *flags = answer.headers["set-cookie"].split("; ")
            assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(flags)
            assert ("Secure" in flags) is secure
            assert name.startswith("__Host-headrace-8080=" if secure else "headrace-8080=")
            assert len(name.partition("=")[2]) == 43  # 256 bits
            assert answer.headers["cache-control"] == "no-store"
            assert b"__Host" not in answer.data

    asyncio.run(body())


def test_ids_and_tokens_are_new_with_each_login(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[CHANGE]) as console:
            first = await console.cookie()
            token = await console.csrf(first)
            second = await console.cookie()
            assert first != second
            assert token != await console.csrf(second) != await console.csrf()
            wrong = {"cookie": second, "x-csrf-token": token}
            assert (await post(console.app, "/api/change", {}, wrong)).status == 403
            right = {"cookie": first, "x-csrf-token": token}
            assert (await post(console.app, "/api/change", {}, right)).status == 200

    asyncio.run(body())


def test_a_login_needs_the_token_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            login = {"user": "ann", "password": PASSWORD}
            assert (await post(console.app, "/api/login", login, {})).status == 403

    asyncio.run(body())


def test_logout_ends_the_session_and_closes_its_connections(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[WHO]) as console:
            cookie = await console.cookie()
            headers = {"cookie": cookie, "x-csrf-token": await console.csrf(cookie)}
            answer = await post(console.app, "/api/logout", {}, headers)
            assert "Max-Age=0" in answer.headers["set-cookie"]
            assert (await ask(console.app, "GET", "/api/who", headers={"cookie": cookie})).status == 401
            async with asyncio.timeout(10):
                while not console.source.closed:  # noqa: ASYNC110
                    await asyncio.sleep(0)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("steps_s", "live"),
    [
        ([sessions.IDLE_S - 1], True),
        ([sessions.IDLE_S], False),
        ([sessions.IDLE_S - 1] * 24, True),
        ([sessions.IDLE_S - 1] * 25, False),
    ],
)
def test_a_session_ends_when_idle_and_after_twelve_hours(
    tmp_path: Path, steps_s: list[float], live: bool
) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[WHO]) as console:
            headers = {"cookie": await console.cookie()}
            for step_s in steps_s:
                console.time_s += step_s
                last = await ask(console.app, "GET", "/api/who", headers=headers)
            assert last.status == (200 if live else 401)

    asyncio.run(body())


def test_an_open_live_page_keeps_the_session_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            headers = {"cookie": await console.cookie()}
            live = Exchange(console.app, "GET", "/api/live/cluster", headers=headers)
            await live.until(b"event: view")
            for number in range(23):
                console.time_s += 1800
                console.source.show({"view": "cluster", "number": number})
                await live.until(b'"number":%d}' % number)
            console.time_s += 1800
            console.source.show({"view": "cluster", "number": "last"})
            await live.whole()
            assert b"the session has ended" in live.data
            assert b"last" not in live.data

    asyncio.run(body())


def test_failed_logins_are_slowed_down(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            statuses = [(await console.log_in(password="wrong")).status for _ in range(6)]
            assert statuses == [401] * 5 + [429]
            refused = await console.log_in()
            assert refused.status == 429
            assert "try again in" in refused.document["next"]
            assert (await console.log_in("bob")).status == 200
            console.time_s += 11
            assert (await console.log_in()).status == 200

    asyncio.run(body())


def test_attempts_with_many_names_are_slowed_down_by_address(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            for number in range(30):
                assert (await console.log_in(f"user-{number}", "wrong")).status == 401
            assert (await console.log_in("ann")).status == 429

    asyncio.run(body())


def test_a_proxys_visitors_are_told_apart_by_its_last_address(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True, behind_tls_proxy=True) as console:
            for _ in range(5):
                await console.log_in(password="wrong", **{"x-forwarded-for": "9.9.9.9, 10.0.0.1"})
            assert (await console.log_in(**{"x-forwarded-for": "10.0.0.2, 10.0.0.1"})).status == 429
            assert (await console.log_in(**{"x-forwarded-for": "10.0.0.1, 10.0.0.2"})).status == 200

    asyncio.run(body())


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"user": "ann"},
        {"user": "", "password": "x"},
        {"user": ["ann"], "password": "x"},
        {"user": "ann", "password": "x", "mechanism": "OAUTHBEARER"},
        {"user": "ann", "password": "x", "mechanism": ["PLAIN"]},
        {"user": "a" * 2000, "password": "x"},
        {"user": "a\0b", "password": "x"},
    ],
)
def test_what_is_no_login_is_refused_before_a_broker_is_asked(tmp_path: Path, login: dict[str, Any]) -> None:
    async def body() -> None:
        async with running(tmp_path, login=True) as console:
            answer = await post(console.app, "/api/login", login, {"x-csrf-token": await console.csrf()})
            assert answer.status == 400

    asyncio.run(body())


def test_a_user_has_a_limited_number_of_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_OF_ONE_USER", 2)
    monkeypatch.setattr(sessions, "MOST", 3)

    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[WHO]) as console:
            cookies = []
            for _ in range(3):
                cookies.append(await console.cookie())
                console.time_s += 1
            live = [
                (await ask(console.app, "GET", "/api/who", headers={"cookie": each})).status
                for each in cookies
            ]
            assert live == [401, 200, 200]
            assert (await console.log_in("bob")).status == 200
            assert (await console.log_in("cid")).status == 503

    asyncio.run(body())


def test_passwords_ids_and_tokens_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    async def body() -> None:
        async with running(tmp_path, login=True, endpoints=[CHANGE]) as console:
            await console.log_in(password="wrong password", user="mallory\x1b[2J")
            cookie = await console.cookie()
            token = await console.csrf(cookie)
            await post(console.app, "/api/change", {}, {"cookie": cookie, "x-csrf-token": token})
            told.extend((cookie.partition("=")[2], token))

    asyncio.run(body())
    assert "'ann' logged in from 127.0.0.1" in caplog.text
    assert "POST /api/change" in caplog.text
    for secret in (*told, PASSWORD, "wrong password", "\x1b"):
        assert secret not in caplog.text
