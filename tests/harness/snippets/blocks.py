# SPDX-License-Identifier: Apache-2.0
"""The snippets of a document: blocks of `sh` and `python`, the `text` that each prints, and comments.

The conventions are in CONTRIBUTING.md, "Snippets". Read next: page_run.py, which runs them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

Language = Literal["sh", "python"]
_PART = re.compile(
    r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```[ ]*$|^<!-- (?P<comment>.*?) *-->[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One block that a reader runs, with what the document says of it."""

    language: Language
    code: str
    line: int
    output: str | None = None
    """What it prints: the `text` block behind it."""
    background: bool = False
    """It runs until the page ends: the next blocks are typed into another terminal."""
    fails: bool = False
    """Its exit code is not 0."""
    interrupts: bool = False
    """No code: the reader types Ctrl-C into the last terminal whose command goes on."""
    not_executed: str | None = None
    """Why no test runs it."""


def read_snippets(path: Path) -> list[Snippet]:
    text = path.read_text(encoding="utf-8")
    found: list[Snippet] = []
    comments: list[str] = []
    for part in _PART.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        comment, language, code = part["comment"], part["language"], part["code"]
        if comment is not None:
            if comment.startswith("setup\n"):
                found.append(Snippet(language="sh", code=comment.removeprefix("setup\n"), line=line))
            elif comment == "ctrl-c":
                found.append(Snippet(language="sh", code="", line=line, interrupts=True))
            else:
                comments.append(comment)
            continue
        if language in ("sh", "python"):
            found.append(_snippet(cast("Language", language), code, line, comments))
        elif language == "text" and found and found[-1].output is None:
            found[-1] = replace(found[-1], output=code)
        comments = []
    return found


def matches(expected: str, printed: str, *, prefix: bool = False) -> bool:
    """Whether this was printed: `…` stands for a part of a line, or alone for any number of lines."""
    lines = [line.rstrip() for line in expected.rstrip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else _line(line) for line in lines)
    printed = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    return bool(re.match(pattern, printed) if prefix else re.fullmatch(pattern, printed))


def _line(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…")) + r"\n"


def _snippet(language: Language, code: str, line: int, comments: list[str]) -> Snippet:
    reasons = [each.partition(":")[2].strip() for each in comments if each.startswith("not executed")]
    return Snippet(
        language=language,
        code=code,
        line=line,
        background="background" in comments,
        fails="fails" in comments,
        not_executed=reasons[0] if reasons else None,
    )
