# SPDX-License-Identifier: Apache-2.0
"""An extension of griffe, which reads docstrings: lines like `start, end: …` become a list of options."""

from __future__ import annotations

import re
from typing import Any

import griffe

_OPTION = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (?=\S)")
_PROSE = frozenset(("example", "examples", "note", "returns", "raises", "usage"))


class OptionLists(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(text: str) -> str:
    """Each option as an item of a list, with the indented lines that continue it."""
    lines: list[str] = []
    in_list = False
    for line in text.splitlines():
        found = _OPTION.match(line)
        if found is not None and found[1] not in _PROSE:
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines += [*([] if in_list else [""]), f"- {names}: {line[found.end() :]}"]
            in_list = True
        elif in_list and line.strip():
            lines.append(f"    {line.strip()}")
        else:
            in_list = False
            lines.append(line)
    return "\n".join(lines)
