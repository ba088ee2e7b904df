# SPDX-License-Identifier: Apache-2.0
"""The demo's last line: all held, something broke, or something was left out."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console

from headrace.demo.playing import Outcome, Player
from headrace.demo.scene import Requirement, Scene, SceneFailed, Stage
from headrace.demo.scenes.catalog import SCENES
from headrace.demo.screen import Screen
from headrace.demo.tour import markdown, sections_of, stable


def scene(name: str, play: Callable[[Stage], None], *needs: Requirement) -> Scene:
    return Scene(name=name, title=name.title(), play=play, needs=needs, own_nodes=True)


def holds(stage: Stage) -> None:
    stage.screen.say("Water flows down.")
    stage.screen.run("headrace topics list", typed="a\nb")
    stage.screen.check("it is down", True)


def breaks(stage: Stage) -> None:
    stage.screen.check("it flows up", False)


def stops(stage: Stage) -> None:
    raise SceneFailed("waited in vain")


def played(*scenes: Scene) -> tuple[Outcome, str]:
    def run(arguments: Sequence[str], typed: str) -> tuple[int, str]:
        return 0, f"\x1b[1mran {' '.join(arguments)} after 12.5 ms\x1b[0m\n"

    written = io.StringIO()
    screen = Screen(Console(file=written, width=80, highlight=False), run)
    return Player(screen=screen).play(scenes), written.getvalue()


MISSING = Requirement(name="Java", missing=lambda: "Java is missing; install it")
THERE = Requirement(name="Python", missing=lambda: None)


def test_everything_held() -> None:
    outcome, printed = played(scene("river", holds, THERE))
    assert outcome.all_held
    assert outcome.verdict()[-1].startswith("All as promised (1 scene, 1 promises")
    assert "$ printf 'a\\nb\\n' | headrace topics list" in printed
    assert "✓ it is down" in printed


@pytest.mark.parametrize(("play", "why"), [(breaks, "it flows up"), (stops, "waited in vain")])
def test_a_broken_promise_is_named_and_the_next_scene_is_played(
    play: Callable[[Stage], None], why: str
) -> None:
    outcome, printed = played(scene("up", play), scene("river", holds))
    *lines, last = outcome.verdict()
    assert not outcome.all_held
    assert any(line.startswith("✗ up: ") and why in line for line in lines)
    assert last.startswith("NOT as promised: 1 of 2 broken")
    assert "✓ it is down" in printed


def test_a_scene_that_cannot_be_played_is_named_with_the_reason() -> None:
    outcome, printed = played(scene("river", holds), scene("mill", holds, THERE, MISSING))
    *lines, last = outcome.verdict()
    assert outcome.all_held
    assert lines == ["Left out: mill. Java is missing; install it."]
    assert "as promised" not in last
    assert last.endswith("left out: mill.")
    assert "Left out: Java is missing; install it." in printed


def test_what_was_shown_becomes_a_section_without_what_varies() -> None:
    outcome, _ = played(scene("river", holds), scene("mill", holds, MISSING))
    sections = sections_of(markdown(outcome.played))
    assert list(sections) == ["river"]
    assert "ran topics list after 12.5 ms" in sections["river"]
    assert stable("a  12.5 ms  7 cups at 127.0.0.1:4711", (r"\d+ cups",)) == "a  …  … at …"


def test_names_are_unique() -> None:
    assert len({each.name for each in SCENES}) == len(SCENES)
    assert len({each.title for each in SCENES}) == len(SCENES)
