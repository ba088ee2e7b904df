# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline run`: the built-in pipelines, one from options or several from a file.

Parses options; session.py runs the pipelines, progress.py shows their progress.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, parse_pairs
from headrace.cli.pipeline.options import (
    RunOptions,
    SourceOptions,
    StorageConfig,
    StorageOption,
    Time,
    Topic,
    percentiles_from,
    pipeline_from,
    source_settings,
)
from headrace.pipelines.definitions.definition import Pipeline

_FILE = "file"


class _CommandOrFile(TyperGroup):
    """Takes an argument that looks like a file name as the command `file`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options of the table."""

    topic: Topic = None
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Directory of the table, or s3://….")
    ] = None
    storage: StorageOption = None
    storage_config: StorageConfig = None
    table_format: Annotated[
        str | None, typer.Option("--format", metavar="delta|parquet", help="[default: delta]")
    ] = None
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by", metavar="COLUMN", help="Partition column instead of the date; repeatable."
        ),
    ] = None
    time: Time = None
    optimize: Annotated[
        str | None,
        typer.Option("--optimize", metavar="DURATION", help="Merge small files this often, for example 10m."),
    ] = None
    target_size: Annotated[
        str | None,
        typer.Option("--target-size", metavar="SIZE", help="Merge towards this size.  [default: 128m]"),
    ] = None

    def keys(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "path": self.path,
            "storage": self.storage,
            "storage_config": self.storage_config,
            "format": self.table_format,
            "partition_by": self.partition_by,
            "time": self.time,
            "optimize": self.optimize,
            "target_size": self.target_size,
        }


@app.command("store")
@takes_options
def store(own: StoreOptions, source: SourceOptions, run: RunOptions) -> None:
    """Store every record of a topic in a table, exactly once, partitioned by date (UTC).

    Raw records keep the columns of a topic: key, value, topic, partition, offset, timestamp, headers.
    Decoded values become columns, besides _key, _topic, _partition, _offset, _timestamp.

    \b
    Examples:
      headrace pipeline run store --topic orders --path /data/orders
      headrace pipeline run store --topic orders --path /data/orders --format parquet --once
      headrace pipeline run store --topic orders --path /data/orders --value json \\
        --schema "customer STRING, amount DOUBLE, at TIMESTAMP" --time at
    """
    _run([_pipeline("store", own.keys(), source, run)], run)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """Windows, aggregates and outputs."""

    topic: Topic = None
    window: Annotated[
        str | None, typer.Option("--window", metavar="DURATION", help="Length of a window: 1m, 1h.")
    ] = None
    slide: Annotated[
        str | None,
        typer.Option(
            "--slide", metavar="DURATION", help="Interval between window starts.  [default: its length]"
        ),
    ] = None
    watermark: Annotated[
        str | None,
        typer.Option("--watermark", metavar="DURATION", help="Maximum lateness of records.  [default: 10s]"),
    ] = None
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="SQL", help="Group by a column, or SQL AS name; repeatable."),
    ] = None
    sums: Annotated[
        list[str] | None, typer.Option("--sum", metavar="COLUMN", help="Sum of a column; repeatable.")
    ] = None
    averages: Annotated[
        list[str] | None, typer.Option("--avg", metavar="COLUMN", help="Average of a column; repeatable.")
    ] = None
    percentile: Annotated[
        list[str] | None,
        typer.Option("--percentile", metavar="COLUMN:50,99", help="Percentiles of a column; repeatable."),
    ] = None
    aggregate: Annotated[
        list[str] | None,
        typer.Option("--aggregate", metavar="NAME=SQL", help="Any other aggregate; repeatable."),
    ] = None
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="closed|all",
            help="Write windows once, when closed, or all after every batch.  [default: closed]",
        ),
    ] = None
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Directory of a Delta table, or s3://….")
    ] = None
    storage: StorageOption = None
    storage_config: StorageConfig = None
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="A topic for the results.")] = None
    time: Time = None

    def keys(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "window": self.window,
            "slide": self.slide,
            "watermark": self.watermark,
            "by": self.by,
            "sum": self.sums,
            "avg": self.averages,
            "percentiles": percentiles_from(self.percentile),
            "aggregates": parse_pairs(self.aggregate, "--aggregate"),
            "emit": self.emit,
            "path": self.path,
            "storage": self.storage,
            "storage_config": self.storage_config,
            "to": self.to,
            "time": self.time,
        }


