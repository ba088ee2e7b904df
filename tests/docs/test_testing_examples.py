# SPDX-License-Identifier: Apache-2.0
"""The applications in examples/testing pass their tests as a user runs them; their README lists each test.

pytest runs in an environment without settings of ours; the entry point of the plugin is all there is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.java import find_java
from tests.harness.left_out import leave_out

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/testing"
README = (EXAMPLES / "README.md").read_text()
SPARK = EXAMPLES / "test_large_orders_job.py"
WARNINGS = [
    "error",
    "ignore::pytest.PytestUnraisableExceptionWarning",  # sockets of kafka-python and of crashed brokers
    r"ignore:.* is deprecated. Use files\(\) instead:DeprecationWarning",  # kafka-python
]


def test_every_test_is_in_the_table() -> None:
    listed = re.findall(r"^\| `(\w+)` \| .+ \| `(test_\w+)` \|$", README, flags=re.MULTILINE)
    there = []
    for file in EXAMPLES.glob("test_*.py"):
        _, *tests = re.findall(r"^def (test_\w+)", file.read_text(), flags=re.MULTILINE)
        there += [(file.stem.removeprefix("test_"), test) for test in tests]
    assert sorted(listed) == sorted(there)


def test_every_application_is_in_the_index() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\) \|", README, flags=re.MULTILINE)
    tested = {file.name.removeprefix("test_") for file in EXAMPLES.glob("test_*.py")}
    assert len(listed) == 10
    assert set(listed) == tested


def test_the_applications_pass(tmp_path: Path) -> None:
    run_pytest(tmp_path, [str(EXAMPLES), f"--ignore={SPARK}"], timeout_s=240)


def test_the_spark_job_passes(tmp_path: Path) -> None:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    run_pytest(tmp_path, [str(SPARK)], timeout_s=290)


def run_pytest(folder: Path, arguments: list[str], *, timeout_s: float) -> None:
    settings = ["-c", os.devnull, f"--rootdir={EXAMPLES}", "-p", "headrace", "-p", "no:cacheprovider"]
    warnings = ["-o", "filterwarnings=" + "\n".join(WARNINGS)]
    command = [sys.executable, "-m", "pytest", "-q", *settings, *warnings, *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            pytest.fail(f"not done after {timeout_s} s:\n{output}")
    assert process.returncode == 0, output
    assert "skipped" not in output.splitlines()[-1], output
