# SPDX-License-Identifier: Apache-2.0
"""A test that hangs in compiled code, and a session that hangs at its end, do not keep a run from ending."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = """
import time
from tests.harness import watchdog

watchdog.GRACE_S, watchdog.WORKER_FINISH_S = 0.5, 2
pytest_configure = watchdog.register

def block():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass  # as a call into a library that is not interrupted
"""
HANGING_TEST = """
from conftest import block

def test_hangs():
    block()

def test_passes():
    pass
"""


def run(folder: Path, tests: str, plugin: str = PLUGIN) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(plugin)
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-o", "timeout=1"]
    return subprocess.run(
        [*command, "test_some.py"], cwd=folder, capture_output=True, text=True, check=False, timeout=50
    )


def test_a_hanging_test_fails_and_the_others_run(tmp_path: Path) -> None:
    done = run(tmp_path, HANGING_TEST)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "in block" in done.stderr, "the stack shows where"


def test_a_worker_that_hangs_at_its_end_does_not_fail_the_run(tmp_path: Path) -> None:
    at_the_end = """
def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        block()
"""
    done = run(tmp_path, "def test_passes():\n    pass\n", PLUGIN + at_the_end)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "in block" in done.stderr
