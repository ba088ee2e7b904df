# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the console's browser tests; tests/conftest.py makes them known.

def test_x(browser, start_console, bootstrap):
    page = browser.open()                       # or browser_page, a page of the usual size
    page.goto(start_console(bootstrap).url)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.browser.chromium import OpenBrowser, open_browser
from tests.harness.browser.console_process import ConsoleProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page

StartConsole = Callable[..., ConsoleProcess]


@pytest.fixture
def browser() -> Iterator[OpenBrowser]:
    """Chromium; the test fails when one of its pages reports an error."""
    with open_browser() as opened:
        yield opened


@pytest.fixture
def browser_page(browser: OpenBrowser) -> Page:
    return browser.open()


@pytest.fixture
def start_console(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartConsole]:
    """Starts consoles of the test's own, which end with it: `start_console(bootstrap, *arguments)`."""
    started: list[ConsoleProcess] = []

    def start(bootstrap: str, *arguments: str) -> ConsoleProcess:
        console = ConsoleProcess(bootstrap, tmp_path / f"console-{len(started)}.log", *arguments)
        started.append(console)
        return console.start()

    yield start
    for console in started:
        console.stop()
        request.node.add_report_section("call", f"log of {console.url}", console.log_tail())
