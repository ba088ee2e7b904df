# SPDX-License-Identifier: Apache-2.0
"""Messages in a real browser: found, opened, followed, written; offsets and dead letters changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.tools.groups import Groups
from tests.harness.browser.chromium import PHONE, OpenBrowser
from tests.harness.browser.fixtures import StartConsole
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)>"
TURNED = "or\u202eders\u2066"
VISIBLE = "or\\u{202e}ders\\u{2066}"
COUNT = 120


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def send(bootstrap: str, topic: str, values: list[Any], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, json.dumps(value), f"key-{number}", **more)
    assert producer.flush(30) == 0


@pytest.fixture
def orders(bootstrap: str, topic: str) -> str:
    create(bootstrap, topic)
    values = [{"number": each, "name": HOSTILE, "big": 12345678901234567890} for each in range(COUNT)]
    send(bootstrap, topic, values, headers=[("trace", HOSTILE.encode())])
    return topic


def shown(page: Page) -> list[str]:
    return page.eval_on_selector_all("tr.message", "rows => rows.map(row => row.dataset.record)")


def wait_for_records(page: Page, expected: list[str]) -> None:
    wait_until(lambda: shown(page) == expected, what=lambda: f"shown: {shown(page)}")


def offsets(first: int, last: int, step: int) -> list[str]:
    return [f"0:{offset}" for offset in range(first, last, step)]


def test_records_are_paged_filtered_and_opened_and_the_address_says_so(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    page = browser.open()
    url = f"{start_console(bootstrap).url}/topics/{orders}/messages"
    page.goto(url)
    wait_for_records(page, offsets(COUNT - 1, COUNT - 51, -1))
    assert not page.locator("#connection").is_visible(), "nothing on this page is live before it is asked for"
    page.click("button[data-way=older] >> nth=0")
    wait_for_records(page, offsets(COUNT - 51, COUNT - 101, -1))
    page.fill("#messages-filter", "value.number < 3")
    page.keyboard.press("Enter")
    wait_for_records(page, ["0:2", "0:1", "0:0"])
    page.focus("tr.message button")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".record-detail >> text=12345678901234567890")
    assert HOSTILE in page.inner_text(".record-detail")
    assert page.query_selector("img[src=x]") is None
    page.click(".record-detail >> text=Hex >> nth=0")
    page.wait_for_selector(".record-text.hex >> text=7b 22 6e 75")
    query = parse_qs(urlsplit(page.url).query)
    assert query == {"filter": ["value.number < 3"], "open": ["0:1"]}
    again = browser.open()
    again.goto(page.url)
    again.wait_for_selector(".record-detail")
    wait_for_records(again, ["0:2", "0:1", "0:0"])


def test_a_wrong_filter_is_marked_where_it_is_wrong(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    browser.allow("400 (Bad Request)")
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/topics/{orders}/messages?filter=offset+%3E%3D+or")
    page.wait_for_selector("#filter-problem >> text=at character 11")
    selected = page.eval_on_selector("#messages-filter", "field => [field.selectionStart, field.ariaInvalid]")
    assert selected[0] == 10
    assert page.get_attribute("#messages-filter", "aria-invalid") == "true"


def test_a_live_tail_shows_what_comes_and_can_be_paused(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/topics/{orders}/messages?filter=value.live+exists")
    page.wait_for_selector("p.empty:not([hidden])")
    page.click("text=Live tail")
    page.wait_for_selector("#tail-status:has-text('no new record yet')")
    send(bootstrap, orders, [{"live": 1}, {"other": 2}])
    wait_for_records(page, [f"0:{COUNT}"])
    page.wait_for_selector("#tail-status:has-text('1 did not match')")
    page.click("button:text-is('Pause')")
    send(bootstrap, orders, [{"live": 2}])
    page.wait_for_selector("#tail-status:has-text('Paused')")
    page.click("button:text-is('Resume')")
    page.wait_for_selector("#tail-status:has-text('Live')")
    send(bootstrap, orders, [{"live": 3}])
    wait_for_records(page, [f"0:{COUNT + 3}", f"0:{COUNT}"])
    assert "tail=1" in page.url


def test_a_record_is_written_and_downloads_have_it(
    browser: OpenBrowser, bootstrap: str, topic: str, start_console: StartConsole
) -> None:
    create(bootstrap, topic)
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/topics/{topic}/messages")
    page.wait_for_selector("text=The topic has no records")
    page.click("text=Write a record")
    page.fill("textarea[aria-label=Value]", HOSTILE)
    page.click("text=Add a header")
    page.fill("[aria-label='Name of the header']", "trace")
    page.fill("[aria-label='Value of the header']", "t-1")
    page.click("text=Write the record")
    page.wait_for_selector("dialog >> text=Written to partition 0, offset 0")
    page.keyboard.press("Escape")
    wait_for_records(page, ["0:0"])
    with page.expect_download() as download:
        page.click("text=JSON lines")
    line = json.loads(download.value.path().read_text())
    assert (line["value"], line["key"], line["headers"]) == (HOSTILE, None, [["trace", "t-1"]])
    page.click("tr.message button")
    with page.expect_download() as download:
        page.click(".record-detail >> text=Download >> nth=0")
    assert download.value.path().read_text() == HOSTILE


def test_what_strangers_send_neither_turns_nor_breaks_the_page(
    browser: OpenBrowser, bootstrap: str, topic: str, start_console: StartConsole
) -> None:
    """Right-to-left overrides, control characters, binary and large values; and such names of groups."""
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000})
    values = [
        json.dumps({"name": f"{TURNED} {HOSTILE}"}, ensure_ascii=False).encode(),
        f"{TURNED}\x1b[2J\x00{HOSTILE}".encode(),
        bytes(range(256)) * 8,
        json.dumps({"large": "x" * 1_000_000}).encode(),
        "\u05d0\u05d1 \u0627\u0644".encode(),
    ]
    for value in values:
        producer.produce(topic, value, TURNED.encode(), headers=[(TURNED, value[:2_000])])
    assert producer.flush(30) == 0
    group = f"{topic}-{TURNED}"
    entries = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_consumer_group_offsets([entries])[group].result(30)
    url = start_console(bootstrap).url
    page = browser.open()
    for offset in range(len(values)):
        page.goto(f"{url}/topics/{topic}/messages?open=0:{offset}")
        page.wait_for_selector(".record-detail")
        wait_for_records(page, offsets(len(values) - 1, -1, -1))
        check_that_nothing_is_turned(page)
    for path in ("groups", f"groups/{quote(group, safe='')}", f"topics/{topic}"):
        page.goto(f"{url}/{path}")
        page.get_by_text(f"{topic}-{VISIBLE}").first.wait_for()
        check_that_nothing_is_turned(page)


def check_that_nothing_is_turned(page: Page) -> None:
    text = page.inner_text("body")
    assert not set(text) & set("\u202e\u2066\x1b\x00")
    assert len(text) < 200_000, "a large value is cut"
    assert page.query_selector("img[src=x]") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("h1").is_visible()


def test_a_read_only_console_offers_no_writing(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    page = browser.open()
    page.goto(f"{start_console(bootstrap, '--read-only').url}/topics/{orders}/messages?open=0:119")
    page.wait_for_selector(".record-detail")
    assert page.query_selector("text=Write a record") is None
    assert page.query_selector("text=Write it again") is None


def test_a_phone_shows_records_without_scrolling_sideways(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    page = browser.open(size=PHONE)
    page.goto(f"{start_console(bootstrap).url}/topics/{orders}/messages?open=0:119")
    page.wait_for_selector(".record-detail")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_offsets_of_a_group_are_changed_in_the_dialog_after_a_preview(
    browser: OpenBrowser, bootstrap: str, orders: str, start_console: StartConsole
) -> None:
    group = f"{orders}-group"
    entries = ConsumerGroupTopicPartitions(group, [TopicPartition(orders, 0, 50)])
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its requests end with it
    admin.alter_consumer_group_offsets([entries])[group].result(30)
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/groups/{group}")
    page.click("button:has-text('Change offsets'):enabled")
    page.check("dialog input[value=shift]")
    page.fill("[aria-label='Records, negative for back']", "-20")
    page.click("dialog button:text-is('Preview')")
    page.wait_for_selector("#offsets-preview >> text=20 again")
    assert list(Groups(bootstrap).committed(group).values()) == [50]
    page.click("text=Set these offsets")
    page.wait_for_selector("dialog >> text=The offsets of 1 partition were set")
    assert list(Groups(bootstrap).committed(group).values()) == [30]


def test_dead_letters_are_sent_back_once_though_the_button_is_clicked_twice(
    browser: OpenBrowser, bootstrap: str, topic: str, start_console: StartConsole
) -> None:
    create(bootstrap, topic)
    create(bootstrap, f"{topic}-dead")
    told = {"topic": topic, "partition": 0, "offset": 1, "error": f"boom {HOSTILE}"}
    headers = [(f"headrace.{name}", str(value).encode()) for name, value in told.items()]
    send(bootstrap, f"{topic}-dead", ["lost"], headers=headers)
    page = browser.open()
    page.goto(f"{start_console(bootstrap).url}/dead-letters/{topic}-dead")
    page.click("text=Send them back")
    page.wait_for_selector("#replay-preview")
    page.eval_on_selector("dialog button.danger", "button => { button.click(); button.click(); }")
    page.wait_for_selector("dialog >> text=1 record was sent back")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()
    assert end == 1
