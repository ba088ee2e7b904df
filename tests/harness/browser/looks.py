# SPDX-License-Identifier: Apache-2.0
"""What a page of the console shows, read from the drawn elements and their boxes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROUNDING_PX = 1.0
_TOO_WIDE = """() => {
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
_CUT_NAMES = """() => [...document.querySelectorAll("nav a, nav button, header a, header button, h1")]
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
  .filter((each) => getComputedStyle(each).overflowX !== "visible")
  .map((each) => each.textContent.trim())"""


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    def holds(self, other: Box) -> bool:
        return (
            self.x - ROUNDING_PX <= other.x
            and self.y - ROUNDING_PX <= other.y
            and other.x + other.width <= self.x + self.width + ROUNDING_PX
            and other.y + other.height <= self.y + self.height + ROUNDING_PX
        )


def box_of(locator: Locator) -> Box:
    box = locator.bounding_box()
    assert box is not None, f"{locator} is not drawn"
    return Box(box["x"], box["y"], box["width"], box["height"])


def wait_for_page(page: Page) -> None:
    """Until the page has its first document."""
    page.wait_for_selector(".page[aria-busy=false]")


def drawn_leader(page: Page, partition: str, nodes: Iterable[int]) -> int | None:
    """By the boxes: the node in whose box the leader's tile lies; None while it moves or there is none."""
    tiles = page.locator(f'[data-tile="{partition}"][data-role=leader]')
    if tiles.count() != 1 or page.locator(".tile.moving").count():
        return None
    tile = box_of(tiles)
    holding = [node for node in nodes if box_of(page.locator(f'[data-node-box="{node}"]')).holds(tile)]
    return holding[0] if len(holding) == 1 else None


def is_too_wide(page: Page) -> bool:
    """Whether it has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def name_of(path: str) -> str:
    """Of a page's picture."""
    return re.sub(r"\W+", "-", path).strip("-") or "cluster"


def look_at(page: Page, folder: Path, name: str) -> None:
    """Take a picture of the whole page; nothing may be wider than the page, and no name be cut."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    too_wide, cut = page.evaluate(_TOO_WIDE), page.evaluate(_CUT_NAMES)
    assert not too_wide, f"wider than the page: {too_wide}"
    assert not cut, f"names that are cut: {cut}"
