# SPDX-License-Identifier: Apache-2.0
"""Links that leave docs/: the site contains their files, so that it is complete without a repository.

Markdown of the root becomes a page under project/, other files lie under files/; folders are not linked.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

PROJECT_PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "ROADMAP.md": "project/roadmap.md",
    "SECURITY.md": "project/security-policy.md",
}
_PLACES = {**PROJECT_PAGES, "README.md": "index.md", "docs/decisions": "decisions/index.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def pages_and_files(root: Path) -> dict[str, Path]:
    """What the site takes from outside docs/: its path there, and the file."""
    found = {page: root / name for name, page in PROJECT_PAGES.items()}
    for document in [*(root / "docs").rglob("*.md"), *(root / name for name in PROJECT_PAGES)]:
        folder = document.parent.relative_to(root).as_posix()
        for _, target, _ in _LINK.findall(document.read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(folder, target))
            place = _place(path, root)
            if place is not None and place.startswith("files/"):
                found[place] = root / path
    return found


def rewrite(markdown: str, page: str, root: Path) -> str:
    """The text of a page with every link to a file of the project led to its place in the site."""
    sources = {place: name for name, place in PROJECT_PAGES.items()}
    folder = posixpath.dirname(sources.get(page, f"docs/{page}"))

    def new_link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if (place := _place(path, root)) is not None:
            return f"[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{anchor})"
        return text if (root / path).is_dir() else found[0]

    return _LINK.sub(new_link, markdown)


def _place(path: str, root: Path) -> str | None:
    """Where a file of the project is in the site; None for folders and for what is no file."""
    if path in _PLACES:
        return _PLACES[path]
    if not (root / path).is_file():
        return None
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
