# SPDX-License-Identifier: Apache-2.0
"""docs/licences.md names every package that users install, with a licence that lets them do so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.licences import licence, needed, rows

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "licences.md").read_text()
PERMISSIVE = re.compile(
    r"Apache|BSD|MIT|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|0BSD|Unlicense|CC0"
)

REPLACEABLE = {"crc32c": "LGPL-2.1-or-later"}
"""Asks only that users can replace the package; the page says so."""


def test_the_page_has_a_row_for_every_package() -> None:
    """It may have more: some packages are installed by other versions of Python only."""
    assert [row for row in rows() if row not in PAGE] == [], "run `make licences`"


@pytest.mark.parametrize("name", needed())
def test_a_licence_lets_users_do_what_they_want(name: str) -> None:
    stated = licence(name)
    assert REPLACEABLE.get(name) == stated or PERMISSIVE.search(stated), f"{name}: {stated!r}"
    assert name in REPLACEABLE or "GPL" not in stated, f"{name}: {stated!r}"
