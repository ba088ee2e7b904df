# SPDX-License-Identifier: Apache-2.0
"""The list of the design decisions, from the headings of their pages."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "decisions"


def page() -> str:
    rows = [
        "# Decisions",
        "",
        "Choices that others will wonder about: the problem, the decision, the price.",
        "",
    ]
    for file in sorted(_FOLDER.glob("0*.md")):
        title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        rows.append(f"- [{title}]({file.name})")
    return "\n".join(rows) + "\n"
