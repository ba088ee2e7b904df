# SPDX-License-Identifier: Apache-2.0
"""The progress bar: only on a terminal, and only for work that takes longer than a second."""

from __future__ import annotations

import io
import sys

import pytest

from headrace.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _run(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, *, takes_s: float, show: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    readings = iter([0.0, takes_s])
    with ProgressBar("sending", 3, show=show, clock=lambda: next(readings)) as bar:
        bar.advance()
    return stderr.getvalue()


def test_long_work_has_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _run(monkeypatch, Terminal(), takes_s=1.5)
    assert "sending" in shown
    assert "1/3" in shown


def test_short_work_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, Terminal(), takes_s=0.5) == ""


def test_a_pipe_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, io.StringIO(), takes_s=1.5) == ""


def test_none_where_results_are_on_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, Terminal(), takes_s=1.5, show=False) == ""
