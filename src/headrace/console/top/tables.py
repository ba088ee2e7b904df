# SPDX-License-Identifier: Apache-2.0
"""Documents of the views as tables with typed cells, for the terminal and for `--once`. Pure.

A cell keeps its value, by which a table is sorted; its column says how it is shown. Read next: table_view.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.console.top import values

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    show: Callable[[Any], str] = values.printable
    number: bool = False
    """Aligned to the right, and sorted with the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    key: str
    cells: tuple[Any, ...]
    last: bool = False
    """After all others, however they are sorted: internal topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    """What the rows leave out."""

    def texts(self, row: Row) -> tuple[str, ...]:
        return tuple(column.show(cell) for column, cell in zip(self.columns, row.cells, strict=True))

    def filtered(self, text: str) -> Table:
        """Rows with the text in their first cell, upper or lower case."""
        if not text:
            return self
        wanted = text.casefold()
        rows = tuple(row for row in self.rows if wanted in values.printable(row.cells[0]).casefold())
        return Table(columns=self.columns, rows=rows, note=self.note)

    def sorted_by(self, index: int, *, reverse: bool = False) -> Table:
        """Unknown values come last either way."""
        number = self.columns[index].number
        known = [row for row in self.rows if row.cells[index] is not None]
        unknown = tuple(row for row in self.rows if row.cells[index] is None)
        known.sort(key=lambda row: row.key)
        known.sort(
            key=lambda row: row.cells[index] if number else str(row.cells[index]).casefold(),
            reverse=number != reverse,
        )
        rows = sorted((*known, *unknown), key=lambda row: row.last)
        return Table(columns=self.columns, rows=tuple(rows), note=self.note)


NODES = (
    Column(name="NODE", number=True, show=values.printable),
    Column(name="ADDRESS"),
    Column(name="STATE"),
    Column(name="LEADERS", number=True, show=values.count),
    Column(name="REPLICAS", number=True, show=values.count),
    Column(name="OUT OF SYNC", number=True, show=values.count),
    Column(name="IN/S", number=True, show=values.rate),
    Column(name="DISK USED", number=True, show=values.size),
    Column(name="DISK FREE", number=True, show=values.size),
    Column(name="SINCE", show=values.moment),
    Column(name="PROBLEM"),
)
TOPICS = (
    Column(name="TOPIC"),
    Column(name="PARTITIONS", number=True, show=values.count),
    Column(name="REPLICATION", number=True, show=values.count),
    Column(name="RECORDS", number=True, show=values.count),
    Column(name="SIZE", number=True, show=values.size),
    Column(name="IN/S", number=True, show=values.rate),
    Column(name="LAG", number=True, show=values.count),
    Column(name="OUT OF SYNC", number=True, show=values.count),
    Column(name="NO LEADER", number=True, show=values.count),
)
GROUPS = (
    Column(name="GROUP"),
    Column(name="STATE"),
    Column(name="MEMBERS", number=True, show=values.count),
    Column(name="LAG", number=True, show=values.count),
    Column(name="BEHIND", number=True, show=values.duration),
    Column(name="IN/S", number=True, show=values.rate),
    Column(name="OUT/S", number=True, show=values.rate),
    Column(name="TREND", show=values.trend),
    Column(name="CLEAR IN", number=True, show=values.clear_in),
    Column(name="TOPICS"),
)
MEMBERS = (
    Column(name="CONSUMER"),
    Column(name="HOST"),
    Column(name="PARTITIONS"),
    Column(name="LAG", number=True, show=values.count),
    Column(name="OUT/S", number=True, show=values.rate),
    Column(name="SLOWEST"),
    Column(name="LAST COMMIT", show=values.moment),
)
GROUP_PARTITIONS = (
    Column(name="PARTITION"),
    Column(name="CONSUMER"),
    Column(name="POSITION", number=True, show=values.count),
    Column(name="COMMITTED", number=True, show=values.count),
    Column(name="END", number=True, show=values.count),
    Column(name="LAG", number=True, show=values.count),
    Column(name="BEHIND", number=True, show=values.at_least),
    Column(name="TREND", show=values.trend),
    Column(name="CLEAR IN", number=True, show=values.clear_in),
)
TOPIC_PARTITIONS = (
    Column(name="PARTITION", number=True, show=values.printable),
    Column(name="LEADER", number=True, show=values.leader),
    Column(name="REPLICAS"),
    Column(name="IN SYNC"),
    Column(name="START", number=True, show=values.count),
    Column(name="END", number=True, show=values.count),
    Column(name="SIZE", number=True, show=values.size),
    Column(name="IN/S", number=True, show=values.rate),
    Column(name="OPEN TRANSACTIONS", number=True, show=values.count),
)
TOPIC_GROUPS = (
    Column(name="GROUP"),
    Column(name="STATE"),
    Column(name="LAG", number=True, show=values.count),
    Column(name="BEHIND", number=True, show=values.duration),
    Column(name="TREND", show=values.trend),
)


def column(columns: tuple[Column, ...], name: str) -> int:
    return next(index for index, each in enumerate(columns) if each.name == name)


def nodes_table(document: Document) -> Table:
    rows = (
        (
            node["id"],
            f"{node['host']}:{node['port']}",
            node["state"] + (", controller" if node["controller"] else ""),
            node["leaders"],
            node["replicas"],
            node["out_of_sync"],
            node["records_in"],
            node["disk_used"],
            node["disk_free"],
            node["since"],
            node["problem"] or "",
        )
        for node in document["nodes"]
    )
    return _table(NODES, rows)


def topics_table(document: Document) -> Table:
    rows = (
        (
            topic["name"],
            topic["partitions"],
            topic["replication"],
            topic["records"],
            topic["size_bytes"],
            topic["rate_in"],
            topic["lag"],
            topic["under_replicated"],
            topic["without_leader"],
        )
        for topic in document["topics"]
    )
    internal = {topic["name"] for topic in document["topics"] if topic["internal"]}
    return _table(TOPICS, rows, last=internal, note=_left_out(document, "topics"))


def groups_table(document: Document) -> Table:
    rows = (
        (
            group["id"],
            group["state"],
            group["members"],
            group["lag"],
            group["behind"],
            group["rate_in"],
            group["rate_out"],
            group["trend"],
            _clear_in(group),
            ", ".join(group["topics"]),
        )
        for group in document["groups"]
    )
    return _table(GROUPS, rows, note=_left_out(document, "groups"))


def members_table(document: Document) -> Table:
    names = member_names(document["members"])
    rows = (
        (
            names[member["member_id"]],
            member["host"],
            ", ".join(f"{each['topic']}-{each['partition']}" for each in member["partitions"]) or "none",
            member["lag"],
            member["rate_out"],
            slow_since(member),
            member["last_commit"],
        )
        for member in document["members"]
    )
    return _table(MEMBERS, rows, keys=[member["member_id"] for member in document["members"]])


def group_partitions_table(document: Document) -> Table:
    names = member_names(document["members"])
    rows = (
        (
            f"{each['topic']}-{each['partition']}",
            names.get(each["member_id"]),
            each["position"],
            each["committed"],
            each["end"],
            each["lag"],
            _behind(each),
            each["trend"],
            _clear_in(each),
        )
        for each in document["partitions"]
    )
    return _table(GROUP_PARTITIONS, rows)


def topic_partitions_table(document: Document) -> Table:
    rows = (
        (
            each["partition"],
            None if each["leader"] == -1 else each["leader"],
            ", ".join(map(str, each["replicas"])),
            ", ".join(map(str, each["isr"])),
            each["start"],
            each["end"],
            each["size_bytes"],
            each["rate_in"],
            len(each["open_transactions"] or ()),
        )
        for each in document["partitions"]
    )
    return _table(TOPIC_PARTITIONS, rows)


def topic_groups_table(document: Document) -> Table:
    rows = (
        (each["id"], each["state"], each["lag"], each["behind"], each["trend"]) for each in document["groups"]
    )
    return _table(TOPIC_GROUPS, rows)


def member_names(members: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By member id: the instance id, else the client id, with a number where several share it."""
    taken: dict[str, int] = {}
    names = {}
    for member in members:
        name = member["instance_id"] or member["client_id"] or member["member_id"]
        taken[name] = taken.get(name, 0) + 1
        names[member["member_id"]] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return names


def slow_since(member: Mapping[str, Any]) -> str:
    if not member["slow"]:
        return ""
    since = member["behind_since"]
    return "slowest" if since is None else f"slowest since {values.moment(since)}"


def _behind(partition: Mapping[str, Any]) -> tuple[float, bool] | None:
    return None if partition["behind"] is None else (partition["behind"], bool(partition["behind_at_least"]))


def _clear_in(lagging: Mapping[str, Any]) -> float | None:
    never = lagging["clear_in"] is None and lagging["trend"] == "growing"
    return math.inf if never else lagging["clear_in"]


def _table(
    columns: tuple[Column, ...],
    rows: Iterable[tuple[Any, ...]],
    *,
    keys: Iterable[str] | None = None,
    last: Collection[str] = (),
    note: str = "",
) -> Table:
    cells = list(rows)
    named = [str(row[0]) for row in cells] if keys is None else list(keys)
    return Table(
        columns=columns,
        rows=tuple(Row(key=key, cells=row, last=key in last) for key, row in zip(named, cells, strict=True)),
        note=note,
    )


def _left_out(document: Document, what: str) -> str:
    shown, total = len(document[what]), document["total"]
    return f"{shown:,} of {total:,} {what} are shown" if shown < total else ""
