# SPDX-License-Identifier: Apache-2.0
"""Sorts the rows of a table by one of their fields; what is not known comes last, whatever the direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.console.views.view import Document, ViewError


def sorted_rows(
    rows: Iterable[Document], sort: str, then_by: str, *, last: str | None = None
) -> list[Document]:
    """`sort`: a field, or one with a minus in front. Rows in which `last` is true come after the others."""
    field, descending = sort.removeprefix("-"), sort.startswith("-")
    listed = sorted(rows, key=lambda row: row[then_by])
    if listed and field not in listed[0]:
        raise ViewError(
            f"the table has no column {field!r}", next_step=f"one of: {', '.join(listed[0])}", status=400
        )
    known = [row for row in listed if row[field] is not None]
    known.sort(key=lambda row: _comparable(row[field]), reverse=descending)
    found = known + [row for row in listed if row[field] is None]
    return sorted(found, key=lambda row: bool(row[last])) if last else found


def _comparable(value: Any) -> Any:
    return len(value) if isinstance(value, list) else value
