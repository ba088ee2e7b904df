# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md lists exactly the API versions that the broker advertises."""

from __future__ import annotations

from pathlib import Path

from headrace.wire.api_table import APIS, Api

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


def _row(api: Api) -> str:
    name = "".join(word.capitalize() for word in api.name.split("_"))
    versions = (
        f"{api.min_version}–{api.max_version}" if api.max_version > api.min_version else str(api.max_version)
    )
    if api.accepted.start > api.min_version:
        versions += f", accepted from {api.accepted.start}"
    return f"| {api.key} | {name} | {versions} |"


def test_every_served_version_is_documented_and_no_other():
    expected = [_row(APIS[key]) for key in sorted(APIS)]
    found = [
        line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and line[2].isdigit()
    ]
    starts = [" |".join(line.split(" |")[:3]) + " |" for line in found]
    assert starts == expected, "the table should be:\n" + "\n".join(expected)
