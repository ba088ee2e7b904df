# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests of the console: pages, and every error that any of them reports.

Fixtures: fixtures.py. Read next: console_process.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from tests.harness.left_out import leave_out

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, Response

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_BUSY_MACHINE_MS = 60_000
T = TypeVar("T")
WIDE, PHONE = (1280, 900), (390, 844)


class OpenBrowser:
    """Its pages share nothing: each has a context of its own."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._allowed: list[str] = []
        self._errors: list[str] = []
        self._outside: list[str] = []

    def open(
        self,
        *,
        size: tuple[int, int] = WIDE,
        theme: Literal["light", "dark"] = "light",
        still: bool = False,
    ) -> Page:
        """`still`: the user prefers reduced motion."""
        context = self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=theme,
            reduced_motion="reduce" if still else "no-preference",
        )
        context.set_default_timeout(_BUSY_MACHINE_MS)
        page = context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self._errors.append(f"{error.name}: {error.message}"))
        page.on("response", self._answered)
        page.on("dialog", self._asked)
        return page

    def allow(self, text: str) -> None:
        """Errors with this text in them are part of the test."""
        self._allowed.append(text)

    def errors(self) -> list[str]:
        """What the console of any page said is wrong, CSP violations and dialogs included."""
        allowed = [each for each in self._errors if not any(text in each for text in self._allowed)]
        return allowed + self._outside

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._errors.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _asked(self, dialog: Dialog) -> None:
        self._errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _answered(self, response: Response) -> None:
        if urlsplit(response.url).hostname not in ("127.0.0.1", "localhost", None):
            self._outside.append(f"asked another server: {response.url}")


def beside_the_browser(work: Callable[[], T]) -> T:
    """In another thread: asyncio.run does not work beside Playwright's event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


@contextmanager
def open_browser() -> Iterator[OpenBrowser]:
    """Leaves the test out where there is no Chromium; fails it when a page reports an error."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        leave_out("Chromium", "install it: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        leave_out("Chromium", "install the Python package playwright")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            browser = OpenBrowser(chromium)
            yield browser
            assert not browser.errors(), "\n".join(browser.errors())
        finally:
            chromium.close()
