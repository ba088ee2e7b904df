# SPDX-License-Identifier: Apache-2.0
"""Tests wait for conditions; a `time.sleep` that is left says on its line why time itself has to pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.harness.syntax import parse

TESTS = Path(__file__).resolve().parents[1]


def sleeps(source: str) -> Iterator[int]:
    """The lines with `time.sleep`, called or handed on."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep":
            yield node.lineno


def unexplained(source: str) -> list[int]:
    lines = source.splitlines()
    return [number for number in sleeps(source) if "  # " not in lines[number - 1]]


def test_every_sleep_says_why() -> None:
    found = {str(path.relative_to(TESTS)): unexplained(path.read_text()) for path in TESTS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}, "use tests/harness/waiting.py"


def test_a_sleep_without_a_reason_is_found() -> None:
    assert unexplained("import time\ntime.sleep(1)\ntime.sleep(1)  # the slow client\n") == [2]
