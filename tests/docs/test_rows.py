# SPDX-License-Identifier: Apache-2.0
"""Each required capability has a test with its row number; documents for users use no row numbers."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from headrace.demo.scenes.catalog import SCENES
from headrace.demo.tour import sections_of
from tests.harness.drawings import DRAWINGS, files_of_rows, listed_files, scenes_of_rows
from tests.harness.syntax import parse

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TOUR = ROOT / "docs" / "tour.md"

ONE_NODE = ("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D17", "D18", "D20")
GROUPS = ("D10", "D11", "D12", "D13", "D14", "D15", "D16", "D21")
CLUSTER = ("D8", "D9", "D19")
FINISHED_ROWS = (*ONE_NODE, *GROUPS, *CLUSTER)
"""Rows of one node, consumer groups and the cluster; later work adds its own."""
FOR_USERS = [ROOT / "README.md", ROOT / "ROADMAP.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]


def _marked_rows(source: str) -> set[str]:
    """Arguments of every @pytest.mark.row(…) that decorates a test or class, or stands in pytestmark."""
    return {
        argument.value
        for call in ast.walk(parse(source))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.row"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


@cache
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


def test_documents_for_users_do_not_use_row_numbers():
    for document in FOR_USERS:
        assert not re.findall(r"\bD(?:[1-9]|1\d|2[0-2])\b", document.read_text()), document.name


def test_the_finder_sees_a_marker_and_not_a_mention():
    source = (
        "import pytest\n@pytest.mark.row('D5')\ndef test_x(): pass\n# @pytest.mark.row('D6')\nx = 'row(D7)'\n"
    )
    assert _marked_rows(source) == {"D5"}


@pytest.mark.parametrize("row", [f"D{number}" for number in range(1, 23)])
def test_each_drawing_has_a_scene_a_tour_section_and_a_test_of_both(row):
    scene = scenes_of_rows().get(row)
    assert scene in {each.name for each in SCENES}, f"no scene plays {row}: tests/integration/test_demo.py"
    assert scene in sections_of(TOUR.read_text()), "make tour"
    assert "tests/integration/test_demo.py" in files_of_rows()[row]


def test_the_tour_lists_every_drawing_with_the_test_that_plays_it():
    listed = listed_files(TOUR.read_text())
    assert list(listed) == list(DRAWINGS), "make rows"
    assert all("tests/integration/test_demo.py" in files for files in listed.values())


@pytest.mark.parametrize("row", DRAWINGS)
def test_every_file_that_the_tour_lists_still_has_a_test_of_the_drawing(row):
    gone = set(listed_files(TOUR.read_text())[row]) - set(files_of_rows()[row])
    assert not gone, "make rows"


def test_every_scene_but_that_of_cores_plays_a_drawing():
    assert set(scenes_of_rows().values()) | {"cores"} == {scene.name for scene in SCENES}
