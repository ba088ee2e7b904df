# SPDX-License-Identifier: Apache-2.0
"""Static files and deep links: only files that were read at the start are served."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

import headrace.console
from headrace.client.errors import ClientError
from headrace.console.web.static_files import StaticFiles
from tests.harness.console.asgi_client import ask
from tests.harness.console.web_app import running

STATIC = Path(headrace.console.__file__).parent / "static"
MOST_BYTES = 300_000


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/topics",
        "/topics/orders.v1/messages",
        "/topics/..%2f..%2fetc%2fpasswd",
        "/topics/%2e%2e/%2e%2e/outside.txt",
        "/../../etc/passwd",
        "/outside.txt",
        "/staticx",
        "/topics/%3Cscript%3E",
    ],
)
def test_every_deep_link_is_the_page(tmp_path: Path, target: str) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            answer = await ask(console.app, "GET", target)
            assert answer.status == 200
            assert answer.data == b"<!doctype html><title>Headrace</title>"
            assert answer.headers["content-type"] == "text/html; charset=utf-8"

    asyncio.run(body())


@pytest.mark.parametrize(
    "target",
    [
        "/static/",
        "/static/none.js",
        "/static/notes.secret",
        "/static/../outside.txt",
        "/static/..%2foutside.txt",
        "/static/%2e%2e/outside.txt",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/js/../../outside.txt",
        "/static/app.css%00.js",
        "/favicon.ico",
        "/api",
    ],
)
def test_other_files_do_not_exist(tmp_path: Path, target: str) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            answer = await ask(console.app, "GET", target)
            assert answer.status == 404
            assert b"outside" not in answer.data

    asyncio.run(body())


def test_all_files_together_are_small() -> None:
    """Unpacked: what one viewer can load, whichever pages are opened."""
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_files_have_types_tags_and_are_packed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as console:
            plain = await ask(console.app, "GET", "/static/app.css")
            assert plain.headers["content-type"] == "text/css; charset=utf-8"
            packed = await ask(console.app, "GET", "/static/app.css", headers={"accept-encoding": "br, gzip"})
            assert packed.headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed.data) == plain.data
            script = await ask(console.app, "GET", "/static/js/main.js", headers={"accept-encoding": "gzip"})
            assert "content-encoding" not in script.headers
            assert script.headers["content-type"] == "text/javascript; charset=utf-8"
            known = {"if-none-match": plain.headers["etag"]}
            again = await ask(console.app, "GET", "/static/app.css", headers=known)
            assert (again.status, again.data) == (304, b"")

    asyncio.run(body())


def test_the_installed_page_is_there() -> None:
    files = StaticFiles()
    assert b"<!doctype html>" in files.index.data
    assert files.get("js/main.js") is not None


def test_a_missing_page_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"index\.html.*install headrace again"):
        StaticFiles(tmp_path)
