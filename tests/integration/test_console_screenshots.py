# SPDX-License-Identifier: Apache-2.0
"""Every page of the console is drawn whole, light and dark, on a desktop and on a phone.

The pictures are in build/screenshots, for people to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.browser.chromium import PHONE, WIDE, OpenBrowser, open_browser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.browser.looks import look_at, name_of
from tests.harness.console_shop import shop_console, visit
from tests.harness.live.shop import PATHS

pytestmark = pytest.mark.timeout(900)

PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SIZES = {"desktop": WIDE, "phone": PHONE}


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenBrowser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def console(opened: OpenBrowser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with shop_console(tmp_path_factory.mktemp("shop")) as (console, _):
        yield console


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_drawn_whole(
    opened: OpenBrowser, console: ConsoleProcess, path: str, size: str, theme: str
) -> None:
    page = opened.open(size=SIZES[size], theme="dark" if theme == "dark" else "light", still=True)
    visit(page, console, path, rest_ms=500)
    look_at(page, PICTURES, f"{name_of(path)}-{size}-{theme}")
    page.context.close()
