# SPDX-License-Identifier: Apache-2.0
"""Every page of the console is drawn whole, light and dark, on a desktop and on a phone.

The pictures are in build/screenshots, for people to look at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.browser.chromium import PHONE, WIDE, OpenBrowser, open_browser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.console_shop import shop_console, visit
from tests.harness.live.shop import PATHS

pytestmark = pytest.mark.timeout(900)

PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SIZES = {"desktop": WIDE, "phone": PHONE}
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const inside = (element) => {
    for (let each = element.parentElement; each; each = each.parentElement) {
      if (/auto|scroll|hidden|clip/.test(getComputedStyle(each).overflowX)) return true;
    }
    return false;
  };
  return [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > width + 1 && !inside(each))
    .map((each) => `<${each.tagName.toLowerCase()} class="${each.getAttribute("class")}">`).slice(0, 10);
}"""
"""What is wider than the page, unless something around it scrolls."""
CUT_NAMES = """() => [...document.querySelectorAll("nav a, nav button, header a, header button, h1")]
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
  .filter((each) => getComputedStyle(each).overflowX !== "visible")
  .map((each) => each.textContent.trim())"""


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenBrowser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def console(opened: OpenBrowser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with shop_console(tmp_path_factory.mktemp("shop")) as console:
        yield console


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_drawn_whole(
    opened: OpenBrowser, console: ConsoleProcess, path: str, size: str, theme: str
) -> None:
    page = opened.open(size=SIZES[size], theme="dark" if theme == "dark" else "light", still=True)
    visit(page, console, path, rest_ms=1200)
    name = re.sub(r"\W+", "-", path).strip("-") or "cluster"
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}-{size}-{theme}.png", full_page=True)
    too_wide, cut = page.evaluate(TOO_WIDE), page.evaluate(CUT_NAMES)
    page.context.close()
    assert not too_wide, f"wider than the page: {too_wide}"
    assert not cut, f"names that are cut: {cut}"
    assert not opened.errors(), "\n".join(opened.errors())
