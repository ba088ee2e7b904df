# SPDX-License-Identifier: Apache-2.0
"""The drawing of the cluster in a real browser: a leader dies, its tiles move, and the slider replays it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.browser.chromium import OpenBrowser, beside_the_browser
from tests.harness.browser.fixtures import StartConsole
from tests.harness.browser.looks import drawn_leader, wait_for_page
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import poll, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOPIC = "drawn"
NODES = 3
FAILOVER_S = 60
RECORDED_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", nodes=NODES) as cluster:
        cluster.create_topic(TOPIC, [[0, 1, 2], [1, 2, 0], [0, 2, 1]])
        cluster.wait_in_sync()
        yield cluster


def drawn_leaders(page: Page) -> list[int | None]:
    return [drawn_leader(page, f"{TOPIC}-{partition}", range(NODES)) for partition in range(NODES)]


def new_leaders(cluster: LiveCluster) -> list[int]:
    """Of each partition, as soon as none is led by node 0."""
    cluster.wait_until(lambda seen: all(each.leader not in (0, -1) for each in seen.partitions))
    return [cluster.leader(TOPIC, partition) for partition in range(NODES)]


@pytest.mark.row("D8")
def test_tiles_of_a_killed_leader_move_to_the_new_one_and_the_slider_replays_it(
    cluster: LiveCluster, browser: OpenBrowser, start_console: StartConsole
) -> None:
    console = start_console(cluster.bootstrap)
    page = browser.open()
    page.goto(console.url)
    wait_until(lambda: drawn_leaders(page) == [0, 1, 0], timeout_s=FAILOVER_S)
    before = int(time.time() * 1000)

    moved = page.evaluate_handle(MOVES_SEEN)
    cluster.kill(0)
    leaders = beside_the_browser(lambda: new_leaders(cluster))
    found = poll(lambda: drawn_leaders(page), lambda drawn: drawn == leaders, timeout_s=FAILOVER_S)
    assert found == leaders, "each leader's tile lies in the box of the node that leads"
    page.wait_for_selector('[data-node-box="0"].down')
    assert page.locator('[data-node-box="0"] [data-role=leader]').count() == 0
    assert set(moved.evaluate("seen => [...seen]")) >= {f"{TOPIC}-0", f"{TOPIC}-2"}, "they were seen moving"
    page.locator("#takeover", has_text="Node 0 went down").wait_for()
    assert "took over" in page.locator("#takeover").inner_text()
    page.locator(".alarms [data-alarm=error], .alarms [data-alarm=warning]").first.wait_for()
    after = int(time.time() * 1000)

    wait_until(lambda: _recorded(page, console.url, after), timeout_s=RECORDED_S)
    page.goto(f"{console.url}/?at={before}")
    wait_for_page(page)
    wait_until(lambda: drawn_leaders(page) == [0, 1, 0], timeout_s=FAILOVER_S)
    page.locator(".slider [aria-label=Speed]").select_option("20")
    page.locator(".slider [aria-label=Play]").click()
    wait_until(lambda: drawn_leaders(page) == leaders, timeout_s=FAILOVER_S)
    page.locator(".slider .live").click()
    page.wait_for_selector("#connection[data-state=live]")
    assert "at=" not in page.url


MOVES_SEEN = """() => {
  const seen = new Set();
  new MutationObserver((changes) => {
    for (const { target } of changes) if (target.matches?.(".tile.moving")) seen.add(target.dataset.tile);
  }).observe(document.querySelector(".nodes"), { subtree: true, attributeFilter: ["class"] });
  return seen;
}"""


def _recorded(page: Page, url: str, until_ms: int) -> bool:
    history = page.request.get(f"{url}/api/views/history").json()
    return history["from"] is not None and any(mark["kind"] == "node_down" for mark in history["marks"])


def test_a_node_that_returns_is_drawn_as_up_and_in_sync(
    cluster: LiveCluster, browser: OpenBrowser, start_console: StartConsole
) -> None:
    page = browser.open(still=True)
    page.goto(start_console(cluster.bootstrap).url)
    wait_until(lambda: drawn_leaders(page) == [0, 1, 0], timeout_s=FAILOVER_S)
    cluster.kill(2)
    page.wait_for_selector('[data-node-box="2"].down')
    page.wait_for_selector('[data-node-box="2"] [data-state=offline]')
    assert page.locator(".tile.moving").count() == 0, "the user prefers reduced motion"
    beside_the_browser(lambda: cluster.start(2))
    beside_the_browser(cluster.wait_in_sync)
    page.wait_for_selector('[data-node-box="2"]:not(.down)')
    wait_until(lambda: page.locator(f"[data-topic={TOPIC}]:not([data-state=in-sync])").count() == 0)
