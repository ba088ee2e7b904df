# SPDX-License-Identifier: Apache-2.0
"""The console's pictures in docs/pictures, from a live cluster of which one node dies: `make pictures`."""

from __future__ import annotations

import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from tests.harness.browser.chromium import open_browser
from tests.harness.console_shop import shop_console, visit
from tests.harness.live.shop import GROUP

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_BYTES = 150_000
SIZE = (1280, 960)
_REST_MS = 15_000
"""Long enough for lags to grow and rates to be known."""
_VICTIM = 2
PICTURES = {"console-topic": "/topics/orders", "console-group": f"/groups/{GROUP}"}
OF_A_FAILOVER = "console-cluster"


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as temporary,
        open_browser() as browser,
        shop_console(Path(temporary)) as (console, cluster),
    ):
        page = browser.open(size=SIZE, still=True)
        for name, path in PICTURES.items():
            visit(page, console, path, rest_ms=_REST_MS)
            take(page, folder / f"{name}.png")
        visit(page, console, "/", rest_ms=_REST_MS)
        cluster.kill(_VICTIM)
        page.locator("#takeover", has_text="took over").wait_for()
        page.wait_for_timeout(_REST_MS)
        take(page, folder / f"{OF_A_FAILOVER}.png")


def take(page: Page, file: Path) -> None:
    """What fits on the screen."""
    image = Image.open(BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file} has {size:,} bytes, at most {MOST_BYTES:,} are allowed")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
