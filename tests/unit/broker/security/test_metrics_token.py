# SPDX-License-Identifier: Apache-2.0
"""The token of /metrics in a file: read at the start and again when it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.broker.security.metrics_token import MetricsToken
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.realworld import RealWorld


def _head(token: str) -> bytes:
    return f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}".encode()


def _token(path: Path) -> MetricsToken:
    config = load_config(None, {"headrace.metrics.token.file": str(path)}, None)
    return MetricsToken(RealWorld().files, config)


async def _reload(token: MetricsToken) -> None:
    tasks = RealWorld().tasks
    try:
        await token.reload(tasks.thread("token"))
    finally:
        await tasks.close()


def test_blanks_around_the_token_in_a_file_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  first-token\n")
    assert _token(path).accepts(_head("first-token"))


def test_a_new_token_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    token = _token(path)
    path.write_text("second")
    asyncio.run(_reload(token))
    assert token.accepts(_head("second"))
    assert not token.accepts(_head("first"))


@pytest.mark.parametrize("spoiled", ["", "two words", None])
def test_a_file_that_cannot_be_used_leaves_the_token_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoiled: str | None
) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    token = _token(path)
    path.unlink()
    if spoiled is not None:
        path.write_text(spoiled)
    asyncio.run(_reload(token))
    asyncio.run(_reload(token))
    assert token.accepts(_head("first"))
    assert caplog.text.count("The token read before stays in use") == 1
    assert not (spoiled and spoiled in caplog.text)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("", "it is empty"), ("s3cret w0rds", "only letters, digits")],
)
def test_a_file_without_a_token_stops_the_start_and_is_not_shown(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message) as refused:
        _token(path)
    assert "headrace.metrics.token.file=" in str(refused.value)
    assert not (text and text in str(refused.value))
