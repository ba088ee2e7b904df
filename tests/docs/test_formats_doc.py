# SPDX-License-Identifier: Apache-2.0
"""docs/formats.md names every format with its modules and a test, and every version number in the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.harness.syntax import parse

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "formats.md"
SOURCE = ROOT / "src"
ROOTS = (SOURCE / "headrace", SOURCE)
COLUMNS = 6
NOT_A_FORMAT = {
    "broker/reporting/internal_topics.py",
    "broker/transactions/enrolment.py",
    "broker/replication/isr_proposals.py",
    "broker/replication/log_ends.py",
    "broker/controller/remote_creation.py",
    "broker/controller/change_propagation.py",
    "broker/controller/election_audit.py",
    "wire/requests/replica_fetch.py",
    "client/connection.py",
    "client/arrow/fetch/fetcher.py",
    "cli/cluster/view.py",
}
"""Their numbers are versions of the protocol's APIs, error codes or levels of features."""
_NUMBER = re.compile(
    r"^(?P<name>_?[A-Z_]*(?:VERSION|FORMAT|LAYOUT)|TABLE, TABLE_VERSION)(?:: [^=]+)?"
    r" = (?:\"v)?(?:\"table\", )?\d",
    re.MULTILINE,
)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_MODULE = re.compile(r"`((?!tests/)[\w/]+\.py)`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == COLUMNS and row[0] != "format" and set(row[0]) != {"-"}]


def version_numbers() -> list[tuple[str, str]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        root = ROOTS[0] if path.is_relative_to(ROOTS[0]) else SOURCE
        module = str(path.relative_to(root))
        if module not in NOT_A_FORMAT:
            found += [(module, each["name"].split()[-1]) for each in _NUMBER.finditer(path.read_text())]
    return found


def test_the_page_has_rows_of_all_places() -> None:
    assert len(rows()) > 25


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_format_names_modules_and_tests_that_exist(row: list[str]) -> None:
    modules, tests = _MODULE.findall(row[2]), _TEST.findall(row[5])
    assert modules, "no module reads it"
    assert tests, "no test proves it"
    for module in modules:
        assert any((root / module).is_file() for root in ROOTS), module
    for file, name in tests:
        assert (ROOT / file).is_file(), file
        assert not name or name in _names_in(ROOT / file), f"{file} has no {name}"


def _names_in(path: Path) -> set[str]:
    return {getattr(node, "name", "") for node in ast.walk(parse(path.read_text()))}


@pytest.mark.parametrize(("module", "name"), version_numbers())
def test_a_version_number_of_the_source_is_on_the_page(module: str, name: str) -> None:
    of_module = [row for row in rows() if f"`{module}`" in row[2]]
    assert any(f"`{name}`" in row[1] for row in of_module), f"{name} of {module} is not in docs/formats.md"


def test_what_is_left_out_is_there() -> None:
    assert all((ROOTS[0] / module).is_file() for module in NOT_A_FORMAT)
