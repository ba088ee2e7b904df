# SPDX-License-Identifier: Apache-2.0
"""A project of `headrace pipeline new` as it was made: its tests pass, its command runs, nothing warns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipelines.project import create_project

TIMEOUT_S = 280


def run(folder: Path, java_home: Path, *command: str) -> str:
    """Without settings of ours; the plugin with the fixture `kafka` is found by its entry point."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={"PATH": os.defpath, "JAVA_HOME": str(java_home), "HOME": str(folder), "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    create_project("order_totals", folder)
    return folder


def test_its_tests_pass(project: Path, java_home: Path) -> None:
    warnings = ["-W", "error", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]  # PySpark's sockets
    said = run(project, java_home, "pytest", "-q", "-p", "no:cacheprovider", *warnings)
    assert said.splitlines()[-1].startswith("4 passed")


def test_its_code_is_clean(project: Path, java_home: Path) -> None:
    run(project, java_home, "ruff", "check", "--isolated", "--no-cache", "--select", "E,F,W,I,UP,B", ".")
    run(project, java_home, "ruff", "format", "--isolated", "--no-cache", "--check", ".")
    assert "--once" in run(project, java_home, "order_totals", "--help")
