# SPDX-License-Identifier: Apache-2.0
"""The console's web application over fake sources, with a clock that tests set."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.security_settings import PasswordLogin
from headrace.console.endpoint import Endpoint
from headrace.console.web.answers import Refused
from headrace.console.web.app import ConsoleApp
from headrace.console.web.settings import WebSettings
from headrace.console.web.static_files import StaticFiles
from tests.harness.console.asgi_client import ask, post
from tests.harness.console.fake_source import FakeSource

CLUSTER = Cluster(bootstrap="127.0.0.1:9092")
PASSWORD = "correct horse"


class Running:
    """An application, its sources by user, and its clock."""

    def __init__(self, settings: WebSettings, folder: Path, endpoints: Iterable[Endpoint]) -> None:
        self.time_s = 1000.0
        self.sources: list[FakeSource] = []
        static = StaticFiles(_files(folder))
        self.app = ConsoleApp(
            settings, observe=self._observe, endpoints=endpoints, static=static, now=lambda: self.time_s
        )
        access: Any = self.app._access
        if settings.login:
            access.logins = FakeLogins(access.logins)

    def _observe(self, cluster: Cluster) -> Any:
        self.sources.append(FakeSource(cluster))
        return self.sources[-1]

    @property
    def source(self) -> FakeSource:
        return self.sources[-1]

    async def csrf(self, cookie: str = "") -> str:
        answer = await ask(self.app, "GET", "/api/session", headers={"cookie": cookie})
        return str(answer.document["csrf"])

    async def log_in(self, user: str = "ann", password: str = PASSWORD, **headers: str) -> Any:
        body = {"user": user, "password": password, "mechanism": "SCRAM-SHA-512"}
        return await post(self.app, "/api/login", body, {"x-csrf-token": await self.csrf(), **headers})

    async def cookie(self, user: str = "ann") -> str:
        """Of a new session."""
        answer = await self.log_in(user)
        assert answer.status == 200, answer.data
        return str(answer.headers["set-cookie"]).partition(";")[0]


class FakeLogins:
    """One password is right for everybody; the rest is the real one's."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.read = real.read

    async def mechanisms(self) -> tuple[str, ...]:
        return ("SCRAM-SHA-512",)

    async def check(self, login: PasswordLogin) -> Any:
        if login.password.reveal() != PASSWORD:
            raise Refused(401, "the login failed", "check user and password")
        return self._real.cluster_for(login)


@contextlib.asynccontextmanager
async def running(
    folder: Path, *, endpoints: Iterable[Endpoint] = (), **settings: Any
) -> AsyncIterator[Running]:
    given = replace(WebSettings(cluster=CLUSTER), **settings)
    started = Running(given, folder, tuple(endpoints))
    await started.app.start()
    try:
        yield started
    finally:
        await started.app.stop()


def _files(folder: Path) -> Path:
    files = {
        "index.html": "<!doctype html><title>Headrace</title>",
        "app.css": "body { margin: 0 }\n" * 200,
        "js/main.js": "// small\n",
        "notes.secret": "not of a known type",
    }
    for name, text in files.items():
        path = folder / "static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "outside.txt").write_text("outside of the folder")
    return folder / "static"
