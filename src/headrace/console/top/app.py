# SPDX-License-Identifier: Apache-2.0
"""The terminal application: three tabs with live tables, and a screen for a topic or a group.

The views come from an Observer in the same process. Read next: table_view.py, detail.py.
"""

from __future__ import annotations

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from headrace.console.top import summaries, tables
from headrace.console.top.detail import KINDS, DetailScreen
from headrace.console.top.live import Documents
from headrace.console.top.table_view import TableView
from headrace.console.top.values import printable

_LIMIT = "500"
"""Rows of a list; a filter finds the others."""
_TABS = ("cluster", "topics", "groups")


class OverviewScreen(Screen[None]):
    """Only the tab that is shown follows its view."""

    BINDINGS = [  # noqa: RUF012 -- declared by the base class
        Binding("1", "tab('cluster')", "cluster"),
        Binding("2", "tab('topics')", "topics"),
        Binding("3", "tab('groups')", "groups"),
        Binding("escape", "clear_filter", "clear filter", show=False),
        Binding("q", "app.quit", "quit"),
    ]

    def __init__(self, documents: Documents, target: str) -> None:
        super().__init__()
        self._documents = documents
        self._target = target
        self._views = {
            "cluster": TableView(
                documents,
                "cluster",
                {},
                tables.nodes_table,
                sort=tables.column(tables.NODES, "ADDRESS"),
                heading=summaries.cluster_line,
            ),
            "topics": TableView(
                documents,
                "topics",
                {"q": "", "limit": _LIMIT, "sort": "-rate_in"},
                tables.topics_table,
                sort=tables.column(tables.TOPICS, "IN/S"),
                heading=summaries.topics_line,
            ),
            "groups": TableView(
                documents,
                "groups",
                {"q": "", "limit": _LIMIT, "sort": "-lag"},
                tables.groups_table,
                sort=tables.column(tables.GROUPS, "LAG"),
                heading=summaries.groups_line,
            ),
        }

    def compose(self) -> ComposeResult:
        yield Static(f"Headrace top  {printable(self._target)}", id="title", markup=False)
        with TabbedContent(initial="cluster"):
            for number, name in enumerate(_TABS, start=1):
                with TabPane(f"{number} {name}", id=name):
                    yield self._views[name]
        yield Footer()

    @property
    def shown(self) -> TableView:
        return self._views[self.query_one(TabbedContent).active]

    def action_tab(self, name: str) -> None:
        self.query_one(TabbedContent).active = name

    def action_clear_filter(self) -> None:
        self.shown.clear_filter()

    def on_screen_suspend(self) -> None:
        self._follow(None)

    def on_screen_resume(self) -> None:
        self._follow(self.shown)

    @on(TabbedContent.TabActivated)
    def _tab_activated(self) -> None:
        if self.is_current:
            self._follow(self.shown)

    @on(TableView.Opened)
    def _row_opened(self, event: TableView.Opened) -> None:
        kind = KINDS.get(event.view)
        if kind is not None:
            self.app.push_screen(DetailScreen(self._documents, kind, event.key))

    def _follow(self, wanted: TableView | None) -> None:
        for view in self._views.values():
            if view is not wanted:
                view.stop()
        if wanted is not None:
            wanted.start()
            wanted.focus_table()


class TopApp(App[None]):
    TITLE = "headrace top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    .heading { padding: 0 1; color: $text-muted; }
    .status { height: auto; max-height: 6; padding: 0 1; }
    #lines { height: auto; padding: 0 1; }
    Input { border: none; height: 1; margin: 0 1; padding: 0 1; }
    TabbedContent, TableView { height: 1fr; }
    TabPane { padding: 0; }
    DetailView { height: 1fr; }
    LiveTable { height: 1fr; }
    """

    def __init__(self, documents: Documents, target: str) -> None:
        super().__init__()
        self._documents = documents
        self._target = target

    def on_mount(self) -> None:
        self.push_screen(OverviewScreen(self._documents, self._target))
