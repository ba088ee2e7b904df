"""Options that the built-in pipelines share, and what they mean together. Knows no Spark.

Read next: pipeline_run.py (the commands), headrace/pipelines/definition_keys.py (what the texts become).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.options import BOOTSTRAP, Bootstrap, Json, parse_pairs
from headrace.pipelines.definition import Pipeline

Topic = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="What is read; may be repeated."),
]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="SQL", help="The time of an event.  [default: the record's timestamp]"),
]

_SPOKEN = {"from": "--from", "sum": "--sum", "percentiles": "--percentile", "aggregates": "--aggregate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read and how, how far a batch goes, and under which name the progress is kept."""

    value: Annotated[
        str | None,
        typer.Option("--value", metavar="FORM", help="raw, string, int64 …, json, avro.  [default: raw]"),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="FORM", help="How keys are read.  [default: raw; string with typed values]"
        ),
    ] = None
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="FIELDS", help='Of JSON: "customer STRING, amount DOUBLE"; of Avro: as JSON.'
        ),
    ] = None
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="A schema registry, for Avro.")
    ] = None
    rejects: Annotated[
        str | None,
        typer.Option("--rejects", metavar="TOPIC", help="Where records go that cannot be read so."),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Instead of --topic: all whose name fits."),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Where a pipeline without a checkpoint begins: earliest, latest, group, or JSON.  "
            "[default: earliest]",
        ),
    ] = None
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", metavar="N", help="At most so many records in a micro-batch.")
    ] = None
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Time from one micro-batch to the next at least."),
    ] = None
    on_data_loss: Annotated[
        str | None,
        typer.Option("--on-data-loss", metavar="POLICY", help="fail, skip or earliest.  [default: fail]"),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", help="Any other option of the source; may be repeated."
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The pipeline's, and its group's.  [default: KIND-TOPIC]"
        ),
    ] = None
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Shows the progress.  [default: the name]")
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="FOLDER",
            help="Where the progress is kept.  [default: ~/.local/state/headrace/pipelines/NAME]",
        ),
    ] = None

    def keys(self) -> dict[str, Any]:
        """As a file of pipelines would name them."""
        return {
            "value": self.value,
            "key": self.key,
            "schema": self.schema,
            "registry": self.registry,
            "rejects": self.rejects,
            "pattern": self.pattern,
            "from": self.begin,
            "max_rows": self.max_rows,
            "every": self.every,
            "on_data_loss": self.on_data_loss,
            "options": self.option,
            "group": self.group,
            "checkpoint": self.checkpoint,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """For how long, where, and against which cluster."""

    once: Annotated[bool, typer.Option("--once", help="Read what is there now, and end.")] = False
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="MASTER", help="local[*], spark://HOST:PORT, yarn …  [default: local[*]]"
        ),
    ] = None
    pack: Annotated[
        str | None,
        typer.Option("--pack", metavar="FILE", help="What `headrace pipeline pack` wrote, for a cluster."),
    ] = None
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="NAME", help="The Python of a cluster's machines, like python3.11."),
    ] = None
    spark: Annotated[
        list[str] | None,
        typer.Option("--spark", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
    ] = None
    bootstrap: Bootstrap = BOOTSTRAP
    as_json: Json = False


def pipeline_from(kind: str, name: str | None, values: Mapping[str, Any]) -> Pipeline:
    """Of what the options of one command say; errors name the option."""
    from headrace.pipelines.definition_keys import KNOWN, Defaults, pipeline_of
    from headrace.pipelines.keys import Keys

    given = {key: value for key, value in values.items() if value not in (None, [])}
    given["options"] = parse_pairs(given.get("options"), "--option")
    keys = Keys(
        given,
        known=KNOWN[kind],
        where="",
        spoken=lambda key: _SPOKEN.get(key, f"--{key.replace('_', '-')}"),
    )
    topics = keys.names("topic")
    return pipeline_of(kind, name or "-".join([kind, *topics[:1]]), keys, Defaults())


def percentiles_from(texts: list[str] | None) -> dict[str, list[float]]:
    """`amount:50,99.9`, as often as there are columns."""
    found: dict[str, list[float]] = {}
    for text in texts or ():
        column, _, numbers = text.rpartition(":")
        try:
            found[column] = [float(number) for number in numbers.split(",")]
        except ValueError:
            column = ""
        if not column:
            raise typer.BadParameter(
                f"{text!r} is no column and its percentiles: use amount:50,99", param_hint="--percentile"
            )
    return found
