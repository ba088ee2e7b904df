# SPDX-License-Identifier: Apache-2.0
"""The pages of consumer groups in a real browser: the drawn rebalances with real consumers, seen as drawn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.tools.groups import Groups
from tests.harness.browser.chromium import PHONE, OpenBrowser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.groups.polled_consumers import QUICK_GROUPS, PolledGroup
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import check_stays, poll, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

TIMEOUT_S = 90
CREATED_S = 30
KILLED_CONSUMER = Path(__file__).with_name("killed_consumer.py")
CLASSIC = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
RANGE = {**CLASSIC, "partition_assignment_strategy": "range"}
STICKY = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}
KIP_848 = {"group_protocol": "consumer", "group_remote_assignor": "uniform"}
SETTLED_S = 2.5
"""A rebalance is told apart from one before it that was as long ago."""

TILES_IN_BOXES = """() => {
  const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const tiles = [...document.querySelectorAll("[data-tile]")];
  const found = {};
  for (const box of document.querySelectorAll("[data-member]")) {
    const place = box.getBoundingClientRect();
    found[box.dataset.client ?? "nobody"] = tiles
      .filter((tile) => inside(tile.getBoundingClientRect(), place)).map((tile) => tile.dataset.tile).sort();
  }
  return found;
}"""
COUNT_GLIDES = """
  window.glides = [];
  const animate = Element.prototype.animate;
  Element.prototype.animate = function (...given) {
    if (this.dataset.tile) window.glides.push([this.dataset.tile, given[1].duration ?? given[1]]);
    return animate.apply(this, given);
  };
"""
SIDE = """(side) => {
  const lanes = [...document.querySelectorAll(`details[open] [data-side="${side}"]`)];
  const tiles = (lane) => [...lane.querySelectorAll("[data-drawn]")].map((tile) => tile.dataset.drawn).sort();
  const name = (lane) => lane.querySelector(".consumer-lane-name").textContent;
  return Object.fromEntries(lanes.map((lane) => [name(lane), tiles(lane)]));
}"""

Shares = dict[str, list[str]]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("groups"), settings=QUICK_GROUPS) as started:
        yield started


@pytest.fixture(scope="module")
def console(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    started = ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console") / "log").start()
    yield started
    started.stop()


@pytest.fixture
def orders(node: NodeProcess, topic: str) -> str:
    """A topic of four partitions with ten records in each."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(CREATED_S)
    produce(node, topic, 10)
    return topic


@pytest.fixture
def group(node: NodeProcess, orders: str, request: pytest.FixtureRequest) -> Iterator[PolledGroup]:
    """Of the range assignor, unless the test is parametrized with other settings."""
    with PolledGroup(node.bootstrap, group_of(orders), **getattr(request, "param", RANGE)) as polled:
        yield polled


in_every_way = pytest.mark.parametrize(
    "group", [RANGE, STICKY, KIP_848], ids=["range", "sticky", "kip848"], indirect=True
)


def group_of(topic: str) -> str:
    return f"readers of {topic}"


