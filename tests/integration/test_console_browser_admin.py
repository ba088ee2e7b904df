# SPDX-License-Identifier: Apache-2.0
"""The pages of administration, pipelines and the plan in a real browser, against a live node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.planning.capacity import Figure, Situation, make_plan
from headrace.client.tools.pipeline_reports import SETTINGS
from headrace.client.tools.quotas import alter_quotas
from headrace.client_quotas import QuotaEntity
from headrace.types import PIPELINES_TOPIC
from tests.harness.browser.chromium import PHONE, OpenBrowser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

TIMEOUT_S = 60
HOSTILE = "<img src=x onerror=alert()>"
PAGES = (
    "/configs",
    "/configs?topic=orders",
    "/security",
    "/security?part=users",
    "/security?part=quotas",
    "/transactions",
    "/clients",
    "/plan",
    "/plan?topic=orders",
    "/pipelines",
    "/pipelines/store",
    "/dead-letters",
    "/dead-letters/orders-dlq",
)
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"
PLANS = """async (situations) => {
  const { makePlan } = await import("/static/js/plan_formula.js");
  return situations.map(makePlan);
}"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("admin")) as process:
        fill(process.bootstrap)
        yield process


@pytest.fixture(scope="module")
def console(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    process = ConsoleProcess(node.bootstrap, tmp_path_factory.mktemp("console") / "console.log").start()
    yield process
    process.stop()


def fill(bootstrap: str) -> None:
    """Something for every page, with a hostile name wherever a stranger can choose one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("orders", 3, 1, config={"retention.ms": "1000000"}),
        NewTopic("orders-dlq", 1, 1),
        NewTopic(PIPELINES_TOPIC, 1, 1, config=dict(SETTINGS)),
    ]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(9):
        producer.produce("orders", b"value", partition=number % 3)
    for number in range(4):
        headers = [
            ("headrace.error", f"ValueError: {HOSTILE} {number}".encode()),
            ("headrace.topic", b"orders"),
            ("headrace.partition", b"0"),
            ("headrace.offset", b"1"),
        ]
        producer.produce("orders-dlq", HOSTILE.encode(), key=HOSTILE.encode(), headers=headers)
    for report in (
        reported("store", "running"),
        reported(HOSTILE, "failed", error=f"{HOSTILE} is no number"),
    ):
        producer.produce(PIPELINES_TOPIC, json.dumps(report).encode(), key=report["name"].encode())
    assert producer.flush(TIMEOUT_S) == 0
    alter_quotas(bootstrap, QuotaEntity(user=HOSTILE), {"producer_byte_rate": 1048576.0})


def reported(name: str, state: str, error: str | None = None) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    batch = {"id": 9, "at": now, "ms": 120, "rows": 7, "processed_rate": 58.0, "lag": 4}
    return {
        "version": 1,
        "at": now,
        "name": name,
        "state": state,
        "error": error,
        "group": "store",
        "batch": batch | {"durations": {"addBatch": 100, "walCommit": 20}},
        "sources": [{"description": "headrace[orders]", "lag": 4, "behind": {"orders": {"0": 3, "1": 1}}}],
        "recent": [[now - 1_000 * (9 - number), number, 7, 50 + number] for number in range(9)],
    }


def opened(page: Page, console: ConsoleProcess, path: str) -> Page:
    page.goto(console.url + path)
    page.wait_for_selector('.page[aria-busy="false"]')
    return page


def test_every_page_shows_its_document_without_an_error(
    browser: OpenBrowser, console: ConsoleProcess
) -> None:
    page = browser.open(still=True)
    for path in PAGES:
        opened(page, console, path)
        assert page.locator("h1").count() == 1, path
        assert page.locator(".problem .notice").count() == 0, path


def test_no_page_is_wider_than_a_phone(browser: OpenBrowser, console: ConsoleProcess) -> None:
    page = browser.open(size=PHONE, theme="dark", still=True)
    for path in PAGES:
        opened(page, console, path)
        assert page.evaluate(OVERFLOW) <= 0, path


def test_names_of_strangers_stay_text(browser: OpenBrowser, console: ConsoleProcess) -> None:
    page = browser.open()
    for path in ("/pipelines", "/dead-letters", "/dead-letters/orders-dlq", "/security?part=quotas"):
        opened(page, console, path)
        page.get_by_text(HOSTILE).first.wait_for()
        assert page.locator('img[src="x"]').count() == 0, path


def test_a_command_is_shown_to_be_copied(browser: OpenBrowser, console: ConsoleProcess) -> None:
    page = opened(browser.open(), console, "/configs?topic=orders&q=retention.ms")
    page.get_by_role("button", name="Command").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("headrace configs set --topic orders retention.ms=1000000").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_a_filter_is_asked_of_the_server_and_kept_in_the_address(
    browser: OpenBrowser, console: ConsoleProcess
) -> None:
    page = opened(browser.open(), console, "/configs?topic=orders")
    rows = page.locator("tbody tr")
    everything = rows.count()
    page.get_by_label("Setting contains").fill("retention.ms")
    wait_until(lambda: 0 < rows.count() < everything, "only rows that contain it")
    page.wait_for_url("**q=retention.ms**")
    assert rows.first.inner_text().startswith("retention.ms")


def test_an_open_transaction_appears_and_goes(
    browser: OpenBrowser, console: ConsoleProcess, node: NodeProcess
) -> None:
    page = opened(browser.open(), console, "/transactions")
    page.get_by_text("No transaction is open now.").wait_for()
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": HOSTILE})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=2)
    assert producer.flush(TIMEOUT_S) == 0
    page.get_by_role("button", name="Terminate").wait_for()
    page.get_by_role("link", name="orders-2").first.wait_for()
    producer.abort_transaction()
    page.get_by_text("No transaction is open now.").wait_for()


def test_one_query_shows_its_batches_and_where_its_time_went(
    browser: OpenBrowser, console: ConsoleProcess
) -> None:
    page = opened(browser.open(), console, "/pipelines/store")
    page.wait_for_selector("[data-batch]")
    heights = [float(each.get_attribute("height") or 0) for each in page.locator("[data-batch]").all()]
    assert len(heights) == 9
    assert heights == sorted(heights)
    assert page.locator(".share b").all_inner_texts() == ["100 ms", "20 ms"]
    page.get_by_role("link", name="orders-0").wait_for()


def test_the_sliders_change_what_is_needed(browser: OpenBrowser, console: ConsoleProcess) -> None:
    page = opened(browser.open(), console, "/plan?topic=orders")
    needed = page.locator(".figure b").first
    work = page.get_by_role("slider", name="Time one consumer needs for a record")
    work.focus()
    page.keyboard.press("End")
    many = int(needed.inner_text().replace(",", ""))
    page.keyboard.press("Home")
    assert many > int(needed.inner_text().replace(",", "")) == 1
    reset = page.get_by_role("button", name="Back to what was measured")
    reset.click()
    assert reset.is_disabled()


FIGURES = {"headroom", "session_timeout_ms", "rebalance_ms", "node_down_ms"}


def situation(produce: float, consume: float, **other: Any) -> Situation:
    def figure(value: float) -> Figure:
        return Figure(value=value, source="given", how="the test")

    given: dict[str, Any] = {
        "topic": "orders",
        "produce_rate": figure(produce),
        "consume_rate": figure(consume),
        "consume_rate_is_floor": False,
        "busiest_partition_rate": None,
        "partitions": 6,
        "consumers": None,
        "headroom": figure(1.5),
        "session_timeout_ms": figure(45_000),
        "rebalance_ms": None,
        "node_down_ms": None,
        "node_share": 0.5,
    }
    figures = {name: figure(other[name]) for name in FIGURES & other.keys()}
    return Situation(**given | other | figures)


CASES = [
    situation(300, 100),
    situation(300, 100.00000000000001),
    situation(0.5, 100),
    situation(1_000, 90, consumers=3, rebalance_ms=900.0, node_down_ms=2_500.0),
    situation(1_000, 90, busiest_partition_rate=800, partitions=7, consumers=20),
    situation(5_000, 4_999, partitions=1, headroom=4.0),
    situation(123_456.7, 7.5, partitions=12, session_timeout_ms=6_000.0, rebalance_ms=250.0),
    situation(90, 45, consumers=2, partitions=4, session_timeout_ms=10_000.0),
    *(
        situation(17.0 * each, 5.0 + each % 7, partitions=each, consumers=each % 5 or None)
        for each in range(1, 40)
    ),
]


def test_the_page_works_out_the_same_as_the_command(browser: OpenBrowser, console: ConsoleProcess) -> None:
    page = opened(browser.open(), console, "/plan")
    found = page.evaluate(PLANS, [asdict(case) for case in CASES])
    for case, plan in zip(CASES, found, strict=True):
        expected = json.loads(json.dumps(asdict(make_plan(case))))
        del expected["unknown"]
        assert plan == expected, case
