# SPDX-License-Identifier: Apache-2.0
"""Writes what scenes have shown as a Markdown document.

`stable` removes what differs from run to run, so that a test can compare two documents.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from headrace.demo.playing import Played
from headrace.demo.screen import Part

HEAD = """# Tour

Each section shows one drawing of how a partitioned log works: what it means, the commands, and what they
printed. All of it was printed by `headrace demo`; `headrace demo --scene NAME` plays one section for you.
`make tour` writes this file, and a test compares it with a new run. The last section lists the drawings.
"""
PICTURES = "pictures"
"""The folder beside the document."""
_VARIES = (
    r"\d+([.,]\d+)* ?(ms|µs|s|min|MiB|KiB|B|records/s)\b",
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?",
    r"\b\d\d:\d\d:\d\d(\.\d+)?\b",
    r"127\.0\.0\.1:\d+",
)
"""Times, sizes and ports."""


def markdown(played: Sequence[Played]) -> str:
    sections = [_section(each) for each in played if each.left_out is None]
    return "\n".join([HEAD, *sections])


def sections_of(document: str) -> dict[str, str]:
    """The text of each section by the name of its scene."""
    found: dict[str, str] = {}
    for text in document.split("\n## ")[1:]:
        match = re.search(r"`headrace demo --scene ([\w-]+)`", text)
        if match is not None:
            found[match[1]] = text
    return found


def stable(text: str, varies: Sequence[str]) -> str:
    """The text with everything that varies replaced by …, and without the spaces that align columns."""
    for pattern in (*varies, *_VARIES):
        text = re.sub(pattern, "…", text)
    return re.sub(r"[ ─━]{2,}", "  ", text)


def _section(each: Played) -> str:
    lines = [f"## {each.scene.title}", "", f"`headrace demo --scene {each.scene.name}`", ""]
    for kind, group in groupby(each.recording.parts, key=lambda part: part.kind):
        parts = list(group)
        if kind == "output":
            lines += _block(parts)
        elif kind == "picture":
            lines += [line for part in parts for line in (f"![{part.text}]({PICTURES}/{part.file})", "")]
        else:
            lines += _paragraphs(parts)
    return "\n".join(lines)


def _block(parts: Sequence[Part]) -> list[str]:
    return ["```text", *(part.text for part in parts), "```", ""]


def _paragraphs(parts: Sequence[Part]) -> list[str]:
    return [line for part in parts for line in (part.text, "")]
