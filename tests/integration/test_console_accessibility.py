# SPDX-License-Identifier: Apache-2.0
"""Every page of the console can be used without a mouse, without sight, and with weak eyes (WCAG 2.2 AA)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.accessibility import findings, keyboard_findings
from tests.harness.browser.chromium import PHONE, WIDE, OpenBrowser, open_browser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.console_shop import shop_console, visit
from tests.harness.live.shop import PATHS

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenBrowser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def console(opened: OpenBrowser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with shop_console(tmp_path_factory.mktemp("shop")) as (console, _):
        yield console


BAD = """<!doctype html><title></title><h1>One</h1><h1>Two</h1>
<p style="color: #999">pale</p><button></button><input type="text" style="border: 1px solid #eee">
<svg width="60" height="20"><rect width="60" height="20" fill="#444"></rect>
<text y="15" fill="#555">ab</text></svg>
<i data-tile="a-0" data-role="leader" title="leader" style="color: red">■</i>
<i data-tile="a-1" data-role="replica" title="replica" style="color: green">■</i>
<table><tr><td>1</td></tr></table>"""
WRONG = (
    "the document has no language",
    "the document has no title",
    "2 headings of level 1",
    "there is no landmark main",
    "contrast 2.85 of 4.5: <p>",
    "contrast 1.31 of 4.5: <text>",
    "no name: <button>",
    "no name: <input>",
    "a drawing has no name: <svg>",
    "shape contrast",
    "tiles of replica,, and leader,, differ by colour alone",
    "a table has no header cells",
)


def test_the_checker_finds_what_is_wrong(opened: OpenBrowser) -> None:
    page = opened.open()
    page.set_content(BAD)
    found = findings(page)
    page.context.close()
    assert not [each for each in WRONG if not any(text.startswith(each) for text in found)], found


def test_the_checker_finds_what_the_keyboard_does_not_reach(opened: OpenBrowser) -> None:
    page = opened.open()
    trap = "onkeydown='if (event.key === \"Tab\") event.preventDefault()'"
    page.set_content(
        f"<button {trap}>trap</button><button style='outline: none'>dull</button><button>last</button>"
    )
    found = keyboard_findings(page)
    page.context.close()
    assert 'Tab does not reach <button> "last"' in found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_a_page_can_be_read_and_understood(
    opened: OpenBrowser, console: ConsoleProcess, path: str, theme: str
) -> None:
    page = opened.open(size=WIDE, theme="dark" if theme == "dark" else "light", still=True)
    visit(page, console, path, rest_ms=200)
    found = findings(page)
    page.context.close()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PATHS)
def test_a_page_can_be_used_by_keyboard(opened: OpenBrowser, console: ConsoleProcess, path: str) -> None:
    page = opened.open(size=WIDE, still=True)
    visit(page, console, path, rest_ms=200)
    found = keyboard_findings(page)
    page.context.close()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", ["/", "/topics/orders", "/groups/billing"])
def test_a_page_on_a_phone_can_be_read_and_understood(
    opened: OpenBrowser, console: ConsoleProcess, path: str
) -> None:
    page = opened.open(size=PHONE, still=True)
    visit(page, console, path, rest_ms=200)
    found = findings(page)
    page.context.close()
    assert not found, "\n".join(found)
