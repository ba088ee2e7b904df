# SPDX-License-Identifier: Apache-2.0
"""What a page of the console shows, read from the drawn elements and their boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROUNDING_PX = 1.0


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


def is_too_wide(page: Page) -> bool:
    """Whether it has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
