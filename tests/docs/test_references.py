# SPDX-License-Identifier: Apache-2.0
"""Documents that the code names exist, and decisions are numbered."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_REFERENCE = re.compile(r"\bdocs/[\w./-]+\.(?:md|svg)")


def test_every_document_that_the_code_names_exists():
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "Dockerfile"]
    named = {found for file in files for found in _REFERENCE.findall(file.read_text())}
    assert "docs/configuration.md" in named
    assert not sorted(name for name in named if not (ROOT / name).exists())


def test_every_decision_has_a_number_of_its_own_and_carries_it():
    documents = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert Counter(document.name[:4] for document in documents).most_common(1)[0][1] == 1
    for document in documents:
        assert document.read_text().startswith(f"# {document.name[:4]}: "), document.name
