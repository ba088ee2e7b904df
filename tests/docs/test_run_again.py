# SPDX-License-Identifier: Apache-2.0
"""A live test that fails once is run again and named as unstable; one that fails twice fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import run_again

PLUGIN = """
from tests.harness.run_again import register as pytest_configure
"""
TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("name", ["some spaces", "b"])
def test_fails_at_first(name):
    seen = pathlib.Path(name)
    if not seen.exists():
        seen.touch()
        raise AssertionError

def test_passes():
    pass
"""
ALWAYS = """
def test_always_fails():
    raise AssertionError
"""
MANY = f"""
import pytest

@pytest.mark.parametrize("number", range({run_again.AT_MOST + 1}))
def test_of_many(number):
    raise AssertionError
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "tests.harness.run_again", "unstable.txt"]
    command += ["-p", "no:cacheprovider", *options, "test_some.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "in workers"])
def test_a_failure_that_does_not_repeat_is_unstable(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, TESTS, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout.splitlines()[-1], "only what failed runs again"
    assert run_again.summary(tmp_path / "unstable.txt").splitlines()[1:] == [
        "  test_some.py::test_fails_at_first[some spaces]",
        "  test_some.py::test_fails_at_first[b]",
    ]


def test_a_failure_that_repeats_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = tmp_path / "failed-of-the-run-around-this-one.txt"
    monkeypatch.setenv("HEADRACE_FAILED", str(outer))
    assert run(tmp_path, TESTS + ALWAYS).returncode == 1
    assert run_again.summary(tmp_path / "unstable.txt") == "No test was unstable."
    assert not outer.exists()


def test_many_failures_are_not_tried_again(tmp_path: Path) -> None:
    done = run(tmp_path, MANY)
    assert done.returncode == 1
    assert "run once more" not in done.stdout


def test_a_run_that_could_not_collect_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "import nothing_of_that_name").returncode not in (0, 1)
