# SPDX-License-Identifier: Apache-2.0
"""`headrace console` and `headrace up --console` before anything is started: options, and what is refused."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.console import ConsoleOptions, LogLevel, _set_up_logging
from headrace.client.cluster import Cluster
from headrace.client.security_settings import PasswordLogin, SecuritySettings
from headrace.secret import Secret

LOGIN = PasswordLogin(mechanism="PLAIN", user="ann", password=Secret("x"))
OPEN = Cluster(bootstrap="127.0.0.1:9092")
SECURED = Cluster(bootstrap="127.0.0.1:9092", security=SecuritySettings(login=LOGIN))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line with which a command refuses."""

    def call(*words: str) -> str:
        assert main.run(list(words)) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return err

    return call


@pytest.mark.parametrize(
    ("cluster", "given", "login"),
    [(OPEN, None, False), (OPEN, True, True), (SECURED, None, True), (SECURED, False, False)],
)
def test_logins_are_asked_for_where_the_settings_have_one(
    cluster: Cluster, given: bool | None, login: bool
) -> None:
    assert ConsoleOptions(login=given).settings(cluster).login is login


@pytest.mark.parametrize("words", [["console"], ["up", "--console", "--dir"]])
def test_the_missing_extra_is_named_with_its_command(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    real = importlib.util.find_spec
    missing = ("starlette", "uvicorn")
    monkeypatch.setattr(
        "headrace.cli.console.find_spec", lambda name: None if name in missing else real(name)
    )
    line = run(*words, *([str(tmp_path / "cluster")] if words[-1] == "--dir" else []))
    assert line == (
        "headrace: the console needs the Python package starlette and uvicorn; "
        "pip install 'headrace[console]'\n"
    )
    assert not (tmp_path / "cluster").exists()


def test_a_console_beside_a_cluster_that_is_left_alone_is_refused(
    run: Callable[..., str], tmp_path: Path
) -> None:
    line = run("up", "--console", "--detach", "--dir", str(tmp_path / "cluster"))
    assert "run `headrace console`" in line
    assert not (tmp_path / "cluster").exists()


def test_an_unsafe_address_is_refused_before_anything_is_opened(run: Callable[..., str]) -> None:
    assert "needs logins and TLS" in run("console", "--host", "0.0.0.0", "--port", "0")
    assert "add --tls-cert FILE" in run("console", "--tls-key", "key.pem", "--port", "0")


def test_texts_of_strangers_stay_on_their_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    root, own = logging.getLogger(), logging.getLogger("headrace.console")
    before: Any = (list(root.handlers), root.level, own.level)
    try:
        _set_up_logging(LogLevel.info)
        own.info("%s", "a\nforged \x1b[2J line")
        own.debug("not shown")
        assert capsys.readouterr().err.endswith(" INFO a\\nforged \\x1b[2J line\n")
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])
        own.setLevel(before[2])
