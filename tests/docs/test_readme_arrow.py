# SPDX-License-Identifier: Apache-2.0
"""`import headrace` is quick, and a missing extra is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_S = 0.05


def run_python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_headrace_is_quick() -> None:
    """By its own CPU time, the least of several: other work on the machine is not its fault."""
    program = "import time; begin = time.process_time(); import headrace; print(time.process_time() - begin)"
    assert min(float(run_python(program)) for _ in range(5)) <= MOST_S


@pytest.mark.parametrize(
    ("call", "library"),
    [
        ("read('orders')", "pyarrow"),
        ("write([], 'orders')", "numpy"),
        ("topic('orders')", "pyarrow"),
        ("stream('orders')", "numpy"),
        ("Json()", "pyarrow"),
    ],
)
def test_without_the_extra_every_name_says_what_to_install(call: str, library: str) -> None:
    program = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import headrace\n"
        f"try: headrace.{call}\n"
        "except ImportError as error: print(error)"
    )
    name = call.partition("(")[0]
    assert run_python(program) == f"headrace.{name} needs {library}: pip install headrace[arrow]\n"


def test_without_the_extra_its_errors_can_be_named_in_an_except_clause() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import headrace\n"
        "try: raise KeyError('ours')\n"
        "except headrace.WriteFailed: print('caught by the wrong clause')\n"
        "except KeyError: print('passed')"
    )
    assert run_python(program) == "passed\n"