@app.command("analyze")
@takes_options
def analyze(own: AnalyzeOptions, source: SourceOptions, run: RunOptions) -> None:
    """Aggregate by windows of event time and by key, into a table, a topic, or both.

    A window closes when a record is later than its end by more than --watermark. Records that arrive for it
    afterwards are dropped and counted under LATE.

    \b
    Examples:
      headrace pipeline run analyze --topic clicks --window 1m --by topic --path /data/clicks_per_minute
      headrace pipeline run analyze --topic orders --window 1h --slide 15m --watermark 5m \\
        --value json --schema "customer STRING, amount DOUBLE, at TIMESTAMP" --time at \\
        --by customer --sum amount --avg amount --percentile amount:50,99 --to revenue
    """
    _run([_pipeline("analyze", own.keys(), source, run)], run)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Options of the copy."""

    topic: Topic = None
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Output topic.")] = None
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="SQL condition: copy only matching records.")
    ] = None
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="SQL", help="Field of the new value, a JSON object; repeatable."),
    ] = None
    expression: Annotated[
        str | None, typer.Option("--expression", metavar="SQL", help="SQL expression of the new value.")
    ] = None
    new_key: Annotated[
        str | None, typer.Option("--new-key", metavar="SQL", help="SQL expression of the new key.")
    ] = None

    def keys(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "to": self.to,
            "where": self.where,
            "select": self.select,
            "expression": self.expression,
            "new_key": self.new_key,
        }


@app.command("copy")
@takes_options
def copy(own: CopyOptions, source: SourceOptions, run: RunOptions) -> None:
    """Copy records of a topic to another, optionally filtered, transformed and with new keys.

    Exactly once when the broker supports transactions, otherwise at least once.

    \b
    Examples:
      headrace pipeline run copy --topic orders --to orders-copy
      headrace pipeline run copy --topic orders --to large-orders --value json \\
        --schema "customer STRING, amount DOUBLE" --where "amount > 1000" \\
        --select customer --select "amount * 1.19 AS gross" --new-key customer
      headrace pipeline run copy --topic logs --to shouting --value string --expression "upper(value)"
    """
    _run([_pipeline("copy", own.keys(), source, run)], run)


@app.command(_FILE, hidden=True)
@takes_options
def file(
    *,
    path: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The file with the pipelines.")],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Run only this pipeline; repeatable."),
    ] = None,
    run: RunOptions,
) -> None:
    """Run the pipelines of a TOML file, all in one Spark session.

    --bootstrap and --command-config apply when the file does not set them, -X to all of its pipelines.

    \b
    Examples:
      headrace pipeline run file pipelines.toml
      headrace pipeline run pipelines.toml --only orders --once
    """
    from headrace.pipelines.definitions.definition_file import read_pipelines, select_pipelines

    found = read_pipelines(path, bootstrap=run.bootstrap, config=run.command_config)
    placed = replace(
        run,
        master=run.master or found.master,
        pack=run.pack or found.pack,
        python=run.python or found.python,
    )
    settings = source_settings(None, run.client_settings)
    chosen = [
        replace(each, source=replace(each.source, options={**each.source.options, **settings}))
        for each in select_pipelines(found.pipelines, only or (), str(path))
    ]
    _run(chosen, placed, dict(found.settings))


def _pipeline(kind: str, own: dict[str, Any], source: SourceOptions, run: RunOptions) -> Pipeline:
    where = {
        "bootstrap": run.bootstrap,
        "config": run.command_config,
        "options": source_settings(source.option, run.client_settings),
    }
    return pipeline_from(kind, source.name, {**own, **source.keys(), **where})


def _run(pipelines: Sequence[Pipeline], run: RunOptions, settings: dict[str, str] | None = None) -> None:
    from headrace.cli.pipeline.session import SparkTarget, run_pipelines

    run_pipelines(
        pipelines,
        once=run.once,
        report=run.report,
        target=SparkTarget(master=run.master, pack=run.pack, python=run.python),
        settings={**(settings or {}), **parse_pairs(run.spark, "--spark")},
        as_json=run.as_json,
    )
