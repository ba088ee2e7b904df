# SPDX-License-Identifier: Apache-2.0
"""The table of docs/compatibility.md, written by `make compatibility` from a run of the tests that prove it.

tests/compatibility.toml says which tests prove what; pytest's own report (--junitxml) says which passed.
`tests` prints their files, `write DOCUMENT REPORT` writes the table.
"""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parents[1]
OURS = "headrace"
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", OURS)
BEGIN, END = "<!-- table: written by make compatibility -->", "<!-- end of table -->"
Matrix = Mapping[str, Mapping[str, Sequence[str]]]


class NotProven(Exception):
    """A test of the table did not run, or did not pass."""


def read_matrix() -> Matrix:
    """Capability, client, and the tests that prove it."""
    found: Matrix = tomllib.loads((TESTS / "compatibility.toml").read_text(encoding="utf-8"))
    return found


def tests_of(matrix: Matrix) -> list[str]:
    """What pytest is called with."""
    entries = {
        entry.partition("[")[0] for cells in matrix.values() for tests in cells.values() for entry in tests
    }
    return sorted(f"tests/{entry}" for entry in entries)


def versions() -> list[str]:
    """The clients as they are installed, each with its version; ours is that of this tree."""
    others = [f"{name} {importlib.metadata.version(name)}" for name in CLIENTS if name != OURS]
    return [*others, "Headrace's Arrow client"]


def table(matrix: Matrix, outcomes: Mapping[str, bool]) -> str:
    """`outcomes`: by FILE::TEST[CASE], whether it passed. Raises NotProven."""
    rows = ["| capability | " + " | ".join(versions()) + " |", "|---" * (len(CLIENTS) + 1) + "|"]
    for capability, cells in matrix.items():
        counts = [_count(cells.get(client, ()), outcomes) for client in CLIENTS]
        rows.append(f"| {capability} | " + " | ".join(counts) + " |")
    return "\n".join(rows)


def read_report(file: Path) -> dict[str, bool]:
    """Outcomes of a report that pytest wrote."""
    found: dict[str, bool] = {}
    for case in ElementTree.parse(file).iter("testcase"):
        path = case.attrib["classname"].removeprefix("tests.").replace(".", "/")
        passed = all(child.tag not in ("failure", "error", "skipped") for child in case)
        found[f"{path}.py::{case.attrib['name']}"] = passed
    return found


def rewrite(text: str, new_table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{new_table}\n\n{END}{rest.partition(END)[2]}"


def _count(entries: Sequence[str], outcomes: Mapping[str, bool]) -> str:
    passed = 0
    for entry in entries:
        test, _, text = entry.partition("[")
        cases = [
            case for case in outcomes if case.partition("[")[0] == test and text in case.partition("[")[2]
        ]
        if not cases or not all(outcomes[case] for case in cases):
            raise NotProven(f"{entry}: {'did not pass' if cases else 'did not run'}")
        passed += len(cases)
    return f"✓ {passed}" if passed else "–"


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["tests"]:
            print(*tests_of(read_matrix()))
        case ["write", document, report]:
            path = Path(document)
            new_table = table(read_matrix(), read_report(Path(report)))
            path.write_text(rewrite(path.read_text(encoding="utf-8"), new_table), encoding="utf-8")
        case _:
            print(
                "usage: python -m tests.harness.compatibility tests | write DOCUMENT REPORT", file=sys.stderr
            )
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
