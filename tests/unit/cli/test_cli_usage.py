# SPDX-License-Identifier: Apache-2.0
"""Wrong usage of any command ends with exit code 2 and one line, before anything is connected or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from headrace.cli import main
from headrace.cli.commands import app

NOWHERE = "127.0.0.1:1"
CHECKED_BY_FORM = ("|", "=", "DURATION", "WHERE", "MOMENT")
"""In the placeholder of an option whose values have a form of their own."""
ANY_TEXT = {("serve", "--coordination"), ("pipeline offsets", "--to")}
ELSEWHERE = ("cluster", "demo")
"""Their texts are checked when the cluster is built."""


def _commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or typer.main.get_command(app)
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        yield from _commands(child, (*path, name))


def _required(parameters: list[Any]) -> list[str]:
    """Values for what the command cannot do without."""
    words = []
    for parameter in parameters:
        if parameter.required:
            value = "1" if parameter.min is not None else "x=1" if "=" in (parameter.metavar or "") else "x"
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    return words


def _wrong(path: tuple[str, ...], command: Any) -> Iterator[list[str]]:
    """Typical mistakes: an unknown option, a missing argument, text for a number, a wrong form."""
    required = _required(command.params)
    yield [*path, *required, "--no-such-option"]
    if any(each.required and each.param_type_name == "argument" for each in command.params):
        yield [*path]
    for option in command.params:
        if option.param_type_name != "option" or option.is_flag:
            continue
        name, placeholder = option.opts[0], option.metavar or ""
        formed = any(mark in placeholder for mark in CHECKED_BY_FORM) and path[0] not in ELSEWHERE
        if option.min is not None:
            yield [*path, *required, name, "many"]
        elif formed and (" ".join(path), name) not in ANY_TEXT:
            yield [*path, *required, name, "@@wrong"]


def _cases() -> Iterator[list[str]]:
    """An option that many commands share is tried on one of them."""
    seen = set()
    for path, command in _commands():
        for words in _wrong(path, command):
            shared = (path[0], *words[-2:]) if len(words) > len(path) + 1 else tuple(words)
            if shared[1:] == ("-X", "@@wrong"):
                shared = shared[1:]
            if shared not in seen:
                seen.add(shared)
                yield words


CASES = list(_cases())


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", NOWHERE)


def test_there_are_mistakes_of_every_command() -> None:
    assert len(CASES) > 100
    assert len({words[0] for words in CASES}) > 15


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_a_mistake_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(words) == 2, capsys.readouterr().err
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, "one line"
    assert captured.err.startswith("headrace: ")
    assert "Input should be" not in captured.err, "the words of pydantic, on which typer is built"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["topics", "create", "t", "--partitions", "many"], "'many' is not a whole number"),
        (["topics", "create", "t", "--partitions", "1.5"], "'1.5' is not a whole number"),
        (["topics", "create", "t", "--partitions", "0"], "'0' is less than 1"),
        (["plan", "t", "--headroom", "half"], "'half' is not a number"),
        (["demo", "--engine", "rabbit"], "'rabbit' is not one of 'headrace', 'kafka'"),
    ],
    ids=lambda case: " ".join(case) if isinstance(case, list) else "",
)
def test_a_wrong_value_is_named_with_what_is_wrong(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    option = words[-2]
    assert f"Invalid value for '{option}" in (printed := capsys.readouterr().err)
    assert f": {reason}; see: headrace " in printed


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "--follow", "--from", "yesterday"],
        ["consume", "t", "--partition", "0", "--group", "g"],
        ["consume", "t", "--workers", "2"],
        ["groups", "reset", "g"],
        ["groups", "reset", "g", "--from", "end", "--to-earliest"],
        ["groups", "reset", "g", "--from", "end", "--execute", "--dry-run"],
        ["groups", "events", "g", "--from", "12"],
        ["plan", "t", "--exec", "x", "--consume-rate", "5"],
        ["produce", "t", "--key", "a", "--key-separator", ":"],
        ["serve", "--port", "1", "--listener", "127.0.0.1:2"],
        ["serve", "--ephemeral", "--data", "x"],
        ["topics", "create", "t", "--ranges", "A..B", "--ranges-from", "f"],
        ["topics", "list", "--bootstrap", "host:port"],
        ["quotas", "set", "producer_byte_rate=5"],
        ["pipeline", "run", "store", "--topic", "t"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "hdfs://b/t"],
        ["pipeline", "run", "store", "--topic", "t", "--pattern", "t.*", "--path", "/t"],
        ["pipeline", "run", "store", "--pattern", "(", "--path", "/t"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "--from", "yesterday"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "--value", "jsno"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "--option", "minPartition=3"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "-o", "kafka.security.protocol=TLS"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "-X", "security.protocol=TLS"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "-X", "client.id=me"],
        ["pipeline", "run", "store", "--topic", "t", "--path", "/t", "--every", "soon"],
        ["pipeline", "run", "analyze", "--topic", "t", "--window", "1m", "--slide", "2m", "--to", "u"],
        ["pipeline", "run", "copy", "--topic", "t", "--to", "t"],
        ["pipeline", "run", "copy", "--topic", "t", "--to", "u", "--master", "sc://h:15002"],
    ],
    ids=" ".join,
)
def test_options_that_contradict_each_other_are_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
