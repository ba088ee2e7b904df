"""`headrace pipeline`: data pipelines on Spark and the tables that they write."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import pipeline_run
from headrace.cli.durations import parse_duration_ms
from headrace.cli.help import HELP_STYLE
from headrace.cli.options import Json
from headrace.cli.output import Output, human_bytes
from headrace.cli.pipeline_offsets import offsets
from headrace.cli.pipeline_pack import pack

if TYPE_CHECKING:
    from headrace.pipelines.delta.optimize import Care

app = typer.Typer(
    help="Data pipelines on Spark, and the tables they write.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

app.add_typer(pipeline_run.app, name="run")

_HOUR_MS = 3_600_000

app.command("offsets")(offsets)
app.command("pack")(pack)


@app.command("optimize")
def optimize(
    table: Annotated[str, typer.Argument(metavar="PATH", help="The folder of a Delta table.")],
    target_size: Annotated[
        str, typer.Option("--target-size", metavar="SIZE", help="Merge files towards this size.")
    ] = "128m",
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            metavar="DURATION",
            help="Remove only files that no version of this time needs.  [default: the table's, mostly 7d]",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Retain less than the table asks for: nobody must use it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Merge the small files of a Delta table and remove those that no version of it needs.

    A stream leaves a few files per micro-batch, and files without a commit where it was killed. Safe while
    queries write to the table.

    \b
    Examples:
      headrace pipeline optimize /data/orders
      headrace pipeline optimize /data/orders --dry-run
      headrace pipeline optimize /data/orders --target-size 512m --retain 30d
    """
    from headrace.pipelines.delta.optimize import optimize_table
    from headrace.pipelines.delta.table import local_path
    from headrace.pipelines.sizes import parse_size

    size = parse_size(target_size)
    if size is None:
        raise typer.BadParameter(f"{target_size!r} is no size: use 64m or 1g", param_hint="--target-size")
    retain_hours = None if retain is None else -(-parse_duration_ms(retain, "--retain") // _HOUR_MS)
    care = optimize_table(
        local_path(table), target_size=size, retain_hours=retain_hours, force=force, dry_run=dry_run
    )
    output = Output(as_json=as_json)
    if as_json:
        output.document({"table": table, "dry_run": dry_run, **asdict(care)})
        return
    for line in _said(care, dry_run=dry_run):
        output.line(line)


def _said(care: Care, *, dry_run: bool) -> list[str]:
    if dry_run:
        merged = f"Would merge {care.small_files} small files of {care.files_before}."
    elif care.small_files:
        merged = f"Merged small files: {care.files_before} files before, {care.files_after} now."
    else:
        merged = f"Nothing to merge among {care.files_before} files."
    removed = "Would remove" if dry_run else "Removed"
    return [merged, f"{removed} {care.orphans} unneeded files ({human_bytes(care.orphan_bytes)})."]
