# SPDX-License-Identifier: Apache-2.0
"""The page of the command line: commands, arguments, options and examples, from the typer application."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from headrace.cli.commands import app

_HEAD = """\
# Command line

Every command of `headrace`, as `--help` shows it. All but `serve`, `certs` and `log` work with Apache
Kafka, too. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

"""


def page() -> str:
    return _HEAD + "\n".join(_section(path, command) for path, command in commands())


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by its full name, in the order of `--help`."""
    yield from _walk("headrace", typer.main.get_command(app))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        if not each.hidden:
            yield from _walk(f"{path} {name}", each)


def _section(path: str, command: Any) -> str:
    text, _, examples = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Examples:\n")
    context = typer.Context(command, info_name=path)
    parts = [f"## {path}", _escaped(text.strip()), f"```text\n{path} {_usage(command, context)}\n```"]
    arguments = [_row(each, context) for each in command.params if each.param_type_name == "argument"]
    options = [
        _row(each, context) for each in command.params if each.param_type_name == "option" and not each.hidden
    ]
    if arguments:
        parts.append("| argument | meaning |\n|---|---|\n" + "\n".join(arguments))
    if options:
        parts.append("| option | meaning |\n|---|---|\n" + "\n".join(options))
    if examples.strip():
        parts.append(f"```console\n{inspect.cleandoc(examples)}\n```")
    return "\n\n".join(parts) + "\n"


def _usage(command: Any, context: Any) -> str:
    return " ".join(command.collect_usage_pieces(context))


def _row(parameter: Any, context: Any) -> str:
    name, meaning = parameter.get_help_record(context)
    cells = (f"`{name}`", _escaped(meaning))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Angle brackets and asterisks as they are, outside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[") for part in parts[::2]]
    return "`".join(parts)
