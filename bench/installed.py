# SPDX-License-Identifier: Apache-2.0
"""Headrace as its users have it: the wheel of this tree, installed with pip into an empty environment.

Made once per run. Read next: measures/testing.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.documents import RESULTS
from headrace.cluster.engines.engine import EngineError, command_environment

_ROOT = Path(__file__).resolve().parents[1]
_INSTALL_TIMEOUT_S = 900
_BROUGHT_BY_VENV = ("pip", "setuptools")
_LIST_SIZES = """
import importlib.metadata, json, os
sizes = {}
for package in importlib.metadata.distributions():
    paths = [package.locate_file(file) for file in package.files or ()]
    found = [os.stat(path) for path in paths if os.path.exists(path)]
    sizes[package.metadata["Name"]] = sum(each.st_blocks * 512 for each in found)
print(json.dumps(sizes))
"""


@cache
def installed_python(extra: str = "", *also: str) -> Path:
    """The Python of an environment that has `headrace[extra]`, and other packages. EngineError: why not."""
    folder = (RESULTS / "installed" / (extra or "plain")).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    run_or_explain(sys.executable, "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    wanted = f"{_wheel()}[{extra}]" if extra else str(_wheel())
    run_or_explain(
        str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted, *also
    )
    return python


@cache
def _wheel() -> Path:
    folder = (RESULTS / "installed" / "wheel").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    run_or_explain(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(_ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def package_sizes(python: Path) -> dict[str, int]:
    """Bytes on disk by package, with the bytecode that pip compiles; without what every environment has."""
    sizes: dict[str, int] = json.loads(run_or_explain(str(python), "-c", _LIST_SIZES))
    return {name: size for name, size in sizes.items() if name not in _BROUGHT_BY_VENV}


def run_or_explain(*command: str, timeout_s: float = _INSTALL_TIMEOUT_S) -> str:
    """What it prints. EngineError with the end of it when it fails or takes too long."""
    environment = command_environment({})
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command)} did not end within {timeout_s:.0f} s") from error
    if done.returncode != 0:
        raise EngineError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
