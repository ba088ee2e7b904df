# SPDX-License-Identifier: Apache-2.0
"""docs/evidence/faults.md has every fault of the catalogue, with a run of it; reports fill the counts."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.harness import fault_counts

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence" / "faults.md"
FAULTS = fault_counts.read_catalogue()["fault"]
_NAME = re.compile(r"(?:write_report\(|_soak\(\w+, )\s*f?\"([^\"]+)\"")


def report_names() -> set[str]:
    """As the tests write them; what a test fills in is x."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    return {re.sub(r"\{[^}]*\}", "x", name) for text in texts for name in _NAME.findall(text)}


def test_the_page_is_what_the_command_writes(tmp_path: Path) -> None:
    """Without a report it keeps each row."""
    assert fault_counts.with_tables(PAGE.read_text(), tmp_path) == PAGE.read_text()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["what"])
def test_a_test_writes_the_report_of_each_fault(fault: dict[str, str]) -> None:
    pattern = re.sub(r"\[[^\]]*\]", "?", fault["reports"])
    assert any(fnmatchcase(name, pattern) for name in report_names()), sorted(report_names())


def test_a_report_fills_its_row_and_the_others_stay(tmp_path: Path) -> None:
    report = {"commit": "0123456789", "seconds": 600.4, "first_seed": 7, "damage": {"flips": 1200, "cuts": 3}}
    (tmp_path / "T7.json").write_text(json.dumps(report))
    before = PAGE.read_text().splitlines()
    after = fault_counts.with_tables(PAGE.read_text(), tmp_path).splitlines()
    (row,) = (line for line in after if "PART=t7" in line)
    assert "1,203: flips 1,200, cuts 3 | commit 01234567, 600 s, seed 7" in row
    assert [line for line in after if line != row] == [line for line in before if "PART=t7" not in line]


def test_without_any_number_the_row_says_so(tmp_path: Path) -> None:
    empty = f"{fault_counts.BEGIN}\n{fault_counts.END}\n" * 2
    page = fault_counts.with_tables(empty, tmp_path)
    rows = [line for line in page.splitlines() if "make soak" in line]
    assert len(rows) == len(FAULTS)
    unknown = [fault for fault in FAULTS if "earlier" not in fault]
    assert sum(fault_counts.NO_NUMBER in row for row in rows) == len(unknown)
