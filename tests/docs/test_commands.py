# SPDX-License-Identifier: Apache-2.0
"""Every command that the documents show exists, with the options that they show."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.harness.site.hooks import GENERATED

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
_FENCE = re.compile(r"```(?:sh|console)\n(.*?)```", flags=re.DOTALL)


def _command_lines(path: Path) -> list[str]:
    """Commands in the fenced shell blocks: after `$ ` in a console, every line in a script."""
    lines = "\n".join(_FENCE.findall(path.read_text())).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines]


def _parts(line: str) -> list[list[str]]:
    """The commands of a pipe, without what they read, write or leave in the background."""
    words = shlex.split(line, comments=True)
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&", "&", ";"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


COMMANDS = [
    (path.name, command)
    for path in DOCUMENTS
    if path.exists()
    for line in _command_lines(path)
    if re.search(r"\bheadrace [a-z]|^make |^python examples/|^kafka-demo ", line)
    for command in _parts(line)
]
HEADRACE = [(document, command) for document, command in COMMANDS if command[0] == "headrace"]
PROGRAMS = [
    (document, command)
    for document, command in COMMANDS
    if command[0] == "kafka-demo" or (command[0] == "python" and command[1].startswith("examples/"))
]
MAKE = [(document, command) for document, command in COMMANDS if command[0] == "make"]


def _shown(value: object) -> str:
    """The name of a test case."""
    return " ".join(value) if isinstance(value, list) else getattr(value, "name", str(value))


def _walk(root: Any, words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words after its name."""
    command = root
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        found = command.commands.get("file" if words[0].endswith(".toml") else words[0])
        assert found is not None, f"there is no {words[0]!r} among {sorted(command.commands)}"
        command, words = found, words[1:]
    return command, words


def test_the_documents_show_commands():
    assert len(HEADRACE) > 10
    assert PROGRAMS
    assert len(MAKE) >= 2


@pytest.mark.parametrize(("document", "command"), HEADRACE, ids=_shown)
def test_a_shown_headrace_command_exists_with_its_options(document, command):
    commands = pytest.importorskip("headrace.cli.commands")
    typer = pytest.importorskip("typer")
    found, words = _walk(typer.main.get_command(commands.app), command[1:])
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    shown = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert shown <= known | {"--help"}, f"{document}: {sorted(shown - known)} of {' '.join(command)}"


@pytest.mark.parametrize(("document", "command"), MAKE, ids=_shown)
def test_a_shown_make_target_exists(document, command):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    shown = {word for word in command[1:] if "=" not in word}
    assert shown <= targets, document


@pytest.mark.parametrize(("document", "command"), PROGRAMS, ids=_shown)
def test_a_shown_program_exists_with_its_options(document, command):
    if command[0] == "python":
        program, words = [str(ROOT / command[1])], command[2:]
    else:
        module, _, function = SCRIPTS[command[0]].partition(":")
        program, words = ["-c", f"from {module} import {function}; {function}()"], command[1:]
    asked = [sys.executable, *program, "--help"]
    help_text = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    known = set(re.findall(r"(?<!\S)--?[a-z]+", help_text))
    shown = {word for word in words if word.startswith("-")}
    assert shown <= known, f"{document}: {sorted(shown - known)}"


def _links() -> list[tuple[Path, str]]:
    found = []
    for path in DOCUMENTS:
        if path.exists():
            found += [
                (path, link) for link in re.findall(r"\]\(([^)#\s]+)\)|src=\"([^\"]+)\"", path.read_text())
            ]
    return [(path, one or two) for path, (one, two) in found]


@pytest.mark.parametrize(("document", "link"), _links(), ids=_shown)
def test_a_link_within_the_project_leads_somewhere(document, link):
    if not link.startswith("http"):
        written_later = any(document.parent / link == ROOT / "docs" / page for page in GENERATED)
        assert written_later or (document.parent / link).exists(), f"{document.name} links to {link}"
