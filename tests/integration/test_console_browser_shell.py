# SPDX-License-Identifier: Apache-2.0
"""The console in a real browser: every page opens, keys, search, themes, a lost connection, hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.browser.chromium import PHONE, WIDE, OpenBrowser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.browser.looks import is_too_wide, wait_for_page
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

GROUP = "orders readers"
HOSTILE = '<img src=x onerror="window.hacked=1">/..%2f"\'`${1}'
TIMEOUT_S = 60
PAGES = ("/", "/topics", "/groups", "/pipelines", "/dead-letters", "/transactions", "/clients", "/configs")
PAGES_BY_NAME = (
    "/security",
    "/plan",
    "/topics/{topic}",
    "/topics/{topic}/messages",
    "/groups/orders%20readers",
)


@pytest.fixture(scope="module")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    process = ConsoleProcess(bootstrap, tmp_path_factory.mktemp("console") / "console.log").start()
    yield process
    process.stop()


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic of three partitions with some records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce(topic, key=f"key-{number % 7}", value=f"value {number}", partition=number % 3)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


def read_some(bootstrap: str, topic: str, group: str, client_id: str, records: int) -> Consumer:
    """A member of the group that has committed; the caller closes it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < records:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{read} of {records} records came"
        assert message.error() is None, message.error()
        read += 1
    consumer.commit(asynchronous=False)
    return consumer


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_page_opens_without_an_error_and_without_scrolling_sideways(
    browser: OpenBrowser, console: ConsoleProcess, bootstrap: str, filled: str, size: tuple[int, int]
) -> None:
    read_some(bootstrap, filled, GROUP, "reader", 10).close()
    page = browser.open(size=size)
    too_wide = []
    for path in (*PAGES, *PAGES_BY_NAME):
        page.goto(console.url + path.format(topic=filled))
        wait_for_page(page)
        assert page.locator("h1").first.inner_text(), path
        assert page.title().endswith("Headrace"), path
        assert page.locator(".problem .notice").count() == 0, (
            f"{path}: {page.locator('.problem').inner_text()}"
        )
        if is_too_wide(page):
            too_wide.append(path)
    assert too_wide == []


def test_the_navigation_leads_to_pages_and_back(browser_page: Page, console: ConsoleProcess) -> None:
    page = browser_page
    page.goto(console.url)
    wait_for_page(page)
    page.click("#side a[href='/topics']")
    page.wait_for_selector("[data-page=topics][aria-busy=false]")
    assert page.url == f"{console.url}/topics"
    assert page.locator("#side a[aria-current=page]").inner_text() == "Topics"
    assert page.evaluate("document.activeElement.id") == "main"
    page.go_back()
    page.wait_for_selector("[data-page=cluster][aria-busy=false]")


def test_a_topic_is_found_and_opened_by_keyboard_alone(
    browser_page: Page, console: ConsoleProcess, filled: str
) -> None:
    page = browser_page
    page.goto(console.url)
    wait_for_page(page)
    page.keyboard.press("/")
    page.keyboard.type(filled[:-1])
    page.wait_for_selector("#results [role=option][aria-selected=true]")
    chosen = page.locator("#search").get_attribute("aria-activedescendant")
    while filled != page.locator(f"#{chosen} span:last-child").inner_text():
        page.keyboard.press("ArrowDown")
        chosen = page.locator("#search").get_attribute("aria-activedescendant")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/topics/{filled}")
    page.wait_for_selector("[data-page=topic][aria-busy=false]")


def test_keys_open_pages_and_their_list(browser_page: Page, console: ConsoleProcess) -> None:
    page = browser_page
    page.goto(console.url)
    wait_for_page(page)
    page.keyboard.press("?")
    assert "Topics" in page.locator("dialog[open]").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("[data-page=topics][aria-busy=false]")
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.id") == "search"


def _brightness(page: Page) -> float:
    color = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


def test_the_theme_follows_the_system_until_one_is_chosen(
    browser: OpenBrowser, console: ConsoleProcess
) -> None:
    page = browser.open(theme="dark")
    page.goto(console.url)
    wait_for_page(page)
    assert _brightness(page) < 60
    page.click("#theme")
    assert _brightness(page) > 200
    page.reload()
    wait_for_page(page)
    assert _brightness(page) > 200, "the choice is kept"
    page.click("#theme")
    assert _brightness(page) < 60


def test_names_of_strangers_are_text(
    browser_page: Page, console: ConsoleProcess, bootstrap: str, filled: str
) -> None:
    consumer = read_some(bootstrap, filled, HOSTILE, HOSTILE, 5)
    page = browser_page
    try:
        page.goto(f"{console.url}/topics/{filled}")
        page.locator(".reader-name", has_text=HOSTILE).first.wait_for()
        page.locator(f"a:text-is({_quoted(HOSTILE)})").first.click()
        page.wait_for_selector("[data-page=group][aria-busy=false]")
        assert page.locator("h1").inner_text() == HOSTILE
        page.goto(f"{console.url}/groups")
        page.locator("a", has_text=HOSTILE).first.wait_for()
        page.keyboard.press("/")
        page.keyboard.type("<img")
        page.locator("#results [role=option]", has_text=HOSTILE).first.wait_for()
        page.goto(f"{console.url}/topics?q=<img%20src=x%20onerror=window.hacked=1>")
        wait_for_page(page)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img").count() == 0
    finally:
        consumer.close()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_a_lost_connection_is_told_and_comes_back(
    browser: OpenBrowser, bootstrap: str, tmp_path: Path, filled: str
) -> None:
    browser.allow("net::ERR_")
    console = ConsoleProcess(bootstrap, tmp_path / "console.log").start()
    page = browser.open()
    try:
        page.goto(f"{console.url}/topics/{filled}")
        wait_for_page(page)
        console.stop()
        page.wait_for_selector("#connection[data-state=lost]")
        assert page.locator(".lane").count() == 3, "what was known stays"
        console.start()
        page.wait_for_selector("#connection[data-state=live]")
    finally:
        console.stop()


def test_commands_of_a_page_are_offered_for_copying(
    browser_page: Page, console: ConsoleProcess, filled: str
) -> None:
    page = browser_page
    page.goto(f"{console.url}/topics/{filled}")
    wait_for_page(page)
    page.click(".commands summary")
    assert "headrace " in page.locator(".commands code").first.inner_text()
    page.locator(".commands button").first.click()
    wait_until(lambda: page.locator(".commands button").first.inner_text() != "Copy")
