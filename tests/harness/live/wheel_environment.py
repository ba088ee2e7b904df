# SPDX-License-Identifier: Apache-2.0
"""An environment that has the built wheel and what it requires, and nothing of the source tree.

The wheel is built from a copy: the build compiles kernels into the source it is given.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.left_out import leave_out

_SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "src")
_TIMEOUT_S = 250


def build_wheel(project: Path, folder: Path) -> Path:
    source = folder / "source"
    source.mkdir(parents=True)
    for name in _SOURCES:
        if (project / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(project / name, source / name, ignore=ignored)
        else:
            shutil.copy(project / name, source)
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, requirements: Sequence[str], lock: Path, folder: Path) -> str:
    """The Python of a new environment with these requirements: ours from the wheel, the rest as locked."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=_TIMEOUT_S)
    versions = re.findall(r"^[\w.-]+==[^\s;]+", lock.read_text(), flags=re.MULTILINE)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(versions))
    python = str(folder / "bin" / "python")
    wanted = [re.sub(r"^headrace(\[.*\])?$", rf"\g<0> @ {wheel.as_uri()}", each) for each in requirements]
    _pip("--python", python, "install", "--no-compile", "--constraint", str(constraints), *wanted)
    return python


def _pip(*arguments: str) -> None:
    done = _run_pip("--quiet", *arguments)
    if done.returncode == 0:
        return
    if _run_pip("index", "versions", "hatchling").returncode != 0:
        leave_out("the wheel in an empty environment", "the package index cannot be reached")
    raise RuntimeError(f"pip {' '.join(arguments)}\n{done.stdout}{done.stderr}")


def _run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
