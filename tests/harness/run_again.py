# SPDX-License-Identifier: Apache-2.0
"""Runs pytest on live tests; a few that fail run once more, alone, and the last lines name them.

Real clients and processes on a busy machine now and then exceed a time-out of their own. A failure that does
not repeat is reported as unstable, in the output and in the file, so that it gets looked into; one that
repeats, and more than a few at once, fail the run. `python -m tests.harness.run_again FILE ARGUMENTS…` runs
pytest with the arguments, `python -m tests.harness.run_again FILE` prints the summary of several runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

AT_MOST = 3
"""So many failures may be the machine's; more are a defect of the code or of the tests."""
_FILE_VARIABLE = "HEADRACE_FAILED"
_TESTS_FAILED = 1
"""pytest's exit code."""


def register(config: pytest.Config) -> None:
    """In the process that reports: a worker of xdist hands its reports on."""
    path = os.environ.get(_FILE_VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailedTests(Path(path)))


class FailedTests:
    """Writes the names of failed tests to a file; a pytest plugin."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def run(arguments: Sequence[str], unstable: Path) -> int:
    """pytest's exit code, of the second run where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failed.txt"
        code = _pytest(arguments, {_FILE_VARIABLE: str(file)})
        failed = list(dict.fromkeys(file.read_text().splitlines())) if file.exists() else []
    if code != _TESTS_FAILED or not 0 < len(failed) <= AT_MOST:
        return code
    print(f"Failed, and run once more: {', '.join(failed)}", flush=True)
    code = _pytest(failed, {_FILE_VARIABLE: ""})  # of a run that this one may be a test of
    if code == 0:
        with unstable.open("a") as lines:
            lines.writelines(f"{test}\n" for test in failed)
    return code


def _pytest(arguments: Sequence[str], more: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env={**os.environ, **more}, check=False).returncode


def summary(unstable: Path) -> str:
    tests = unstable.read_text().splitlines() if unstable.exists() else []
    if not tests:
        return "No test was unstable."
    return "\n".join(["Unstable, failed once and passed when run again:", *(f"  {test}" for test in tests)])


def main(arguments: Sequence[str]) -> int:
    unstable = Path(arguments[0])
    if len(arguments) > 1:
        return run(arguments[1:], unstable)
    print(summary(unstable))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
