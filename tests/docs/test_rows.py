"""Each row of the source drawings that a finished issue claims has a test marked with its number."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

ONE_NODE = ("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D17", "D18", "D20")
GROUPS = ("D10", "D11", "D12", "D13", "D14", "D15", "D16", "D21")
CLUSTER = ("D8", "D9", "D19")
FINISHED_ROWS = (*ONE_NODE, *GROUPS, *CLUSTER)
"""Rows of one node, consumer groups and the cluster. A later issue adds its own."""


def _marked_rows(source: str) -> set[str]:
    """Arguments of every @pytest.mark.row(…) that decorates a test or class, or stands in pytestmark."""
    return {
        argument.value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.row"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def _all_marked_rows() -> dict[str, set[str]]:
    files: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for row in _marked_rows(path.read_text()):
            files.setdefault(row, set()).add(path.name)
    return files


@pytest.mark.parametrize("row", FINISHED_ROWS)
def test_a_finished_row_has_a_test_of_its_own(row):
    assert row in _all_marked_rows(), f"no test carries @pytest.mark.row({row!r})"


def test_rows_are_written_as_in_the_drawings():
    known = {f"D{number}" for number in range(1, 23)}
    assert set(_all_marked_rows()) <= known


def test_the_finder_sees_a_marker_and_not_a_mention():
    source = (
        "import pytest\n@pytest.mark.row('D5')\ndef test_x(): pass\n# @pytest.mark.row('D6')\nx = 'row(D7)'\n"
    )
    assert _marked_rows(source) == {"D5"}
