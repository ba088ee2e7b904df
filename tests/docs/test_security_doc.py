# SPDX-License-Identifier: Apache-2.0
"""docs/security.md says which operations each API needs, as the table that requests are authorized by."""

from __future__ import annotations

from pathlib import Path

from headrace.acls import Operation
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_table import APIS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def _name(operation: Operation | None) -> str:
    return "–" if operation is None else "".join(word.capitalize() for word in operation.name.split("_"))


def _row(key: int) -> str:
    api = "".join(word.capitalize() for word in APIS[key].name.split("_"))
    needed = NEEDED[key]
    cells = [_name(each) for each in (needed.topic, needed.group, needed.cluster, needed.transactional_id)]
    if needed.cluster_suffices:
        cells[2] += " suffices"
    return f"| {api} | {' | '.join(cells)} |"


def test_every_api_is_documented_with_what_it_needs() -> None:
    expected = [_row(key) for key in sorted(APIS)]
    lines = DOCUMENT.read_text().splitlines()
    found = [" |".join(line.split(" |")[:5]) + " |" for line in lines if line.count(" | ") == 5]
    missing = [row for row in expected if row not in found]
    assert not missing, "the table should have:\n" + "\n".join(missing)
