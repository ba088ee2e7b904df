# SPDX-License-Identifier: Apache-2.0
"""The console on three nodes of Apache Kafka: pages say what they cannot know, and a leader dies.

The pictures are in build/screenshots/kafka. How the pages are used there: test_jvm_console_use.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.kafka_trio import KafkaTrio
from tests.harness.browser.chromium import OpenBrowser, open_browser
from tests.harness.browser.console_process import ConsoleProcess
from tests.harness.browser.fixtures import StartConsole
from tests.harness.browser.looks import drawn_leader, look_at, name_of
from tests.harness.console_shop import visit
from tests.harness.live.shop import PATHS, Shop
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(900)]

PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots" / "kafka"
TOPIC = "drawn"
FAILOVER_S = 90
UNKNOWN = {
    "/": "controller",
    "/topics/orders": "segments",
    "/groups/billing": "events",
    "/clients": "connect",
}
"""Pages with a sentence that has this word."""


@pytest.fixture(scope="module")
def trio(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTrio]:
    with KafkaTrio(kafka_engine, tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def opened() -> Iterator[OpenBrowser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def console(trio: KafkaTrio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with Shop(trio.bootstrap, replicas=3):
        process = ConsoleProcess(trio.bootstrap, tmp_path_factory.mktemp("console") / "console.log").start()
        yield process
        process.stop()


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_drawn_and_says_what_it_cannot_know(
    opened: OpenBrowser, console: ConsoleProcess, path: str
) -> None:
    page = opened.open(still=True)
    visit(page, console, path, rest_ms=1200)
    look_at(page, PICTURES, name_of(path))
    assert page.locator(".problem .notice").count() == 0
    if path in UNKNOWN:
        assert UNKNOWN[path] in page.locator(".unknown").inner_text()
    page.context.close()


def test_a_killed_leaders_tile_moves_to_the_new_leader(
    trio: KafkaTrio, opened: OpenBrowser, start_console: StartConsole
) -> None:
    trio.create(TOPIC, (2, 3, 1))
    page = opened.open()
    page.goto(start_console(trio.bootstrap).url)
    wait_until(lambda: drawn_leader(page, f"{TOPIC}-0", (1, 2, 3)) == 2, timeout_s=FAILOVER_S)
    trio.kill(2)
    wait_until(lambda: drawn_leader(page, f"{TOPIC}-0", (1, 3)) == 3, timeout_s=FAILOVER_S)
    trio.start(2)
    page.context.close()
