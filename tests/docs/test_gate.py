# SPDX-License-Identifier: Apache-2.0
"""tests/gate.toml names tests that exist, and the Makefile runs each test of the repository once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.harness.gate import TESTS, read_gate, read_lanes
from tests.harness.lanes import LaneScheduling

ENTRIES = [(mark, entry) for mark, entries in read_gate().items() for entry in sorted(entries)]
ENTRIES += [("lanes", entry) for entry in sorted(read_lanes())]


@pytest.mark.parametrize(("mark", "entry"), ENTRIES)
def test_every_entry_of_the_gate_names_a_test(mark: str, entry: str) -> None:
    file, _, test = entry.partition("::")
    source = (TESTS / file).read_text()
    assert re.search(rf"^(?:async )?def {test or 'test_'}", source, re.MULTILINE), f"[{mark}] {entry}"


def test_every_mark_of_the_gate_is_known() -> None:
    assert set(read_gate()) == {"quick", "serial"}


def test_the_tests_of_a_lane_are_given_to_one_worker_and_those_of_other_files_by_file() -> None:
    lanes = {"spark/test_a.py": "spark", "docs/test_b.py::test_spark": "spark"}
    scheduling = LaneScheduling.__new__(LaneScheduling)
    scheduling._lanes = lanes
    scopes = {
        "tests/spark/test_a.py::test_one[x::y]": "spark",
        "tests/docs/test_b.py::test_spark[1]": "spark",
        "tests/docs/test_b.py::test_other": "docs/test_b.py",
    }
    assert {test: scheduling._split_scope(test) for test in scopes} == scopes


def test_every_folder_of_tests_is_run_by_the_makefile() -> None:
    makefile = (TESTS.parent / "Makefile").read_text()
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.rglob("test_*.py")}
    assert not sorted(folder for folder in folders if f"tests/{folder}" not in makefile)


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports a file by its name alone: `pytest tests` could not collect the second."""
    names = Counter(file.name for file in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
