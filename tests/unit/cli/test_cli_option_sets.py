# SPDX-License-Identifier: Apache-2.0
"""Options that are declared as dataclasses: typer sees each field, the command gets the objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from headrace.cli.option_sets import takes_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")]
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    rate: Annotated[float, typer.Option("--rate", help="So many a second.")] = 1.5


Seen = list[tuple[Where, bool, How]]


@pytest.fixture
def seen() -> Seen:
    return []


@pytest.fixture
def app(seen: Seen) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @takes_options
    def send(where: Where, how: How, quiet: Annotated[bool, typer.Option("--quiet")] = False) -> None:
        """Send it."""
        seen.append((where, quiet, how))

    return app


def run(app: typer.Typer, *words: str) -> None:
    app(args=list(words), standalone_mode=False)


def test_each_set_is_handed_over_with_its_defaults(app: typer.Typer, seen: Seen) -> None:
    run(app, "t")
    run(app, "t", "-p", "1", "-p", "2", "--rate", "3", "--quiet")
    assert seen == [
        (Where(topic="t"), False, How()),
        (Where(topic="t", partition=[1, 2]), True, How(rate=3.0)),
    ]


def test_required_fields_are_required_options(app: typer.Typer, seen: Seen) -> None:
    wrong_usage = typer.BadParameter.__base__
    assert wrong_usage is not None
    for words in ([], ["t", "-p", "-1"], ["t", "--rate", "fast"], ["t", "--how", "1"]):
        with pytest.raises(wrong_usage):
            run(app, *words)
    assert not seen


def test_help_names_the_fields_in_their_order(app: typer.Typer, capsys: pytest.CaptureFixture[str]) -> None:
    run(app, "--help")
    shown = capsys.readouterr().out
    places = [shown.index(word) for word in ("Send it.", "Where to.", "--partition", "--rate", "--quiet")]
    assert places == sorted(places)
