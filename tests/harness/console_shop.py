# SPDX-License-Identifier: Apache-2.0
"""A console beside three nodes with everything that a page can show, for tests that look at all pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.shop import Shop

if TYPE_CHECKING:
    from playwright.sync_api import Page

_READY = ".page[aria-busy=false]"


@contextmanager
def shop_console(folder: Path) -> Iterator[tuple[ConsoleProcess, LiveCluster]]:
    with LiveCluster(folder / "cluster") as cluster, Shop(cluster.bootstrap, replicas=3):
        console = ConsoleProcess(cluster.bootstrap, folder / "console.log").start()
        try:
            yield console, cluster
        finally:
            console.stop()


def visit(page: Page, console: ConsoleProcess, path: str, *, rest_ms: int) -> None:
    """Returns when the page shows its first document, and drawings have had time to come to rest."""
    page.goto(f"{console.url}{path}")
    page.wait_for_selector(_READY)
    page.wait_for_timeout(rest_ms)
