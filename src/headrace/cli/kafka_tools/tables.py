# SPDX-License-Identifier: Apache-2.0
"""Tables of Apache Kafka's consumer-groups tool: columns padded to fixed least widths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.cli.output import Output, clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    width: int = 0
    """Least width; 0: not padded."""
    fixed: bool = False
    """Longer values do not widen the column."""


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> list[str]:
    """The header and the rows, with one space between columns."""
    cells = [[column.name for column in columns], *[[shown(cell) for cell in row] for row in rows]]
    widths = [_width(column, [row[place] for row in cells[1:]]) for place, column in enumerate(columns)]
    return [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def print_table(output: Output, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Preceded by an empty line, as in Apache Kafka."""
    output.line("")
    for line in table_lines(columns, rows):
        output.line(line)


def shown(cell: object) -> str:
    return "-" if cell is None else clean(str(cell))


def _width(column: Column, cells: Sequence[str]) -> int:
    if column.fixed or not column.width:
        return column.width
    return max([column.width, *map(len, cells)])
