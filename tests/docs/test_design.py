# SPDX-License-Identifier: Apache-2.0
"""docs/design has the text of every cited rule; documents and module heads name modules that exist."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.harness.syntax import parse

ROOT = Path(__file__).resolve().parents[2]
DESIGN = ROOT / "docs" / "design"
SOURCE = ROOT / "src"
MUTATIONS = ROOT / "tests" / "simulation" / "mutations"
RULE_LISTS = {"R": "reliability.md", "S": "security.md", "T": "testing.md"}
SOURCE_ROOTS = (SOURCE / "headrace", SOURCE, ROOT)

_RULE = re.compile(r"\b[RST]\d{1,2}[a-z]?\b")
_NOT_PROSE = re.compile(r"https?://\S+|```.*?```", flags=re.DOTALL)
_MODULE = re.compile(r"`([\w./-]+\.(?:py|c|toml))`")
_READ_NEXT = re.compile(r"Read next: (.*?)(?:\.\s*$|\.\s+[A-Z\"]|\Z)", flags=re.DOTALL | re.MULTILINE)


def _written_rules() -> set[str]:
    """Headings (`### R1: ...`) and table rows (`| T1 | ...`) of the three lists."""
    found: set[str] = set()
    for letter, name in RULE_LISTS.items():
        text = (DESIGN / name).read_text()
        found |= set(re.findall(rf"^(?:### |\| )({letter}\d+[a-z]?)(?::| \|)", text, flags=re.MULTILINE))
    return found


def _comments_and_strings(source: str) -> str:
    """Where rules are cited; names in code that look like one are left out."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(each.string for each in tokens if each.type in (tokenize.COMMENT, tokenize.STRING))


def _cited_rules() -> dict[str, list[str]]:
    cited: dict[str, list[str]] = {}
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for rule in set(_RULE.findall(_comments_and_strings(path.read_text()))):
            cited.setdefault(rule, []).append(path.name)
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]:
        for rule in set(_RULE.findall(_NOT_PROSE.sub("", path.read_text()))):
            cited.setdefault(rule, []).append(path.name)
    return cited


def test_every_cited_rule_is_written_down() -> None:
    written = _written_rules()
    missing = {rule: files for rule, files in _cited_rules().items() if rule not in written}
    assert not missing


def test_the_lists_have_no_gaps() -> None:
    written = _written_rules()
    for letter, last in (("R", 35), ("S", 24), ("T", 20)):
        assert {f"{letter}{number}" for number in range(1, last + 1)} <= written


def _sections() -> dict[str, str]:
    text = (DESIGN / RULE_LISTS["R"]).read_text()
    return dict(re.findall(r"^### (R\d+[a-z]?):(.*?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL))


def test_each_rule_lists_the_mutations_that_remove_it() -> None:
    removed: dict[str, set[str]] = {}
    for patch in MUTATIONS.rglob("*.toml"):
        rule = tomllib.loads(patch.read_text())["rule"]
        removed.setdefault(rule, set()).add(str(patch.relative_to(MUTATIONS).with_suffix("")))
    listed = {}
    for rule, section in _sections().items():
        if found := re.search(r"^- Mutations: (.*)$", section, flags=re.MULTILINE):
            listed[rule] = set(re.findall(r"`([\w/]+)`", found[1]))
    assert listed == removed


@pytest.mark.parametrize("name", ["reliability.md", "security.md"])
def test_each_rule_has_a_reason_and_says_where_it_is_enforced(name: str) -> None:
    sections = re.split(r"^### ", (DESIGN / name).read_text(), flags=re.MULTILINE)[1:]
    assert sections
    for section in sections:
        assert "\n- Why: " in section, section.splitlines()[0]
        assert "\n- Enforced in: " in section, section.splitlines()[0]


def _exists(name: str) -> bool:
    return any((root / name).exists() for root in SOURCE_ROOTS)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_every_path_named_in_the_documents_exists(path: Path) -> None:
    """Bare file names outside docs/design belong to a folder that the text names."""
    names = {name for name in _MODULE.findall(path.read_text()) if "/" in name or path.parent == DESIGN}
    assert not sorted(name for name in names if not _exists(name))


@cache
def _module_heads() -> dict[Path, str]:
    heads = {}
    for root in (SOURCE, ROOT / "tests"):
        for path in root.rglob("*.py"):
            heads[path] = ast.get_docstring(parse(path.read_text())) or ""
    return heads


def _read_next(head: str) -> list[str]:
    """Paths after "Read next": relative to the module's folder, its package, or the source root."""
    return [name for text in _READ_NEXT.findall(head) for name in re.findall(r"[\w./]+\.py\b", text)]


def _resolves(path: Path, name: str) -> bool:
    return (path.parent / name).exists() or _exists(name) or _exists_in_package(path, name)


def _exists_in_package(path: Path, name: str) -> bool:
    """`machines/leader.py` may be named from anywhere; `leader.py` only from the folder that has it."""
    return "/" in name and any((parent / name).exists() for parent in path.parents if ROOT in parent.parents)


def test_every_module_to_read_next_exists() -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, head in _module_heads().items()
        for name in _read_next(head)
        if not _resolves(path, name)
    ]
    assert not sorted(lost), "\n" + "\n".join(sorted(lost))
