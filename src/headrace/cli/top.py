# SPDX-License-Identifier: Apache-2.0
"""`headrace top`: the console's views in the terminal, or once as tables or JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.durations import parse_duration_ms, seconds_text
from headrace.cli.errors import UsageError
from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Cell, Output, iso_time
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.console.top.tables import Column, Row, Table
    from headrace.console.views.view import Document


@takes_options
def top(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Print nodes, topics and groups once, for scripts.")
    ] = False,
    over: Annotated[
        str,
        typer.Option(
            "--over",
            metavar="DURATION",
            help="With --once: how long to measure rates at most; 0s: not at all.",
        ),
    ] = "15s",
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Watch nodes, topics and groups in the terminal, live.

    Keys: 1, 2, 3 choose cluster, topics or groups; enter opens a topic or a
    group, escape goes back; / filters, s sorts by the next column, r reverses,
    q quits. Works with Apache Kafka too.

    \b
    Examples:
      headrace top
      headrace top --bootstrap kafka:9092
      headrace top --once
      headrace top --once --json
    """
    import asyncio

    over_s = parse_duration_ms(over, "--over") / 1000
    if as_json and not once:
        raise UsageError("--json prints once", "add --once")
    if once:
        documents = asyncio.run(_read(connect.cluster(), over_s))
        if problem := documents["cluster"]["problem"]:
            raise ClientError(problem)
        _print(documents, Output(as_json=as_json))
        return
    if find_spec("textual") is None:
        raise ClientError(
            "headrace top needs the Python package textual", next_step="pip install 'headrace[console]'"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("headrace top draws on a terminal, and this is none", "add --once to print tables")
    asyncio.run(_watch(connect.cluster()))


async def _read(cluster: Cluster, over_s: float) -> dict[str, Document]:
    from headrace.console.observing.observer import Observer
    from headrace.console.top.once import documents_once

    observer = Observer(cluster)
    try:
        await observer.start()
        return await documents_once(observer, over_s=over_s)
    finally:
        await observer.close()


async def _watch(cluster: Cluster) -> None:
    from headrace.console.observing.observer import Observer
    from headrace.console.top.app import TopApp

    observer = Observer(cluster)
    try:
        await observer.start()
        await TopApp(observer, str(cluster)).run_async()
    finally:
        await observer.close()


def _print(documents: dict[str, Document], output: Output) -> None:
    from headrace.console.top import summaries, tables

    if output.as_json:
        output.document(documents)
        return
    cluster = documents["cluster"]
    output.line(summaries.cluster_line(cluster))
    topics = tables.topics_table(documents["topics"])
    groups = tables.groups_table(documents["groups"])
    for table in (
        tables.nodes_table(cluster),
        topics.sorted_by(tables.column(tables.TOPICS, "IN/S")),
        groups.sorted_by(tables.column(tables.GROUPS, "LAG")),
    ):
        output.line("")
        _print_table(table, output)


def _print_table(table: Table, output: Output) -> None:
    columns = [column.name for column in table.columns]
    output.table(columns, [_cells(table, row, output) for row in table.rows])
    if table.note:
        output.note(table.note)


def _cells(table: Table, row: Row, output: Output) -> Sequence[Cell]:
    """With units on a terminal; in a pipe plain numbers, and durations in seconds."""
    if output.terminal:
        return table.texts(row)
    return [_plain(column, cell) for column, cell in zip(table.columns, row.cells, strict=True)]


def _plain(column: Column, cell: Any) -> Cell:
    from headrace.console.top import values

    if cell is None or cell == "":
        return None
    if column.show in (values.count, values.size):
        return int(cell)
    if column.show is values.rate:
        return f"{cell:.1f}"
    if column.show is values.duration or (column.show is values.clear_in and cell != math.inf):
        return seconds_text(cell)
    if column.show is values.moment:
        return iso_time(cell)
    return cell if column.show is values.printable and column.number else column.show(cell)
