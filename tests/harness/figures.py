# SPDX-License-Identifier: Apache-2.0
"""Finds measured figures in a document and compares quotes with cells of benchmark tables.

Knows neither the documents nor which quote belongs to which cell: tests/docs/figures.toml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

COLUMNS = {"kafka": 1, "os": 2, "os ratio": 3, "target": 4, "ack": 6, "ack ratio": 7}
"""Names of the columns in a table of docs/benchmarks."""
CURVE_COLUMNS = {"smallest": 3, "middle": 4, "largest": 5, "each": 6, "growth": 7}
"""In a table of curves."""
_SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "k": 1e3, "million": 1e6}
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_COMPARISONS = r"×|times\b|-fold\b|(?:k |million )?(?:records|rows|requests|commits)/s|[MG]B/s"
_QUANTITIES = r"ms\b|µs\b|s\b|[MG]i?B\b"
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`|<!--.*?-->", flags=re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^(?=#+ |- |\d+\. )", flags=re.MULTILINE)
_LINK = re.compile(r"\]\([^)]*\)")
_FIRST = re.compile(rf"(?<![\w.,])({_NUMBER})(?:\s*(s|ms|µs|k|million)\b)?")


def normalized(text: str) -> str:
    """One space between words, so that a quote may go over the end of a line."""
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Figure:
    text: str
    begin: int
    end: int
    """Place in the normalized document."""


def find_figures(document: str) -> list[Figure]:
    """Ratios and rates; also times and sizes in sections and list items that link to a benchmark.

    Targets (≥, ≤) are none. Code is no prose: what it shows is compared by the tests that run it.
    """
    found = []
    begin = 0
    for section in filter(None, map(str.strip, _SECTION.split(_blank(_CODE, document)))):
        units = f"{_COMPARISONS}|{_QUANTITIES}" if "benchmarks/" in section else _COMPARISONS
        pattern = re.compile(rf"(?<![\w.,≥≤=-])(?<![≥≤] ){_NUMBER}\s?(?:{units})")
        text = normalized(_blank(_LINK, section))
        found += [
            Figure(each[0], begin + each.start(), begin + each.end()) for each in pattern.finditer(text)
        ]
        begin += len(text) + 1
    return found


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """Replace every letter of what matches; places stay the same."""
    return pattern.sub(lambda match: re.sub(r"\S", "_", match[0]), text)


def agrees(quote: str, cell: str) -> bool:
    """Whether the quote's first number is that of the cell, rounded; without a unit it is in the cell's."""
    number, unit = _first_number(quote)
    measured, cell_unit = _first_number(cell)
    scale = _SCALES[unit] / _SCALES.get(cell_unit, 1.0) if unit in _SCALES else 1.0
    half_a_digit = 0.5 * 0.1 ** len(number.partition(".")[2])
    return abs(float(number) - float(measured) / scale) <= half_a_digit * (1 + 1e-9)


def _first_number(text: str) -> tuple[str, str]:
    match = _FIRST.search(text)
    if match is None:
        raise ValueError(f"no number in {text!r}")
    return match[1].replace(",", ""), match[2] or ""


def read_cell(table: Path, row: str, column: str) -> str:
    """A cell of a benchmark table; raises LookupError unless exactly one row has this name."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in table.read_text().splitlines()
        if line.startswith("| ")
    ]
    found = [cells for cells in rows if cells[0] == row]
    if len(found) != 1:
        raise LookupError(f"{table.name} has {len(found)} rows named {row!r}")
    return found[0][{**COLUMNS, **CURVE_COLUMNS}[column]]
