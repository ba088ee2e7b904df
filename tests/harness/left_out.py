# SPDX-License-Identifier: Apache-2.0
"""What a test run left out because something is missing on this machine, told by name at its end.

A test says `leave_out("Spark", reason)` instead of `pytest.skip`. Each pytest run shows what it left out;
`make test` and `make check` are several, which add to the file that HEADRACE_LEFT_OUT names, and
`python -m tests.harness.left_out FILE` makes one last line of it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

FILE_VARIABLE = "HEADRACE_LEFT_OUT"
NOTHING = "Nothing was left out."
_MARK = "left out: "


def leave_out(what: str, reason: str) -> NoReturn:
    """Skip the test. `what` cannot be tested: "Spark"; `reason`: what to install."""
    pytest.skip(f"{_MARK}{what}: {' '.join(reason.split())}")


def reason_of(report: pytest.TestReport) -> str:
    """What the test left out, and why; empty when it did not call `leave_out`."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return ""
    return report.longrepr[2].partition(_MARK)[2]


def register(config: pytest.Config) -> None:
    """In the process that reports: a worker of xdist hands its reports on."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LeftOut())


class LeftOut:
    """Collects it; a pytest plugin."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if entry := reason_of(report):
            self._found.append(entry)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._found:
            return
        terminalreporter.section("left out")
        for line in summary(self._found):
            terminalreporter.line(line)
        if path := os.environ.get(FILE_VARIABLE):
            with Path(path).open("a") as file:
                file.writelines(f"{entry}\n" for entry in self._found)


def summary(entries: Iterable[str]) -> list[str]:
    """A line for each reason; the last one names all that was left out."""
    told = list(entries)
    if not told:
        return [NOTHING]
    tests = Counter(entry.partition(": ")[0] for entry in told)
    last = ", ".join(f"{what} ({count} test{'s'[: count - 1]})" for what, count in sorted(tests.items()))
    return [*sorted(set(told)), f"Left out: {last}"]


def main(arguments: Sequence[str]) -> None:
    file = Path(arguments[0])
    print("\n".join(summary(file.read_text().splitlines() if file.exists() else ())))


if __name__ == "__main__":
    main(sys.argv[1:])
