"""`headrace pipeline run`: built-in pipelines, one from options or several from a file.

Options in, words out: pipeline_session.py runs them, pipeline_progress.py shows how far they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli import pipeline_options as given
from headrace.cli.help import HELP_STYLE
from headrace.cli.options import BOOTSTRAP, Bootstrap, Json, parse_pairs

_FILE = "file"


class _CommandOrFile(TyperGroup):
    """A word that looks like the name of a file is one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and re.match(r"[^-].*[./]", args[0]):
            args = [_FILE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_CommandOrFile,
    help="""Run built-in pipelines: store, analyze, copy, or several of them from a TOML file.

    Each runs until Ctrl-C, which stops it between two micro-batches, or with --once until it has read what
    is there. Started again it goes on where it was.

    \b
    Examples:
      headrace pipeline run store --topic orders --path /data/orders
      headrace pipeline run pipelines.toml
      headrace pipeline run pipelines.toml --once --json
    """,
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
    subcommand_metavar="store|analyze|copy|FILE.toml [OPTIONS]",
)


@app.command("store")
def store(
    topic: given.Topic = None,
    path: Annotated[str | None, typer.Option("--path", metavar="PATH", help="The table's folder.")] = None,
    table_format: Annotated[
        str | None, typer.Option("--format", metavar="delta|parquet", help="[default: delta]")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMN", help="Instead of the date; may be repeated."),
    ] = None,
    time: given.Time = None,
    value: given.Value = None,
    key: given.Key = None,
    schema: given.Schema = None,
    registry: given.Registry = None,
    rejects: given.Rejects = None,
    pattern: given.Pattern = None,
    begin: given.Begin = None,
    max_rows: given.MaxRows = None,
    every: given.Every = None,
    on_data_loss: given.OnDataLoss = None,
    option: given.SourceOption = None,
    name: given.Name = None,
    group: given.Group = None,
    checkpoint: given.Checkpoint = None,
    once: given.Once = False,
    master: given.Master = None,
    pack: given.Pack = None,
    python: given.Python = None,
    spark: given.SparkSetting = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Store every record of a topic in a table, exactly once, filed under its date (UTC).

    Raw records keep the columns of a topic: key, value, topic, partition, offset, timestamp, headers. Of
    typed ones the fields are the columns, beside _key, _topic, _partition, _offset, _timestamp.

    \b
    Examples:
      headrace pipeline run store --topic orders --path /data/orders
      headrace pipeline run store --topic orders --path /data/orders --format parquet --once
      headrace pipeline run store --topic orders --path /data/orders --value json \\
        --schema "customer STRING, amount DOUBLE, at TIMESTAMP" --time at
    """
    values = _common(locals()) | {
        "path": path,
        "format": table_format,
        "partition_by": partition_by,
        "time": time,
    }
    _run([given.pipeline_from("store", name, values)], locals())


@app.command("analyze")
def analyze(
    topic: given.Topic = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="DURATION", help="Length of a window: 1m, 1h.")
    ] = None,
    slide: Annotated[
        str | None,
        typer.Option("--slide", metavar="DURATION", help="A window begins so often.  [default: its length]"),
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option("--watermark", metavar="DURATION", help="How late records may be.  [default: 10s]"),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="SQL", help="A key: a column, or SQL AS name; may be repeated."),
    ] = None,
    sums: Annotated[
        list[str] | None, typer.Option("--sum", metavar="COLUMN", help="Its sum; may be repeated.")
    ] = None,
    averages: Annotated[
        list[str] | None, typer.Option("--avg", metavar="COLUMN", help="Its average; may be repeated.")
    ] = None,
    percentile: Annotated[
        list[str] | None,
        typer.Option("--percentile", metavar="COLUMN:50,99", help="Its percentiles; may be repeated."),
    ] = None,
    aggregate: Annotated[
        list[str] | None,
        typer.Option("--aggregate", metavar="NAME=SQL", help="Any other aggregate; may be repeated."),
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="closed|all",
            help="Each window once, when complete, or all after every batch.  [default: closed]",
        ),
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="The folder of a Delta table.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="A topic for the results.")] = None,
    time: given.Time = None,
    value: given.Value = None,
    key: given.Key = None,
    schema: given.Schema = None,
    registry: given.Registry = None,
    rejects: given.Rejects = None,
    pattern: given.Pattern = None,
    begin: given.Begin = None,
    max_rows: given.MaxRows = None,
    every: given.Every = None,
    on_data_loss: given.OnDataLoss = None,
    option: given.SourceOption = None,
    name: given.Name = None,
    group: given.Group = None,
    checkpoint: given.Checkpoint = None,
    once: given.Once = False,
    master: given.Master = None,
    pack: given.Pack = None,
    python: given.Python = None,
    spark: given.SparkSetting = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Count, sum up and average by windows of event time and by key, into a table, a topic, or both.

    A window is complete when records came that are later than its end by more than --watermark. Records that
    come for it after that are left out, and counted under LATE.

    \b
    Examples:
      headrace pipeline run analyze --topic clicks --window 1m --by topic --path /data/clicks_per_minute
      headrace pipeline run analyze --topic orders --window 1h --slide 15m --watermark 5m \\
        --value json --schema "customer STRING, amount DOUBLE, at TIMESTAMP" --time at \\
        --by customer --sum amount --avg amount --percentile amount:50,99 --to revenue
    """
    values = _common(locals()) | {
        "window": window,
        "slide": slide,
        "watermark": watermark,
        "by": by,
        "sum": sums,
        "avg": averages,
        "percentiles": given.percentiles_from(percentile),
        "aggregates": parse_pairs(aggregate, "--aggregate"),
        "emit": emit,
        "path": path,
        "to": to,
        "time": time,
    }
    _run([given.pipeline_from("analyze", name, values)], locals())


@app.command("copy")
def copy(
    topic: given.Topic = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Where they go.")] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only records of which this is true.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="SQL", help="A column of the new value, a JSON object; repeated."),
    ] = None,
    expression: Annotated[
        str | None, typer.Option("--expression", metavar="SQL", help="The new value.")
    ] = None,
    new_key: Annotated[str | None, typer.Option("--new-key", metavar="SQL", help="The new key.")] = None,
    value: given.Value = None,
    key: given.Key = None,
    schema: given.Schema = None,
    registry: given.Registry = None,
    rejects: given.Rejects = None,
    pattern: given.Pattern = None,
    begin: given.Begin = None,
    max_rows: given.MaxRows = None,
    every: given.Every = None,
    on_data_loss: given.OnDataLoss = None,
    option: given.SourceOption = None,
    name: given.Name = None,
    group: given.Group = None,
    checkpoint: given.Checkpoint = None,
    once: given.Once = False,
    master: given.Master = None,
    pack: given.Pack = None,
    python: given.Python = None,
    spark: given.SparkSetting = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Copy records of a topic to another one: all or some, as they are or changed, under other keys.

    Exactly once where the broker serves transactions, else at least once.

    \b
    Examples:
      headrace pipeline run copy --topic orders --to orders-copy
      headrace pipeline run copy --topic orders --to large-orders --value json \\
        --schema "customer STRING, amount DOUBLE" --where "amount > 1000" \\
        --select customer --select "amount * 1.19 AS gross" --new-key customer
      headrace pipeline run copy --topic logs --to shouting --value string --expression "upper(value)"
    """
    values = _common(locals()) | {
        "to": to,
        "where": where,
        "select": select,
        "expression": expression,
        "new_key": new_key,
    }
    _run([given.pipeline_from("copy", name, values)], locals())


@app.command(_FILE, hidden=True)
def file(
    path: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file with the pipelines.")],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Run only this one of them; may be repeated."),
    ] = None,
    once: given.Once = False,
    master: given.Master = None,
    pack: given.Pack = None,
    python: given.Python = None,
    spark: given.SparkSetting = None,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Run the pipelines of a TOML file, all in one Spark session.

    --bootstrap counts where the file names no cluster.

    \b
    Examples:
      headrace pipeline run file pipelines.toml
      headrace pipeline run pipelines.toml --only orders --once
    """
    from headrace.pipelines.definition_file import chosen, read_pipelines

    found = read_pipelines(path, bootstrap=bootstrap)
    options = locals() | {
        "master": master or found.master,
        "pack": pack or found.pack,
        "python": python or found.python,
    }
    _run(chosen(found.pipelines, only or (), str(path)), options, dict(found.settings))


_SHARED = ("topic", "pattern", "value", "key", "schema", "registry", "rejects", "max_rows", "every")
_SHARED_TOO = ("on_data_loss", "group", "checkpoint", "bootstrap")


def _common(options: dict[str, Any]) -> dict[str, Any]:
    """The keys that all pipelines have, of a command's parameters."""
    shared = {name: options[name] for name in (*_SHARED, *_SHARED_TOO)}
    return shared | {"from": options["begin"], "options": options["option"]}


def _run(pipelines: Any, options: dict[str, Any], settings: dict[str, str] | None = None) -> None:
    from headrace.cli.pipeline_session import SparkPlace, run_pipelines

    run_pipelines(
        pipelines,
        once=options["once"],
        place=SparkPlace(master=options["master"], pack=options["pack"], python=options["python"]),
        settings={**(settings or {}), **parse_pairs(options["spark"], "--spark")},
        as_json=options["as_json"],
    )
