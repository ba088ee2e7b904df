# SPDX-License-Identifier: Apache-2.0
"""A test run on a machine without Java says at its end what it left out, and `make test` in its last line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import left_out

PLUGIN = """
from tests.harness.left_out import register as pytest_configure
"""
TESTS = """
import os
import pytest
from headrace.client.errors import ClientError
from headrace.java import find_java
from tests.harness.left_out import leave_out

@pytest.mark.parametrize("number", range(3))
def test_on_spark(number):
    try:
        find_java({"PATH": os.environ["PATH"]}, installed=())
    except ClientError as error:
        leave_out("Spark", str(error))

def test_on_zookeeper():
    leave_out("ZooKeeper", "no jars\\nanywhere")

def test_of_another_system():
    pytest.skip("not here")
"""


def run_without_java(folder: Path, *options: str) -> str:
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_some.py").write_text(TESTS)
    environment = {**os.environ, "PATH": str(folder), left_out.FILE_VARIABLE: str(folder / "left-out.txt")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, "test_some.py"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def last_lines(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.harness.left_out", str(folder / "left-out.txt")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "in workers"])
def test_what_was_left_out_is_the_last_word_of_several_runs(tmp_path: Path, options: tuple[str, ...]) -> None:
    shown = run_without_java(tmp_path, *options)
    assert "Spark: Java 17 or later is needed, and none was found; install it (" in shown
    assert "Left out: Spark (3 tests), ZooKeeper (1 test)" in shown
    assert "not here" not in shown, "nothing is missing for what does not apply"
    run_without_java(tmp_path, *options)
    told = last_lines(tmp_path)
    assert told[-1] == "Left out: Spark (6 tests), ZooKeeper (2 tests)"
    assert told[-2] == "ZooKeeper: no jars anywhere"
    assert len(told) == 3


def test_when_nothing_was_left_out_it_says_so(tmp_path: Path) -> None:
    assert last_lines(tmp_path) == ["Nothing was left out."]