def produce(node: NodeProcess, topic: str, each: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(4 * each):
        producer.produce(topic, f"{number}".encode(), partition=number % 4)
    assert producer.flush(CREATED_S) == 0


def group_offsets(node: NodeProcess, topic: str) -> list[int]:
    committed = Groups(node.bootstrap).committed(group_of(topic))
    return [offset for _, offset in sorted(committed.items())]


def open_group(browser: OpenBrowser, console: ConsoleProcess, topic: str, **options: Any) -> Page:
    page = browser.open(**options)
    page.add_init_script(COUNT_GLIDES)
    page.goto(f"{console.url}/groups/{group_of(topic).replace(' ', '%20')}")
    return page


def drawn(page: Page) -> Shares:
    return page.evaluate(TILES_IN_BOXES)


def see(group: PolledGroup, read: Callable[[], Any], wanted: Callable[[Any], object], what: str) -> Any:
    """Looks at the page while the consumers go on polling."""

    def look() -> Any:
        group.poll_all()
        return read()

    found = poll(look, wanted, timeout_s=TIMEOUT_S)
    assert wanted(found), f"not within {TIMEOUT_S} s: {what}; seen: {found}"
    return found


def see_shares(page: Page, group: PolledGroup, topic: str) -> Shares:
    """Once the group is stable: each tile is in the box of the consumer that has the partition."""
    group.wait_until_stable(*((topic, partition) for partition in range(4)))
    shares = {name: [f"{topic}-{number}" for number in numbers] for name, numbers in group.shares().items()}
    return see(group, lambda: drawn(page), shares.__eq__, f"tiles as in {shares}")


def settle(group: PolledGroup) -> None:
    """Lets time pass between two rebalances."""
    check_stays(lambda: group.poll_all() is None, "polling goes on", seconds=SETTLED_S)


def text_of(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def newest_rebalance(page: Page, group: PolledGroup, after: Shares) -> Shares:
    """What the open drawing shows before, once it shows `after` on its right."""
    see(group, lambda: page.evaluate(SIDE, "after"), after.__eq__, f"the drawing after: {after}")
    return page.evaluate(SIDE, "before")


@in_every_way
def test_consumers_that_join_take_tiles_from_the_others(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    group.join("A#0", [orders])
    page = open_group(browser, console, orders)
    alone = see_shares(page, group, orders)
    assert {name: len(tiles) for name, tiles in alone.items()} == {"A#0": 4}
    group.join("A#1", [orders])
    two = see_shares(page, group, orders)
    assert {name: len(tiles) for name, tiles in two.items()} == {"A#0": 2, "A#1": 2}
    page.evaluate("window.glides = []")
    group.join("A#2", [orders])
    three = see_shares(page, group, orders)
    assert sorted(len(tiles) for tiles in three.values()) == [1, 1, 2]
    glides = page.evaluate("window.glides")
    assert set(three["A#2"]) <= {tile for tile, _ in glides}, "the moved tile glides"
    assert all(duration <= 600 for _, duration in glides)


def test_a_rebalance_is_drawn_as_before_and_after_with_its_reason(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    for name in ("A#0", "A#1"):
        group.join(name, [orders])
    page = open_group(browser, console, orders)
    two = see_shares(page, group, orders)
    settle(group)
    group.join("A#2", [orders])
    three = see_shares(page, group, orders)
    assert newest_rebalance(page, group, three) == two
    see(group, lambda: text_of(page, '[data-answer="rebalance"] .answer'), "A#2 joined".__eq__, "why")
    (moved,) = three["A#2"]
    assert "→ A#2" in text_of(page, f'details[open] [data-move="{moved}"]')
    settle(group)
    group.leave("A#2")
    again = see_shares(page, group, orders)
    assert newest_rebalance(page, group, again) == three
    see(group, lambda: text_of(page, '[data-answer="rebalance"] .answer'), "A#2 left".__eq__, "why")
    assert "A#2 →" in text_of(page, f'details[open] [data-move="{moved}"]')


@in_every_way
def test_the_tiles_of_a_consumer_that_leaves_go_to_the_others(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    for name in ("A#0", "A#1", "A#2"):
        group.join(name, [orders])
    page = open_group(browser, console, orders)
    see_shares(page, group, orders)
    group.leave("A#2")
    after = see_shares(page, group, orders)
    assert sorted(len(tiles) for tiles in after.values()) == [2, 2]


def test_a_killed_consumer_is_named_when_its_session_expires(
    browser: OpenBrowser, console: ConsoleProcess, node: NodeProcess, orders: str
) -> None:
    command = [node.bootstrap, group_of(orders), orders, "classic", "1", "1"]
    with PolledGroup(node.bootstrap, group_of(orders), session_timeout_ms=6000) as group:
        group.join("A#0", [orders])
        killed = subprocess.Popen([sys.executable, KILLED_CONSUMER, *command], stdout=subprocess.DEVNULL)
        try:
            page = open_group(browser, console, orders)
            see(group, lambda: drawn(page), lambda found: len(found.get("rdkafka", ())) == 2, "two each")
        finally:
            killed.kill()
            killed.wait()
        everything = {"A#0": [f"{orders}-{number}" for number in range(4)]}
        see(group, lambda: drawn(page), everything.__eq__, "all four with the one that is left")
        newest_rebalance(page, group, everything)
        see(
            group,
            lambda: text_of(page, '[data-answer="rebalance"] .answer'),
            lambda text: text.startswith("rdkafka was lost") and "session" in text,
            "why",
        )


def test_one_consumer_more_is_drawn_with_what_it_would_take(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    group.join("A#0", [orders])
    page = open_group(browser, console, orders)
    see_shares(page, group, orders)
    new = page.locator(".consumer-lane.new[data-side=then]")
    see(group, new.count, bool, "the consumer that would be new")
    assert new.locator("[data-drawn]").count() == 2
    assert "would move here" in new.inner_text()


def test_the_lag_and_the_table_follow_commits(
    browser: OpenBrowser, console: ConsoleProcess, node: NodeProcess, group: PolledGroup, orders: str
) -> None:
    member = group.join("A#0", [orders])
    page = open_group(browser, console, orders)
    see_shares(page, group, orders)
    see(group, lambda: len(member.records), lambda count: count == 40, "all records")
    member.consumer.commit(asynchronous=False)
    see(group, lambda: text_of(page, '[data-answer="lag"] .answer'), "0 records".__eq__, "no lag")
    produce(node, orders, 25)
    see(group, lambda: text_of(page, '[data-answer="lag"] .answer'), "100 records".__eq__, "the lag")
    assert page.locator("#main tbody tr").count() == 4


def test_offsets_are_changed_with_a_preview_and_only_without_consumers(
    browser: OpenBrowser, console: ConsoleProcess, node: NodeProcess, group: PolledGroup, orders: str
) -> None:
    member = group.join("A#0", [orders])
    page = open_group(browser, console, orders)
    see_shares(page, group, orders)
    see(group, lambda: len(member.records), lambda count: count == 40, "all records")
    member.consumer.commit(asynchronous=False)
    button = page.get_by_role("button", name="Change offsets")
    assert button.is_disabled()
    assert "Stop the consumer first" in text_of(page, "#offsets-reason")
    group.leave("A#0")
    wait_until(button.is_enabled, "the button is enabled", timeout_s=TIMEOUT_S)
    button.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("the beginning").check()
    dialog.get_by_role("button", name="Preview").click()
    dialog.locator("#offsets-preview").wait_for()
    assert [each.inner_text() for each in dialog.locator("tbody tr td:nth-child(4)").all()] == ["0"] * 4
    assert "records read again" in dialog.inner_text()
    dialog.get_by_role("button", name="Set these offsets").click()
    dialog.get_by_text("The offsets of 4 partitions were set").wait_for()
    dialog.get_by_role("button", name="Close").click()
    see(
        group,
        lambda: text_of(page, '[data-answer="lag"] .answer'),
        "40 records".__eq__,
        "all to be read again",
    )
    assert group_offsets(node, orders) == [0, 0, 0, 0]


def test_reduced_motion_moves_tiles_at_once(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    group.join("A#0", [orders])
    page = open_group(browser, console, orders, still=True)
    see_shares(page, group, orders)
    group.join("A#1", [orders])
    see_shares(page, group, orders)
    assert page.evaluate("window.glides") == []


def test_the_group_page_fits_a_phone(
    browser: OpenBrowser, console: ConsoleProcess, group: PolledGroup, orders: str
) -> None:
    group.join("A#0", [orders])
    page = open_group(browser, console, orders, size=PHONE)
    see_shares(page, group, orders)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_groups_are_listed_by_lag_and_found_by_name(
    browser: OpenBrowser, console: ConsoleProcess, node: NodeProcess, topic: str
) -> None:
    """The names are hostile: they stay text."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(CREATED_S)
    produce(node, topic, 10)
    names = [f"<img src=x onerror=alert({number})> of {topic}" for number in range(2)]
    for number, name in enumerate(names):
        with PolledGroup(node.bootstrap, name) as group:
            member = group.join("A", [topic])
            group.until(lambda: len(member.records) == 40, "all records")  # noqa: B023
            if number == 0:
                member.consumer.commit(asynchronous=False)
            else:
                member.consumer.commit(message=member.records[0], asynchronous=False)
    page = browser.open()
    page.goto(f"{console.url}/groups")
    page.get_by_label("Name contains").fill(topic)
    links = page.locator("#main tbody tr td:first-child a")
    wait_until(
        lambda: links.all_inner_texts() == [names[1], names[0]], links.all_inner_texts, timeout_s=TIMEOUT_S
    )
    page.get_by_label("Name contains").fill("no such group")
    page.get_by_text("No group matches").wait_for()
    page.get_by_label("Name contains").fill(topic)
    links.first.press("Enter")
    page.get_by_role("heading", name=names[1]).wait_for()
