# SPDX-License-Identifier: Apache-2.0
"""An exception is made where it is raised: one that is raised again keeps the frames of every time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace
from tests.harness.syntax import parse

SOURCE = Path(headrace.__file__).parent
ENDINGS = ("Error", "Refused", "Lost", "Exception")


def kept_exceptions(source: str) -> Iterator[int]:
    """Lines of a module that assign an exception to a name for later."""
    for node in parse(source).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(ENDINGS):
            yield node.lineno


def test_no_module_keeps_an_exception_to_raise_it_again() -> None:
    found = {path: [*kept_exceptions(path.read_text())] for path in SOURCE.rglob("*.py")}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


def test_a_kept_exception_is_found() -> None:
    assert [*kept_exceptions("x = 1\n_DISABLED = ApiError(31)\n")] == [2]
