# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline`: data pipelines on Spark and the tables that they write."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.durations import parse_duration_ms
from headrace.cli.options import HELP_STYLE, Json
from headrace.cli.output import Output, human_bytes
from headrace.cli.pipeline import run as pipeline_run
from headrace.cli.pipeline.checkpoint import checkpoint
from headrace.cli.pipeline.new import new
from headrace.cli.pipeline.offsets import offsets
from headrace.cli.pipeline.options import StorageConfig, StorageOption, parse_storage
from headrace.cli.pipeline.pack import pack
from headrace.cli.pipeline.status import status

if TYPE_CHECKING:
    from headrace.pipelines.delta.optimize import OptimizeResult

app = typer.Typer(
    help="Data pipelines on Spark, and the tables they write.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

app.add_typer(pipeline_run.app, name="run")

_HOUR_MS = 3_600_000

app.command("checkpoint")(checkpoint)
app.command("new")(new)
app.command("offsets")(offsets)
app.command("pack")(pack)
app.command("status")(status)


@app.command("optimize")
def optimize(
    table: Annotated[str, typer.Argument(metavar="PATH", help="Directory of a Delta table, or s3://….")],
    target_size: Annotated[
        str, typer.Option("--target-size", metavar="SIZE", help="Merge files towards this size.")
    ] = "128m",
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            metavar="DURATION",
            help="Keep files needed by versions within this time.  [default: the table's, usually 7d]",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow less than the table's retention: nothing may use the table."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    storage: StorageOption = None,
    storage_config: StorageConfig = None,
    as_json: Json = False,
) -> None:
    """Merge small files of a Delta table and remove unreferenced ones.

    A stream leaves small files per micro-batch, and uncommitted files when it is killed. Safe while
    queries write to the table.

    \b
    Examples:
      headrace pipeline optimize /data/orders
      headrace pipeline optimize /data/orders --dry-run
      headrace pipeline optimize /data/orders --target-size 512m --retain 30d
      headrace pipeline optimize s3://lake/orders --storage-config s3.properties
    """
    from headrace.pipelines.definitions.keys import parse_size
    from headrace.pipelines.delta.optimize import optimize_table
    from headrace.pipelines.delta.storage_options import storage_options, table_place

    size = parse_size(target_size)
    if size is None:
        raise typer.BadParameter(f"{target_size!r} is not a size: use 64m or 1g", param_hint="--target-size")
    retain_hours = None if retain is None else -(-parse_duration_ms(retain, "--retain") // _HOUR_MS)
    place = table_place(table, storage_options(parse_storage(storage), storage_config))
    care = optimize_table(place, target_size=size, retain_hours=retain_hours, force=force, dry_run=dry_run)
    output = Output(as_json=as_json)
    if as_json:
        output.document({"table": table, "dry_run": dry_run, **asdict(care)})
        return
    for line in _summary(care, dry_run=dry_run):
        output.line(line)


def _summary(result: OptimizeResult, *, dry_run: bool) -> list[str]:
    if dry_run:
        merged = f"Would merge {result.small_files} small files of {result.files_before}."
    elif result.small_files:
        merged = f"Merged small files: {result.files_before} files before, {result.files_after} now."
    else:
        merged = f"Nothing to merge among {result.files_before} files."
    removed = "Would remove" if dry_run else "Removed"
    return [merged, f"{removed} {result.orphans} unreferenced files ({human_bytes(result.orphan_bytes)})."]
