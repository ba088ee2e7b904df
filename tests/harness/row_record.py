# SPDX-License-Identifier: Apache-2.0
"""Which tests of a row of the source drawings passed in a run, written to the file that HEADRACE_ROWS names.

A pytest plugin; without the variable it does nothing. Several runs, as those of `make check`, add to one
file. `--collect-only` writes which tests there are. Read next: row_summary.py, drawings.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.harness.left_out import reason_of

FILE_VARIABLE = "HEADRACE_ROWS"
Outcome = Literal["collected", "passed", "failed", "skipped", "left out"]
_PROPERTY = "rows of the drawings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One test of one row in one run."""

    row: str
    test: str
    outcome: Outcome
    reason: str = ""
    """Why it was left out."""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]

    def as_line(self) -> str:
        return "\t".join((self.outcome, self.row, self.test, self.reason))


def read_record(file: Path) -> list[Entry]:
    """Of a test that ran more than once, the last run counts."""
    last: dict[tuple[str, str], Entry] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        outcome, row, test, reason = line.split("\t")
        last[row, test] = Entry(row=row, test=test, outcome=outcome, reason=reason)  # type: ignore[arg-type]
    return list(last.values())


def register(config: pytest.Config) -> None:
    """In every process: workers of xdist attach the rows to the reports that they hand on."""
    if path := os.environ.get(FILE_VARIABLE):
        writes = not hasattr(config, "workerinput")
        config.pluginmanager.register(RowRecord(Path(path), writes=writes))


class RowRecord:
    """Collects the outcomes and writes them at the end of the session; a pytest plugin."""

    def __init__(self, file: Path, *, writes: bool) -> None:
        self._file = file
        self._writes = writes
        self._found: dict[tuple[str, str], Entry] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            rows = _rows_of(item)
            if session.config.option.collectonly:
                self._note(rows, item.nodeid, "collected")
            elif rows:
                item.user_properties.append((_PROPERTY, rows))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = dict(report.user_properties).get(_PROPERTY)
        if not isinstance(rows, list):
            return
        if report.failed:
            self._note(rows, report.nodeid, "failed")
        elif report.skipped:
            reason = reason_of(report)
            self._note(rows, report.nodeid, "left out" if reason else "skipped", reason)
        elif report.when == "call":
            self._note(rows, report.nodeid, "passed")

    def pytest_sessionfinish(self) -> None:
        if not self._writes or not self._found:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.writelines(f"{entry.as_line()}\n" for entry in self._found.values())

    def _note(self, rows: Iterable[str], test: str, outcome: Outcome, reason: str = "") -> None:
        for row in rows:
            self._found[row, test] = Entry(row=row, test=test, outcome=outcome, reason=reason)


def _rows_of(item: pytest.Item) -> list[str]:
    return sorted({str(row) for mark in item.iter_markers("row") for row in mark.args})
