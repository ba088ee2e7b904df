# SPDX-License-Identifier: Apache-2.0
"""The screen of one topic or one group: its lines at a glance, and two live tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Label, Static

from headrace.console.top import summaries, tables
from headrace.console.top.live import Documents, LiveView
from headrace.console.top.table_view import LiveTable
from headrace.console.top.values import printable
from headrace.console.views.view import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    title: str
    make: Callable[[tables.Document], tables.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What can be opened: the list it is opened from, its view, and what is shown of it."""

    noun: str
    view: str
    lines: Callable[[tables.Document], list[str]]
    parts: tuple[Part, ...]


KINDS = {
    "topics": Kind(
        noun="topic",
        view="topic",
        lines=summaries.topic_lines,
        parts=(
            Part(title="Partitions", make=tables.topic_partitions_table),
            Part(title="Groups", make=tables.topic_groups_table),
        ),
    ),
    "groups": Kind(
        noun="group",
        view="group",
        lines=summaries.group_lines,
        parts=(
            Part(title="Consumers", make=tables.members_table),
            Part(title="Partitions", make=tables.group_partitions_table),
        ),
    ),
}
"""By the view with the list."""


class DetailView(LiveView):
    def __init__(self, documents: Documents, kind: Kind, params: Mapping[str, str]) -> None:
        super().__init__(documents, kind.view, params, id="detail")
        self._kind = kind
        self._lines = Static("", id="lines")
        self._tables = [LiveTable(id=f"part-{index}") for index in range(len(kind.parts))]

    def compose(self) -> ComposeResult:
        yield self._status
        yield self._lines
        for part, table in zip(self._kind.parts, self._tables, strict=True):
            yield Label(part.title, classes="heading")
            yield table

    def show(self, document: Document) -> None:
        self._lines.update(Text("\n".join(self._kind.lines(document))))
        for part, table in zip(self._kind.parts, self._tables, strict=True):
            shown = part.make(document)
            table.show(shown, tuple(column.name for column in shown.columns))


class DetailScreen(Screen[None]):
    BINDINGS = [Binding("escape", "app.pop_screen", "back")]  # noqa: RUF012 -- declared by the base class

    def __init__(self, documents: Documents, kind: Kind, name: str) -> None:
        super().__init__()
        self._title = Text(f"{kind.noun} {printable(name)}", "bold")
        self._view = DetailView(documents, kind, {kind.noun: name})

    def compose(self) -> ComposeResult:
        yield Static(self._title, id="title")
        yield self._view
        yield Footer()

    def on_mount(self) -> None:
        self._view.start()
