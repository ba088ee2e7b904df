# SPDX-License-Identifier: Apache-2.0
"""The list of drawings in docs/tour.md: each with its section and the files whose tests of it passed.

    python -m tests.harness.drawings docs/tour.md build/rows.txt    writes it at the end of the file

`make rows` does that. It takes only a record (row_record.py) in which every test of a row that `make check`
runs passed, so that the list is the same on every machine. The numbers of the rows stay out of the document.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from headrace.demo.scenes.catalog import SCENES
from tests.harness.row_record import FILE_VARIABLE, Entry, read_record
from tests.harness.syntax import parse

ROOT = Path(__file__).resolve().parents[2]
DEMO_TEST = ROOT / "tests" / "integration" / "test_demo.py"
HEADING = "## The drawings"
_HEAD = """
Tests that passed when `make rows` wrote this list. `make compat` runs more of them, with Java and Go clients.

| drawing | section | tests |
|---|---|---|
"""
_OF_ROWS = "row and not compat_jvm and not compat_go and not compat_js and not compat_image and not soak"
"""Tests of rows that `make check` runs."""
_SHOWN = 10
DRAWINGS = {
    "D1": "a log, consumers A and B at their offsets",
    "D2": "key, message and timestamp of a record",
    "D3": "one partition or three",
    "D4": "choosing a partition",
    "D5": "partitions by key range",
    "D6": "partition and offset returned by a send",
    "D7": "acks 0, 1 and all",
    "D8": "five nodes, a leader and replicas of each partition",
    "D9": "node 0 dies, its partition gets another leader",
    "D10": "four partitions over three consumers",
    "D11": "three rebalances, before and after",
    "D12": "two groups, each receives all messages",
    "D13": "topics A and B, groups A and B",
    "D14": "current and committed position",
    "D15": "partition order and processing order",
    "D16": "the sum for the number of consumers",
    "D17": "one program, two modes, three terminals",
    "D18": "topics from the command line",
    "D19": "ZooKeeper beside the broker",
    "D20": "inner and outer listener",
    "D21": "producer, broker and consumer from t0 to t5",
    "D22": "the data pipeline",
}


@cache
def scenes_of_rows() -> dict[str, str]:
    """The scene that plays each row, by the markers of the demo's test."""
    found: dict[str, str] = {}
    for call in _calls(DEMO_TEST, "pytest.param"):
        scene = call.args[0]
        assert isinstance(scene, ast.Constant)
        for row in _rows(call):
            found[row] = str(scene.value)
    return found


@cache
def files_of_rows() -> dict[str, list[str]]:
    """The test files that carry each row."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for row in _rows(parse(path.read_text())):
            found.setdefault(row, set()).add(path.relative_to(ROOT).as_posix())
    return {row: sorted(files) for row, files in found.items()}


def list_of_drawings(record: Iterable[Entry]) -> str:
    titles = {scene.name: scene.title for scene in SCENES}
    scenes = scenes_of_rows()
    passed: dict[str, set[str]] = {row: set() for row in DRAWINGS}
    for entry in record:
        if entry.outcome == "passed":
            passed[entry.row].add(entry.file)
    lines = []
    for row, drawing in DRAWINGS.items():
        title = titles[scenes[row]]
        files = ", ".join(f"`{file}`" for file in sorted(passed[row]))
        lines.append(f"| {drawing} | [{title}](#{anchor(title)}) | {files} |\n")
    return f"{HEADING}\n{_HEAD}{''.join(lines)}"


def listed_files(document: str) -> dict[str, list[str]]:
    """The files that the document's list has for each row."""
    rows = {drawing: row for row, drawing in DRAWINGS.items()}
    found: dict[str, list[str]] = {}
    for line in document.partition(f"\n{HEADING}\n")[2].splitlines():
        drawing, _, files = [*line.strip("| ").split(" | "), "", ""][:3]
        if drawing in rows:
            found[rows[drawing]] = re.findall(r"`([^`]+)`", files)
    return found


def collected_tests() -> list[Entry]:
    """All tests of rows that `make check` runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "collected.txt")
        subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-m", _OF_ROWS, "tests"],
            cwd=ROOT,
            env={**os.environ, FILE_VARIABLE: str(file)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return read_record(file)


def missing_tests(record: Sequence[Entry], collected: Iterable[Entry]) -> list[str]:
    """What keeps the record from being one of a full run: tests without a pass in it, and why."""
    outcomes = {(entry.row, entry.test): entry for entry in record}
    missing = []
    for entry in collected:
        ran = outcomes.get((entry.row, entry.test))
        if ran is None or ran.outcome != "passed":
            why = f"{ran.outcome} {ran.reason}".strip() if ran else "did not run"
            missing.append(f"{entry.test}: {why}")
    return missing


def anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def with_list(document: str, written: str) -> str:
    return document.partition(f"\n{HEADING}\n")[0].rstrip("\n") + "\n\n" + written


def _calls(path: Path, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
            yield node


def _rows(tree: ast.AST) -> list[str]:
    return [
        str(argument.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    ]


def main(arguments: Sequence[str]) -> str | None:
    """Writes the list; or why not, for the exit code."""
    document, record = Path(arguments[0]), read_record(Path(arguments[1]))
    collected = collected_tests()
    if missing := missing_tests(record, collected):
        shown = "\n  ".join(missing[:_SHOWN])
        return f"not a record of a full run (make rows): {len(missing)} tests did not pass:\n  {shown}"
    tests = {(entry.row, entry.test) for entry in collected}
    passed = [entry for entry in record if (entry.row, entry.test) in tests]
    document.write_text(with_list(document.read_text(), list_of_drawings(passed)))
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
