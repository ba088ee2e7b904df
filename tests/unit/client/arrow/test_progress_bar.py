# SPDX-License-Identifier: Apache-2.0
"""When a progress bar appears, and what it says."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from headrace.client.arrow.progress_bar import ProgressBar, ReadProgress, somebody_watches


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_bar_appears_after_a_second_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    clock, console = Clock(), screen()
    with ProgressBar("reading orders", 1000, None, clock=clock, console=console) as bar:
        clock.now += 0.9
        bar.reached(10)
        assert shown(console) == ""
        clock.now += 0.2
        bar.reached(250)
    assert "reading orders" in shown(console)
    assert "25%" in shown(console)
    assert "250 records" in shown(console)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("wanted", [None, False])
def test_the_bar_needs_a_terminal(wanted: bool | None) -> None:
    clock, console = Clock(), screen()
    with ProgressBar("reading orders", None, wanted, clock=clock, console=console) as bar:
        clock.now += 1000
        bar.reached(1)
    assert shown(console) == ""


def test_the_bar_counts_without_a_known_total() -> None:
    console = screen()
    with ProgressBar("writing orders", None, True, console=console) as bar:
        assert list(bar.counted(["ab", "cde"], len)) == ["ab", "cde"]
    assert "5 records" in shown(console)


def test_a_notebook_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not somebody_watches()
    monkeypatch.setitem(sys.modules, "ipykernel", object())  # type: ignore[arg-type]
    assert somebody_watches()


class Output:
    """As IPython's display gives one."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def update(self, page: Any) -> None:
        self.pages.append(page)


def test_a_notebook_gets_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output()
    display = ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda _, display_id: output  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with ProgressBar("reading <orders>", 1000, True) as bar:
        bar.reached(250)
        bar.reached(260)  # too soon to be worth another picture
    shown, end = output.pages
    assert shown == "reading &lt;orders&gt; <progress value='250' max='1000'></progress> 25%, 250 records"
    assert end == ""


class Source:
    offsets_left = 100


@pytest.mark.parametrize(("count", "expected"), [(None, 60), (30, 7)])
def test_a_read_is_measured_by_offsets_or_by_the_count_it_has_to_bring(
    count: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[int] = []
    monkeypatch.setattr(ProgressBar, "reached", lambda _, done: reached.append(done))
    source: Any = Source()
    with ReadProgress("orders", source, count, True) as progress:
        source.offsets_left = 40
        progress.came(7)
    assert reached == [expected]
