# SPDX-License-Identifier: Apache-2.0
"""The kernels built with the compiler's sanitizers: nothing outside a buffer, no undefined behaviour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.kernels.library import LIBRARY
from tests.harness.left_out import leave_out

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
FLAGS = ("-O1", "-g", "-std=gnu11", "-fPIC", "-shared")
PROGRAM = Path(__file__).with_name("kernel_fuzz.py")
VALUES_PROGRAM = PROGRAM.with_name("value_fuzz.py")
ROUNDS = 1500

OUTSIDE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
spans, ends = ctypes.create_string_buffer(b"", 16), ctypes.create_string_buffer(64)
library.headrace_gather(spans, 8, ends, None, 0, None)
"""


@pytest.fixture(scope="module", name="sanitized")
def sanitized_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("kernels") / "sanitized.so"
    sources = sorted(str(source) for source in LIBRARY.parent.glob("*.c"))
    compiler = os.environ.get("CC", "gcc")
    try:
        subprocess.run([compiler, *FLAGS, *SANITIZERS, "-o", str(library), *sources], check=True)
    except (OSError, subprocess.CalledProcessError):
        leave_out("kernels with sanitizers", "no C compiler that has them")
    return library


def run_sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python itself has no sanitizer, so its run time must be there first; small objects by malloc, too."""
    runtime = subprocess.run(
        [os.environ.get("CC", "gcc"), "-print-file-name=libasan.so"],
        capture_output=True,
        text=True,
        check=True,
    )
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ
        | {
            "LD_PRELOAD": runtime.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        },
    )


def test_damaged_batches_make_no_kernel_leave_its_buffers(sanitized: Path) -> None:
    done = run_sanitized(str(PROGRAM), str(sanitized), "11", str(ROUNDS))
    assert done.returncode == 0, done.stderr[-4000:]
    assert ROUNDS * 0.2 < int(done.stdout) < ROUNDS * 0.95


def test_damaged_values_make_no_kernel_leave_its_buffers(sanitized: Path) -> None:
    rounds = 600
    done = run_sanitized(str(VALUES_PROGRAM), str(sanitized), "12", str(rounds))
    assert done.returncode == 0, done.stderr[-4000:]
    assert rounds * 0.2 < int(done.stdout) < rounds * 0.95


def test_the_sanitizer_would_see_it(sanitized: Path) -> None:
    """Eight spans are claimed where there is one."""
    done = run_sanitized("-c", OUTSIDE, str(sanitized))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
