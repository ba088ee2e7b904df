# SPDX-License-Identifier: Apache-2.0
"""`headrace demo`: plays the scenes of headrace/demo, which run commands of this command line."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headrace.cli.errors import UsageError
from headrace.cli.options import Json
from headrace.cli.output import Output
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.demo.playing import Outcome
    from headrace.demo.scene import Scene

_WIDTH = 80


def demo(
    context: typer.Context,
    scene: Annotated[
        list[str] | None, typer.Option("--scene", "-s", metavar="NAME", help="Only this scene; repeatable.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", "-l", help="List the scenes and what they need.")] = False,
    engine: Annotated[
        Literal["headrace", "kafka"], typer.Option("--engine", help="Whose nodes: ours or Apache Kafka's.")
    ] = "headrace",
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="DIR", help="Save pictures in this directory.")
    ] = None,
    tour: Annotated[
        Path | None, typer.Option("--tour", metavar="FILE", help="Write what was shown as Markdown.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Start the web console beside the story.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write what was shown as one HTML file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show in the terminal what Headrace does, on nodes of its own.

    Each scene says what it promises and checks it. The exit code is 1 when a
    promise did not hold. Nodes, topics and files are removed at the end.

    \b
    Examples:
      headrace demo
      headrace demo --list
      headrace demo --scene log --scene failover
      headrace demo --engine kafka --scene move
      headrace demo --console --report demo-report.html
    """
    from headrace.demo.scenes.catalog import KAFKA_SCENES, SCENES

    output = Output(as_json=as_json)
    scenes = KAFKA_SCENES if engine == "kafka" else SCENES
    if list_:
        _print_list(output, scenes)
        return
    chosen = _chosen(scene, scenes)
    if console:
        _check_console()
    with _picture_folder(pictures, wanted=report is not None) as drawn:
        outcome = _play(context, chosen, engine=engine, pictures=drawn, console=console, quiet=as_json)
        if report is not None and drawn is not None:
            _write_report(report, outcome, drawn, engine)
            output.note(f"Report: {report}")
    if tour is not None:
        from headrace.demo.tour import markdown

        tour.write_text(markdown(outcome.played), encoding="utf-8")
    if as_json:
        output.document(_document(outcome))
    raise typer.Exit(0 if outcome.all_held else 1)


def _print_list(output: Output, scenes: Sequence[Scene]) -> None:
    if output.as_json:
        output.document([_about(scene) for scene in scenes])
        return
    rows = [(s.name, s.title, ", ".join(need.name for need in s.needs) or None) for s in scenes]
    output.table(("SCENE", "SHOWS", "NEEDS"), rows)


def _about(scene: Scene) -> dict[str, Any]:
    needs = {need.name: need.missing() for need in scene.needs}
    return {"name": scene.name, "title": scene.title, "needs": needs}


def _chosen(names: list[str] | None, scenes: Sequence[Scene]) -> list[Scene]:
    known = {scene.name: scene for scene in scenes}
    for name in names or ():
        if name not in known:
            raise UsageError(f"there is no scene '{name}'", "see: headrace demo --list")
    return [known[name] for name in names] if names else list(scenes)


def _check_console() -> None:
    from headrace.demo.console_beside import missing

    if (reason := missing()) is not None:
        raise ClientError(f"--console: {reason}")


@contextmanager
def _picture_folder(given: Path | None, *, wanted: bool) -> Iterator[Path | None]:
    """A report needs the pictures, also when nobody wants to keep them."""
    if given is not None or not wanted:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="headrace-pictures-") as folder:
        yield Path(folder)


def _write_report(file: Path, outcome: Outcome, pictures: Path, engine: str) -> None:
    from headrace.demo.report import html

    names = {"headrace": "Headrace", "kafka": "Apache Kafka"}
    file.write_text(html(outcome, pictures=pictures, engine=names[engine]), encoding="utf-8")


def _play(
    context: typer.Context,
    scenes: list[Scene],
    *,
    engine: Any,
    pictures: Path | None,
    console: bool,
    quiet: bool,
) -> Outcome:
    from rich.console import Console

    from headrace.demo.playing import Player
    from headrace.demo.screen import Screen

    warnings.simplefilter("ignore")  # of packages that Spark loads meanwhile
    terminal = Console(highlight=False, file=io.StringIO() if quiet else None)
    root: Any = context.find_root().command
    screen = Screen(terminal, lambda arguments, typed: _run_captured(root, arguments, typed))
    outcome = Player(screen=screen, engine=engine, pictures=pictures, with_console=console).play(scenes)
    terminal.rule()
    for line in outcome.verdict():
        terminal.print(line, soft_wrap=True)
    return outcome


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "all_held": outcome.all_held,
        "left_out": {each.scene.name: each.left_out for each in outcome.left_out},
        "took_s": round(outcome.took_s, 1),
        "scenes": [
            {
                **_about(each.scene),
                "promises": [{"text": p.text, "held": p.held} for p in each.recording.promises],
            }
            for each in outcome.played
        ],
    }


# -- commands of a scene -----------------------------------------------------------------------------------


class _TerminalBuffer(io.TextIOWrapper):
    """Collects output that is made as for a terminal."""

    def isatty(self) -> bool:
        return True


def _run_captured(root: Any, arguments: Sequence[str], typed: str) -> tuple[int, str]:
    """Run a command of this program in this process; its output is as on a terminal of 80 columns."""
    written = io.BytesIO()
    buffer = _TerminalBuffer(written, encoding="utf-8", write_through=True)
    with _standard_input(typed), redirect_stdout(buffer), redirect_stderr(buffer), _width(_WIDTH):
        code = _run(root, list(arguments))
        buffer.flush()
    return code, written.getvalue().decode()


def _run(root: Any, arguments: list[str]) -> int:
    try:
        code = root.main(args=arguments, standalone_mode=False, prog_name="headrace")
    except (HeadraceError, UsageError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


@contextmanager
def _standard_input(typed: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before


@contextmanager
def _width(columns: int) -> Iterator[None]:
    """Tables are made for this width, whatever the terminal's is."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(columns)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
