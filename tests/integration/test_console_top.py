# SPDX-License-Identifier: Apache-2.0
"""`headrace top` against a live node: by Textual's pilot, in a real pseudo-terminal, and once for scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyte
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from textual.pilot import Pilot
from textual.widgets import Static

from headrace.client.cluster import Cluster
from headrace.console.observing.observer import Observer
from headrace.console.top.app import TopApp
from headrace.console.top.table_view import LiveTable
from tests.harness.groups.polled_consumers import QUICK_GROUPS, PolledGroup
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import until

TIMEOUT_S = 90
COMMAND = [sys.executable, "-m", "headrace.cli.main", "top"]
COLUMNS, LINES = 140, 40
GROUP = "billing"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """With a topic of two partitions, and a group that has read none of its twenty records."""
    with NodeProcess(tmp_path_factory.mktemp("top"), settings=QUICK_GROUPS) as started:
        servers = {"bootstrap.servers": started.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(30)
        producer = Producer(servers)
        for number in range(20):
            producer.produce("orders", f"{number}".encode(), partition=number % 2)
        assert producer.flush(30) == 0
        with PolledGroup(started.bootstrap, GROUP) as group:
            member = group.join("worker", ["orders"])
            group.until(lambda: len(member.records) == 20, "all records")
            for first in [record for record in member.records if record.offset() == 0]:
                member.consumer.commit(message=first, asynchronous=False)
        yield started


def first_column(app: TopApp, selector: str) -> list[str]:
    table = app.screen.query_one(selector, LiveTable)
    return [str(table.get_row_at(index)[0]) for index in range(table.row_count)]


def test_it_goes_from_the_list_of_groups_to_one_group_and_back(node: NodeProcess) -> None:
    async def run() -> None:
        observer = Observer(Cluster(bootstrap=node.bootstrap))
        await observer.start()
        app = TopApp(observer, node.bootstrap)
        try:
            async with app.run_test(size=(COLUMNS, LINES)) as pilot:
                await steps(app, pilot)
        finally:
            await observer.close()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await until(lambda: first_column(app, "#cluster-table") == ["1"], "the node", timeout_s=TIMEOUT_S)
        await pilot.press("2")
        await until(lambda: "orders" in first_column(app, "#topics-table"), "the topic", timeout_s=TIMEOUT_S)
        await pilot.press("3")
        await until(lambda: first_column(app, "#groups-table") == [GROUP], "the group", timeout_s=TIMEOUT_S)
        await pilot.press("enter")
        await pilot.pause()
        lines = app.screen.query_one("#lines", Static)
        await until(
            lambda: "lag 18 records" in str(lines.render()), lambda: str(lines.render()), timeout_s=TIMEOUT_S
        )
        assert first_column(app, "#part-1") == ["orders-0", "orders-1"]
        await pilot.press("escape")
        await pilot.pause()
        assert first_column(app, "#groups-table") == [GROUP]

    asyncio.run(run())


class OnTerminal:
    """The command on a pseudo-terminal, and the screen that it draws."""

    def __init__(self, *arguments: str) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, its = os.openpty()
        termios.tcsetwinsize(its, (LINES, COLUMNS))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True
        )
        os.close(its)

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, shown: Callable[[str], object]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not shown(self.text):
            assert time.monotonic() < deadline, f"not within {TIMEOUT_S} s on the screen:\n{self.text}"
            self._read()

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 0.1)
        if not ready:
            return
        with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
            self._stream.feed(os.read(self._ours, 65536))

    def end(self) -> int:
        """Reads on: a program whose output nobody takes does not end."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self._read()
        return self.process.returncode


def test_it_draws_on_a_real_terminal_and_ends_with_q(node: NodeProcess) -> None:
    with OnTerminal("--bootstrap", node.bootstrap) as terminal:
        terminal.wait_for(lambda text: "1 node" in text and "up, controller" in text)
        terminal.press("3")
        terminal.wait_for(lambda text: GROUP in text)
        terminal.press("\r")
        terminal.wait_for(lambda text: f"group {GROUP}" in text and "orders-1" in text)
        terminal.press("\x1b")
        terminal.wait_for(lambda text: f"group {GROUP}" not in text)
        terminal.press("q")
        assert terminal.end() == 0


def test_a_cluster_that_does_not_answer_is_told_on_the_screen() -> None:
    with OnTerminal("--bootstrap", "127.0.0.1:1") as terminal:
        terminal.wait_for(lambda text: "127.0.0.1:1" in text.partition("\n")[2])
        terminal.press("q")
        assert terminal.end() == 0


def run_once(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--once", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_once_prints_tab_separated_tables(node: NodeProcess) -> None:
    done = run_once("--over", "0s", "--bootstrap", node.bootstrap)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    billing = dict(zip(*[row for row in rows if row[0] in ("GROUP", GROUP)], strict=True))
    assert (billing["LAG"], billing["MEMBERS"], billing["STATE"]) == ("18", "0", "Empty")
    assert [row[1] for row in rows if row[0] == "orders"] == ["2"]


def test_once_as_json_has_the_documents_with_rates(node: NodeProcess) -> None:
    done = run_once("--json", "--bootstrap", node.bootstrap)
    assert done.returncode == 0, done.stderr
    documents: dict[str, Any] = json.loads(done.stdout)
    assert set(documents) == {"cluster", "topics", "groups"}
    (orders,) = [topic for topic in documents["topics"]["topics"] if topic["name"] == "orders"]
    assert orders["rate_in"] == 0


def test_once_fails_with_what_to_do_where_no_cluster_answers() -> None:
    done = run_once("--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
