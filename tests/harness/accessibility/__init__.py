# SPDX-License-Identifier: Apache-2.0
"""Accessibility of a page in a real browser: what is wrong, as sentences. checker.js does the looking."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_CHECKER = (Path(__file__).parent / "checker.js").read_text(encoding="utf-8")
_MOST_STEPS = 400


def findings(page: Page) -> list[str]:
    """Language, title, headings, landmarks, names, contrast, and meaning that is told by colour alone."""
    page.evaluate(_CHECKER)
    found: list[str] = page.evaluate("accessibility.findings()")
    return found


def keyboard_findings(page: Page) -> list[str]:
    """Controls that the Tab key does not reach, and those on which the focus cannot be seen."""
    page.evaluate(_CHECKER)
    page.evaluate("accessibility.expect()")
    left = 1
    for _ in range(_MOST_STEPS):
        page.keyboard.press("Tab")
        left = page.evaluate("accessibility.step()")
        if left == 0:
            break
    found: list[str] = page.evaluate("accessibility.unreached()")
    return found
