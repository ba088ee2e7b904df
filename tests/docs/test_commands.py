"""Every command that the papers show exists, with the options that they show."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    for path in PAPERS
    if path.exists()
    for line in _command_lines(path)
    if re.search(r"\bheadrace [a-z]|^make |^python examples/", line)
    for command in _parts(line)
]
HEADRACE = [(paper, command) for paper, command in COMMANDS if command[0] == "headrace"]
EXAMPLES = [(paper, command) for paper, command in COMMANDS if command[0] == "python"]
MAKE = [(paper, command) for paper, command in COMMANDS if command[0] == "make"]


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


def test_the_papers_show_commands():
    assert len(HEADRACE) > 10
    assert EXAMPLES
    assert len(MAKE) >= 2


@pytest.mark.parametrize(("paper", "command"), HEADRACE, ids=_shown)
def test_a_shown_headrace_command_exists_with_its_options(paper, command):
    commands = pytest.importorskip("headrace.cli.commands")
    typer = pytest.importorskip("typer")
    found, words = _walk(typer.main.get_command(commands.app), command[1:])
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    shown = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert shown <= known | {"--help"}, f"{paper}: {sorted(shown - known)} of {' '.join(command)}"


@pytest.mark.parametrize(("paper", "command"), MAKE, ids=_shown)
def test_a_shown_make_target_exists(paper, command):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    shown = {word for word in command[1:] if "=" not in word}
    assert shown <= targets, paper


@pytest.mark.parametrize(("paper", "command"), EXAMPLES, ids=_shown)
def test_a_shown_example_exists_with_its_options(paper, command):
    asked = [sys.executable, str(ROOT / command[1]), "--help"]
    help_text = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    known = set(re.findall(r"(?<!\S)--?[a-z]+", help_text))
    shown = {word for word in command[2:] if word.startswith("-")}
    assert shown <= known, f"{paper}: {sorted(shown - known)}"


def _links() -> list[tuple[Path, str]]:
    found = []
    for path in PAPERS:
        if path.exists():
            found += [
                (path, link) for link in re.findall(r"\]\(([^)#\s]+)\)|src=\"([^\"]+)\"", path.read_text())
            ]
    return [(path, one or two) for path, (one, two) in found]


@pytest.mark.parametrize(("paper", "link"), _links(), ids=_shown)
def test_a_link_within_the_project_leads_somewhere(paper, link):
    if not link.startswith("http"):
        assert (paper.parent / link).exists(), f"{paper.name} links to {link}"
