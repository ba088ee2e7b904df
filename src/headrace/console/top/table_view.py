# SPDX-License-Identifier: Apache-2.0
"""A live table: sorted, filtered, and updated in place, so that the cursor stays on its row.

Read next: app.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import DataTable, Input, Static

from headrace.console.top.live import Documents, LiveView
from headrace.console.top.tables import Table
from headrace.console.views.view import Document


class LiveTable(DataTable[Text]):
    """Shows a Table; rows are told apart by their keys."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._headings: tuple[str, ...] = ()
        self._widths: list[int] = []
        self._keys: list[str] = []
        self._texts: list[tuple[str, ...]] = []

    def show(self, table: Table, headings: tuple[str, ...]) -> None:
        texts = [table.texts(row) for row in table.rows]
        keys = [row.key for row in table.rows]
        numbers = [column.number for column in table.columns]
        widths = [max(map(cell_len, column)) for column in zip(headings, *texts, strict=True)]
        fits = all(width <= shown for width, shown in zip(widths, self._widths, strict=False))
        if headings == self._headings and keys == self._keys and fits:
            self._change(texts, numbers)
        else:
            self._build(headings, widths, keys, texts, numbers)
        self._headings, self._keys, self._texts = headings, keys, texts

    @property
    def key(self) -> str | None:
        """Of the row under the cursor."""
        return self._keys[self.cursor_row] if 0 <= self.cursor_row < len(self._keys) else None

    def _change(self, texts: list[tuple[str, ...]], numbers: list[bool]) -> None:
        for row, (before, after) in enumerate(zip(self._texts, texts, strict=True)):
            for column, (old, new) in enumerate(zip(before, after, strict=True)):
                if old != new:
                    self.update_cell(self._keys[row], str(column), _cell(new, numbers[column]))

    def _build(
        self,
        headings: tuple[str, ...],
        widths: list[int],
        keys: list[str],
        texts: list[tuple[str, ...]],
        numbers: list[bool],
    ) -> None:
        key, top = self.key, self.scroll_offset
        self._widths = widths
        self.clear(columns=True)
        for index, heading in enumerate(headings):
            self.add_column(_cell(heading, numbers[index]), key=str(index), width=widths[index])
        for name, row in zip(keys, texts, strict=True):
            self.add_row(*map(_cell, row, numbers), key=name)
        if key in keys:
            self.move_cursor(row=keys.index(key), scroll=False)
            self.scroll_to(top.x, top.y, animate=False)


class TableView(LiveView):
    """One tab: a filter, a table, and keys to sort it."""

    BINDINGS = [  # noqa: RUF012 -- declared by the base class
        Binding("slash", "filter", "filter"),
        Binding("s", "sort", "sort by next column"),
        Binding("r", "reverse", "reverse"),
    ]

    class Opened(Message):
        """A row was chosen."""

        def __init__(self, view: str, key: str) -> None:
            super().__init__()
            self.view = view
            self.key = key

    def __init__(
        self,
        documents: Documents,
        view: str,
        params: Mapping[str, str],
        make: Callable[[Document], Table],
        *,
        sort: int,
        heading: Callable[[Document], str],
    ) -> None:
        super().__init__(documents, view, params, id=f"{view}-view")
        self._make = make
        self._heading_of = heading
        self._sort = sort
        self._reverse = False
        self._heading = Static("", classes="heading")
        self._filter = Input(placeholder="part of the name; enter keeps it, escape clears it")
        self._table = LiveTable(id=f"{view}-table")

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self._status
        yield self._filter
        yield self._table

    def on_mount(self) -> None:
        self._filter.display = False

    def focus_table(self) -> None:
        self._table.focus()

    def show(self, document: Document) -> None:
        table = self._make(document)
        shown = table.filtered(self._filter.value).sorted_by(self._sort, reverse=self._reverse)
        self._heading.update(
            Text(self._heading_of(document) + (f"  {table.note}: / filters" if table.note else ""))
        )
        arrow = "▲" if shown.columns[self._sort].number == self._reverse else "▼"
        headings = tuple(
            f"{column.name} {arrow}" if index == self._sort else column.name
            for index, column in enumerate(shown.columns)
        )
        self._table.show(shown, headings)

    def action_sort(self) -> None:
        if self.document is not None:
            self._sort = (self._sort + 1) % len(self._make(self.document).columns)
            self._reverse = False
            self.show(self.document)

    def action_reverse(self) -> None:
        self._reverse = not self._reverse
        if self.document is not None:
            self.show(self.document)

    def action_filter(self) -> None:
        self._filter.display = True
        self._filter.focus()

    def clear_filter(self) -> bool:
        """Whether there was one."""
        if not self._filter.display:
            return False
        self._filter.value = ""
        self._filter.display = False
        self._table.focus()
        return True

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        """The shown rows at once, and from the cluster's own list, which may be longer."""
        if self.document is not None:
            self.show(self.document)
        if "q" in self._params:
            self._params["q"] = event.value
            self.start()

    @on(Input.Submitted)
    def _filter_kept(self) -> None:
        self._table.focus()

    @on(DataTable.RowSelected)
    def _row_chosen(self) -> None:
        if self._table.key is not None:
            self.post_message(self.Opened(self._view, self._table.key))


def _cell(text: str, number: bool) -> Text:
    """Without markup: names come from strangers."""
    return Text(text, justify="right" if number else "left", no_wrap=True)
