# SPDX-License-Identifier: Apache-2.0
"""The linter's rules against evaluating input (S12) are on, and what is exempt from them is known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = {"S102", "S301", "S302", "S307", "S506", "S602", "S604", "S605", "S701"}
EXEMPT = {"headrace/cli/records/record_command.py": ["S602"]}  # a shell command that the operator gives


def test_the_rules_are_on_everywhere_but_in_tests() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert set(lint["select"]) >= RULES
    assert not RULES & set(lint["ignore"])
    exempt = {path for path, codes in lint["per-file-ignores"].items() if RULES & set(codes)}
    assert exempt == {"tests/*"}


def test_what_is_exempt_is_known() -> None:
    source = ROOT / "src"
    found = {
        str(path.relative_to(source)): codes
        for path in source.rglob("*.py")
        if (codes := re.findall(r"# noqa: (S\d+)", path.read_text()))
    }
    assert found == EXEMPT
