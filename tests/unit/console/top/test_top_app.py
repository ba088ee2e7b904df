# SPDX-License-Identifier: Apache-2.0
"""Keys and screens of `headrace top`, by Textual's pilot, with canned documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual.pilot import Pilot
from textual.widgets import Static, TabbedContent

from headrace.console.top.app import TopApp
from headrace.console.top.table_view import LiveTable
from tests.unit.console.top import documents
from tests.unit.console.top.documents import CannedDocuments

Steps = Callable[[TopApp, Pilot[None]], Awaitable[None]]


def drive(source: CannedDocuments, steps: Steps) -> None:
    async def run() -> None:
        app = TopApp(source, "127.0.0.1:9092")
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await steps(app, pilot)

    asyncio.run(run())


def first_column(app: TopApp, selector: str) -> list[str]:
    table = app.screen.query_one(selector, LiveTable)
    return [str(table.get_row_at(index)[0]) for index in range(table.row_count)]


def text_of(app: TopApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).render())


def test_the_keys_1_2_3_show_cluster_topics_and_groups() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert first_column(app, "#cluster-table") == ["0", "1"]
        for key, tab in (("2", "topics"), ("3", "groups"), ("1", "cluster")):
            await pilot.press(key)
            await pilot.pause()
            assert app.screen.query_one(TabbedContent).active == tab

    drive(CannedDocuments(), steps)


def test_only_the_tab_that_is_shown_is_followed() -> None:
    source = CannedDocuments()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await pilot.pause()
        assert source.open == 1
        assert source.asked[-1] == ("groups", {"q": "", "limit": "500", "sort": "-lag"})

    drive(source, steps)
    assert source.open == 0


def test_groups_are_sorted_by_lag_and_s_and_r_change_that() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await pilot.pause()
        assert first_column(app, "#groups-table") == ["billing", "audit", "mail"]
        await pilot.press("r")
        await pilot.pause()
        assert first_column(app, "#groups-table") == ["audit", "billing", "mail"]
        await pilot.press(*"sssssss")
        await pilot.pause()
        assert first_column(app, "#groups-table") == ["audit", "billing", "mail"]

    drive(CannedDocuments(), steps)


def test_a_filter_narrows_the_list_here_and_in_the_cluster() -> None:
    source = CannedDocuments()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("2", "slash", *"pay", "enter")
        await pilot.pause()
        assert first_column(app, "#topics-table") == ["payments"]
        assert source.asked[-1] == ("topics", {"q": "pay", "limit": "500", "sort": "-rate_in"})
        await pilot.press("escape")
        await pilot.pause()
        assert len(first_column(app, "#topics-table")) == 3

    drive(source, steps)


def test_enter_opens_a_group_and_escape_goes_back() -> None:
    source = CannedDocuments()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert source.asked[-1] == ("group", {"group": "billing"})
        assert source.open == 1
        assert "Slowest: b, 6,000 records behind" in text_of(app, "#lines")
        assert first_column(app, "#part-0") == ["a", "b"]
        await pilot.press("escape")
        await pilot.pause()
        assert source.asked[-1][0] == "groups"

    drive(source, steps)


def test_enter_opens_a_topic() -> None:
    source = CannedDocuments()

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        assert source.asked[-1] == ("topic", {"topic": "payments"})
        assert first_column(app, "#part-1") == ["billing"]

    drive(source, steps)


def test_problem_and_alarms_are_shown_with_what_to_do() -> None:
    alarm = {"level": "error", "text": "node 1 is down", "next": "start it", "command": None, "since": None}
    trouble = {"problem": "no broker answers", "alarms": [alarm | {"path": None}]}

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        assert text_of(app, "#cluster-view .status").splitlines() == [
            "no broker answers",
            "error: node 1 is down → start it",
        ]

    drive(CannedDocuments(cluster=documents.cluster() | trouble), steps)


def test_a_view_that_cannot_be_shown_says_what_to_do() -> None:
    source = CannedDocuments()
    del source.documents["group"]

    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("3")
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert text_of(app, "#detail .status") == "there is no group; create it"

    drive(source, steps)


def test_markup_in_names_is_shown_as_text() -> None:
    async def steps(app: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("2")
        await pilot.pause()
        assert "evil\\x1b[2J[bold]name[/]" in first_column(app, "#topics-table")

    drive(CannedDocuments(), steps)
