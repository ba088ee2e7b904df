# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/evidence/faults.md: how often each fault was injected, from the reports in build/soak.

`make faults` writes them. tests/faults.toml lists the faults and where their numbers are. A row whose report
is not at hand keeps what the page said before, so that reports of several machines complete it; without
that it says what the catalogue knows of an earlier run, or that there is no number.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import soak

CATALOGUE = Path(__file__).resolve().parents[1] / "faults.toml"
BEGIN, END = "<!-- table: written by make faults -->", "<!-- end of table -->"
NO_NUMBER = "no number: the long form has not been run to its end"
_HEAD = "| fault | how often, in the last long run | when | again |\n|---|---|---|---|"
_MISSING_HEAD = "| fault | instead |\n|---|---|"
_MOST_NAMES = 12


def read_catalogue() -> dict[str, list[dict[str, str]]]:
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


def rows(catalogue: Mapping[str, Sequence[Mapping[str, str]]], folder: Path, page: str) -> list[str]:
    before = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines()}
    return [_row(fault, _matching(folder, fault["reports"]), before) for fault in catalogue["fault"]]


def _matching(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{pattern}.json"))]


def _row(fault: Mapping[str, str], reports: Sequence[Mapping[str, Any]], before: Mapping[str, str]) -> str:
    what, again = fault["what"], f"`make soak PART={fault['part']}`"
    if reports:
        return f"| {what} | {counted(reports, fault['count'])} | {_when(reports)} | {again} |"
    if what in before and NO_NUMBER not in before[what]:
        return before[what]
    if "earlier" in fault:
        return (
            f"| {what} | {fault['earlier']} | told by the [evidence](README.md), report not kept | {again} |"
        )
    return f"| {what} | {NO_NUMBER} | – | {again} |"


def counted(reports: Sequence[Mapping[str, Any]], name: str) -> str:
    """The sum over the reports; of a mapping, with its parts."""
    total, parts = 0, Counter[str]()
    for report in reports:
        found = report[name]
        if isinstance(found, Mapping):
            parts.update({str(kind): int(count) for kind, count in found.items()})
            total += sum(int(count) for count in found.values())
        else:
            total += int(found)
    if not parts:
        return f"{total:,}"
    named = [f"{kind} {count:,}" for kind, count in parts.most_common(_MOST_NAMES)]
    more = len(parts) - len(named)
    return f"{total:,}: {', '.join(named)}" + (f", {more} more kinds" if more else "")


def _when(reports: Sequence[Mapping[str, Any]]) -> str:
    commits = sorted({str(report["commit"])[:8] for report in reports})
    seeds = {report.get("seed", report.get("first_seed")) for report in reports} - {None}
    seconds = sum(float(report["seconds"]) for report in reports)
    told = f"commit {', '.join(commits)}, {seconds:,.0f} s"
    return told + "".join(f", seed {seed}" for seed in sorted(seeds, key=str))


def with_tables(page: str, folder: Path) -> str:
    catalogue = read_catalogue()
    injected = [_HEAD, *rows(catalogue, folder, page)]
    missing = [_MISSING_HEAD, *(f"| {each['what']} | {each['why']} |" for each in catalogue["missing"])]
    head, _, rest = page.partition(BEGIN)
    _, _, rest = rest.partition(END)
    middle, _, rest = rest.partition(BEGIN)
    _, _, tail = rest.partition(END)
    tables = ["\n".join([BEGIN, *lines, END]) for lines in (injected, missing)]
    return f"{head}{tables[0]}{middle}{tables[1]}{tail}"


def main(document: str, folder: str | None = None) -> None:
    path = Path(document)
    path.write_text(with_tables(path.read_text(), Path(folder) if folder else soak.REPORTS))


if __name__ == "__main__":
    main(*sys.argv[1:])
