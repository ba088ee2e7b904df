# SPDX-License-Identifier: Apache-2.0
"""Compiling the kernels by hand, with and without a compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.kernels import build
from headrace.kernels.library import why_missing
from tests.harness.left_out import leave_out

SOURCES = Path(build.__file__).parent


def copy_sources(folder: Path) -> Path:
    for source in (*SOURCES.glob("*.c"), *SOURCES.glob("*.h")):
        shutil.copy(source, folder)
    return folder


def compile_in(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.kernels.build", str(folder)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_the_library_is_compiled_beside_the_sources(tmp_path: Path) -> None:
    if build.find_compiler() is None:
        leave_out("compiled kernels", "no C compiler (cc): install gcc or clang")
    assert compile_in(copy_sources(tmp_path)).returncode == 0
    ctypes.CDLL(str(tmp_path / build.LIBRARY_NAME))


def test_without_a_compiler_the_reason_is_the_last_line(tmp_path: Path) -> None:
    done = compile_in(copy_sources(tmp_path), CC="")
    assert (done.returncode, list(tmp_path.glob("*.so"))) == (1, [])
    assert done.stderr.strip() == (
        "the kernels are not compiled: no C compiler was found (set CC to name one)"
    )


def test_the_state_of_the_kernels_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / build.LIBRARY_NAME
    assert why_missing(library) == "the C kernels are not compiled"
    library.write_bytes(b"of another platform")
    assert why_missing(library) == "the C kernels do not fit this version or platform"
    if build.find_compiler() is None:
        leave_out("compiled kernels", "no C compiler (cc): install gcc or clang")
    assert compile_in(copy_sources(tmp_path)).returncode == 0
    assert why_missing(library) is None
    monkeypatch.setattr("headrace.kernels.library.VERSION", 99)
    assert why_missing(library) == "the C kernels do not fit this version or platform"
