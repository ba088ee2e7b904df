# SPDX-License-Identifier: Apache-2.0
"""What a record of rows says: which drawings a run proved, which it left out, which no test proved.

    python -m tests.harness.row_summary build/rows.txt          after `make test`, which runs some rows
    python -m tests.harness.row_summary build/rows.txt --all    after `make check`: a missing row fails it

Read next: row_record.py, which writes the record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.drawings import DEMO_TEST, DRAWINGS, ROOT
from tests.harness.row_record import Entry, read_record

_DEMO = DEMO_TEST.relative_to(ROOT).as_posix()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """Rows in the order of the drawings. A row is proved when one of its tests passed and none failed."""

    proved: tuple[str, ...]
    failed: tuple[str, ...]
    left_out: dict[str, str]
    """Rows without a test that passed, one of which was left out; and why."""
    not_run: tuple[str, ...]
    no_scene: tuple[str, ...]
    """Proved rows whose scene and section of the tour were neither tested nor left out."""

    def lines(self) -> list[str]:
        told = [f"Drawings proved by tests that passed in this run: {len(self.proved)} of {len(DRAWINGS)}"]
        told += [f"{_named(row)}: left out: {reason}" for row, reason in self.left_out.items()]
        told += [f"{_named(row)}: a test of it failed" for row in self.failed]
        if self.not_run:
            told.append(f"No test ran of: {', '.join(map(_named, self.not_run))}")
        return told

    @property
    def complete(self) -> bool:
        """What could be tested on this machine was tested."""
        return not (self.failed or self.not_run or self.no_scene)


def summarize(record: Iterable[Entry]) -> RowSummary:
    by_row: dict[str, list[Entry]] = {row: [] for row in DRAWINGS}
    for entry in record:
        by_row.setdefault(entry.row, []).append(entry)
    outcomes = {row: {entry.outcome for entry in entries} for row, entries in by_row.items()}
    failed = tuple(row for row, found in outcomes.items() if "failed" in found)
    proved = tuple(row for row, found in outcomes.items() if "passed" in found and row not in failed)
    open_rows = [row for row in by_row if row not in failed and row not in proved]
    left_out = {row: reason for row in open_rows if (reason := _why_left_out(by_row[row]))}
    return RowSummary(
        proved=proved,
        failed=failed,
        left_out=left_out,
        not_run=tuple(row for row in open_rows if row not in left_out),
        no_scene=tuple(row for row in proved if not _scene_was_tried(by_row[row])),
    )


def _named(row: str) -> str:
    return f"{row} ({DRAWINGS.get(row, 'no drawing has this number')})"


def _why_left_out(entries: Iterable[Entry]) -> str:
    return next((entry.reason for entry in entries if entry.outcome == "left out"), "")


def _scene_was_tried(entries: Iterable[Entry]) -> bool:
    return any(entry.file == _DEMO and entry.outcome in ("passed", "left out") for entry in entries)


def main(arguments: Sequence[str]) -> str | None:
    """Prints the summary; why the run is not complete, for the exit code, when all rows are asked for."""
    summary = summarize(read_record(Path(arguments[0])))
    print("\n".join(summary.lines()))
    if "--all" not in arguments or summary.complete:
        return None
    missing = ", ".join((*summary.failed, *summary.not_run, *summary.no_scene))
    return f"Not proved, or without a run of their scene and section of the tour: {missing} (make rows)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
