# SPDX-License-Identifier: Apache-2.0
"""docs/compatibility.md has the rows, tests and clients that there are, and only what has passed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.compatibility import (
    BEGIN,
    CLIENTS,
    END,
    NotProven,
    read_matrix,
    read_report,
    rewrite,
    table,
    versions,
)

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/compatibility.md").read_text()


def test_the_table_is_of_the_clients_that_are_installed() -> None:
    """After an upgrade of a client: make compatibility."""
    assert f"| capability | {' | '.join(versions())} |" in TEXT


def test_the_table_has_every_capability_and_the_clients_that_have_it() -> None:
    for capability, cells in read_matrix().items():
        row = re.search(rf"^\| {re.escape(capability)} \|(.*)\|$", TEXT, re.MULTILINE)
        assert row is not None, capability
        shown = {client for client, cell in zip(CLIENTS, row[1].split("|"), strict=True) if "✓" in cell}
        assert shown == set(cells)


def test_every_test_behind_it_exists() -> None:
    for cells in read_matrix().values():
        for entry in (entry for entries in cells.values() for entry in entries):
            file, _, test = entry.partition("[")[0].partition("::")
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), entry
    named = re.findall(r"`(tests/[\w/]+\.py)`", TEXT)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_only_what_passed_is_written(tmp_path: Path) -> None:
    matrix = {"reading": {"aiokafka": ["a/test_b.py::test_c[x"]}}
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="test_c[x-1]"/>'
        '<testcase classname="tests.a.test_b" name="test_c[y-1]"><failure/></testcase>'
        "</testsuite></testsuites>"
    )
    outcomes = read_report(report)
    assert table(matrix, outcomes).endswith("| reading | – | – | ✓ 1 | – |")
    with pytest.raises(NotProven, match="did not pass"):
        table({"reading": {"aiokafka": ["a/test_b.py::test_c"]}}, outcomes)
    with pytest.raises(NotProven, match="did not run"):
        table({"reading": {"aiokafka": ["a/test_b.py::test_d"]}}, outcomes)
    assert rewrite(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
