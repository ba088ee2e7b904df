# SPDX-License-Identifier: Apache-2.0
"""Topics in a real browser: logs grow to the right as records come, and readers' marks move along them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.browser.chromium import OpenBrowser
from tests.harness.browser.fixtures import StartConsole
from tests.harness.browser.looks import box_of, wait_for_page
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

GROUP = "shop"
TIMEOUT_S = 60
SCREENFUL = 100


@pytest.fixture
def partitions(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
    return topic


@pytest.fixture
def consumer(bootstrap: str, partitions: str) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "client.id": "shop-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    member = Consumer(settings)
    member.subscribe([partitions])
    yield member
    member.close()


def produce(bootstrap: str, topic: str, records: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, key=f"key-{number % 3}", value=f"value {number}", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def consume(member: Consumer, records: int) -> None:
    for read in range(records):
        message = member.poll(TIMEOUT_S)
        assert message is not None, f"{read} of {records} records came"
        assert message.error() is None, message.error()
    member.commit(asynchronous=False)


def wait_for_end(page: Page, partition: int, end: int) -> None:
    page.wait_for_selector(f'[data-log="{partition}"][data-end="{end}"]', state="attached")
    _settle(page)


def _settle(page: Page) -> None:
    """Until nothing glides any more."""
    wait_until(lambda: page.evaluate("document.getAnimations().length") == 0)


def test_a_log_grows_to_the_right_and_a_readers_mark_follows(
    browser: OpenBrowser, bootstrap: str, partitions: str, consumer: Consumer, start_console: StartConsole
) -> None:
    produce(bootstrap, partitions, 55)
    consume(consumer, 20)
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/topics/{partitions}")
    wait_for_end(page, 0, 55)
    log = page.locator('[data-log="0"]')
    mark = page.locator(f'[data-partition="0"] [data-reader="{GROUP}"]')
    page.wait_for_selector(f'[data-partition="0"] [data-reader="{GROUP}"][data-committed="20"]')
    _settle(page)
    log_before, mark_before = box_of(log), box_of(mark.locator(".committed"))
    assert "35 records behind" in mark.inner_text()
    assert "shop-1" in mark.inner_text()
    assert log_before.x < mark_before.x < log_before.x + log_before.width, "the mark lies below the log"

    produce(bootstrap, partitions, 15)
    wait_for_end(page, 0, 70)
    grown = box_of(log)
    assert grown.x == pytest.approx(log_before.x, abs=2)
    assert grown.width > log_before.width * 1.1, "it grew to the right"

    consume(consumer, 50)
    page.wait_for_selector(f'[data-partition="0"] [data-reader="{GROUP}"][data-committed="70"]')
    _settle(page)
    assert box_of(mark.locator(".committed")).x > mark_before.x + 100
    page.locator(f'[data-partition="0"] [data-reader="{GROUP}"]', has_text="0 records behind").wait_for()
    assert page.locator('[data-log="1"]').get_attribute("data-end") == "0"


def test_details_of_a_partition_and_its_newest_records_are_shown_when_asked_for(
    browser_page: Page, bootstrap: str, partitions: str, start_console: StartConsole
) -> None:
    produce(bootstrap, partitions, 30)
    page = browser_page
    page.goto(f"{start_console(bootstrap).url}/topics/{partitions}")
    wait_for_end(page, 0, 30)
    page.click('[data-partition="0"] .lane-name')
    assert "end 30" in page.locator('[data-partition="0"] .lane-details').inner_text()
    page.click("[data-mode=newest]")
    _settle(page)
    assert box_of(page.locator('[data-log="0"]')).width > 10
    page.click("#distribution button")
    page.locator("#distribution", has_text="3 different keys").wait_for()
    assert "Partition 0" in page.locator("#distribution").inner_text()


def test_a_hundred_partitions_are_drawn_in_short_rows(
    browser_page: Page, bootstrap: str, topic: str, start_console: StartConsole
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, SCREENFUL, 1)])[topic].result(TIMEOUT_S)
    page = browser_page
    page.goto(f"{start_console(bootstrap).url}/topics/{topic}")
    wait_until(lambda: page.locator(".lane").count() == SCREENFUL)
    heights = page.evaluate("[...document.querySelectorAll('.lane')].map((lane) => lane.offsetHeight)")
    assert max(heights) <= 48


def test_topics_are_sorted_and_filtered(
    browser_page: Page, bootstrap: str, partitions: str, start_console: StartConsole
) -> None:
    produce(bootstrap, partitions, 10)
    page = browser_page
    page.goto(f"{start_console(bootstrap).url}/topics")
    wait_for_page(page)
    page.locator("th", has_text="Partitions").locator("button").click()
    page.wait_for_selector("th[aria-sort=descending]")
    wait_until(lambda: _is_sorted(_column(page, 3)), lambda: str(_column(page, 3)))
    page.locator(".toolbar input[type=search]").fill(partitions)
    wait_until(lambda: page.locator("main tbody tr").count() == 1)
    assert page.locator("main tbody a").inner_text() == partitions
    assert f"q={partitions}" in page.url
    page.locator(".toolbar input[type=search]").fill("no-such-topic")
    page.locator(".empty", has_text="no-such-topic").wait_for()


def _column(page: Page, number: int) -> list[int]:
    """Of all topics that are not internal: those come last, whatever the order."""
    rows = page.locator("main tbody tr").filter(has_not=page.locator(".badge", has_text="internal"))
    return [int(text.replace(",", "")) for text in rows.locator(f"td:nth-child({number})").all_inner_texts()]


def _is_sorted(numbers: list[int]) -> bool:
    return numbers == sorted(numbers, reverse=True) and len(numbers) > 0
