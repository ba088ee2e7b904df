# SPDX-License-Identifier: Apache-2.0
"""Options shared by the built-in pipelines. Does not load Spark.

Read next: run.py (the commands), headrace/pipelines/definitions/definition_keys.py (how they are parsed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.client_settings import parse_settings
from headrace.cli.errors import UsageError
from headrace.cli.options import BOOTSTRAP, Bootstrap, ClientSettings, CommandConfig, Json, parse_pairs
from headrace.client.errors import ClientError
from headrace.client.security_names import is_secret_name, is_security_name
from headrace.pipelines.definitions.definition import Pipeline
from headrace.pipelines.delta.storage_options import is_secret

Topic = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Topic to read; repeatable."),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="SQL", help="Column with the event time.  [default: the record's timestamp]"
    ),
]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="Option of the object store with the table, by deltalake's name; repeatable.",
    ),
]
StorageConfig = Annotated[
    str | None,
    typer.Option(
        "--storage-config",
        metavar="FILE",
        help="File with options of the object store: its login, above all.",
    ),
]

_KEYS_OF_OPTIONS = {
    "startingOffsets": "from",
    "subscribe": "topic",
    "subscribePattern": "pattern",
    "valueSchema": "schema",
    "registry": "registry",
    "rejectsTopic": "rejects",
    "maxOffsetsPerTrigger": "max_rows",
}
_SPOKEN = {"from": "--from", "sum": "--sum", "percentiles": "--percentile", "aggregates": "--aggregate"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Source options: topics, formats, limits, and the pipeline's name and checkpoint."""

    value: Annotated[
        str | None,
        typer.Option("--value", metavar="FORM", help="raw, string, int64 …, json, avro.  [default: raw]"),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="FORM", help="Format of keys.  [default: raw; string with typed values]"
        ),
    ] = None
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="FIELDS", help='JSON: "customer STRING, amount DOUBLE"; Avro: the schema.'
        ),
    ] = None
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="URL of a schema registry, for Avro.")
    ] = None
    rejects: Annotated[
        str | None,
        typer.Option("--rejects", metavar="TOPIC", help="Topic for records that cannot be decoded."),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Instead of --topic: a regular expression."),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="Starting offsets without a checkpoint: earliest, latest, group, or JSON.  "
            "[default: earliest]",
        ),
    ] = None
    max_rows: Annotated[
        int | None,
        typer.Option("--max-rows", metavar="N", help="Maximum number of records in a micro-batch."),
    ] = None
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Minimum interval between micro-batches."),
    ] = None
    on_data_loss: Annotated[
        str | None,
        typer.Option("--on-data-loss", metavar="POLICY", help="fail, skip or earliest.  [default: fail]"),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="KEY=VALUE", help="Any other option of the source; repeatable."
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the pipeline.  [default: KIND-TOPIC]"),
    ] = None
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="Consumer group for its offsets.  [default: the name]"),
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="FOLDER",
            help="Checkpoint directory.  [default: ~/.local/state/headrace/pipelines/NAME]",
        ),
    ] = None

    def keys(self) -> dict[str, Any]:
        """The options under the keys of a pipeline file."""
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
            "group": self.group,
            "checkpoint": self.checkpoint,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Run options: duration, Spark cluster and Kafka cluster."""

    once: Annotated[bool, typer.Option("--once", help="Read the records available now, then stop.")] = False
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Report progress to topic __headrace_pipelines, which `headrace console` shows."
        ),
    ] = False
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="MASTER", help="local[*], spark://HOST:PORT, yarn …  [default: local[*]]"
        ),
    ] = None
    pack: Annotated[
        str | None,
        typer.Option(
            "--pack", metavar="FILE", help="File from `headrace pipeline pack`, for a Spark cluster."
        ),
    ] = None
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="NAME", help="Python of the cluster's machines, like python3.11."),
    ] = None
    spark: Annotated[
        list[str] | None,
        typer.Option("--spark", metavar="KEY=VALUE", help="A Spark setting; repeatable."),
    ] = None
    bootstrap: Bootstrap = BOOTSTRAP
    command_config: CommandConfig = None
    client_settings: ClientSettings = None
    as_json: Json = False


def pipeline_from(kind: str, name: str | None, values: Mapping[str, Any]) -> Pipeline:
    """Build the pipeline of one command; UsageError names the option."""
    from headrace.pipelines.checks import check_options
    from headrace.pipelines.definitions.definition_keys import KNOWN, Defaults, pipeline_of
    from headrace.pipelines.definitions.keys import Keys
    from headrace.pipelines.spark_session.session import need_pyspark

    given = {key: value for key, value in values.items() if value not in (None, [])}
    if "storage" in given:
        given["storage"] = parse_storage(given["storage"])
    try:
        keys = Keys(given, known=KNOWN[kind], where="", display_name=_flag)
        topics = keys.names("topic")
        pipeline = pipeline_of(kind, name or "-".join([kind, *topics[:1]]), keys, Defaults())
    except ClientError as error:
        raise UsageError(error.what, error.next_step) from None
    need_pyspark()
    try:
        check_options(pipeline)
    except ClientError as error:
        raise UsageError(_with_flags(error.what), error.next_step) from None
    return pipeline


def source_settings(options: list[str] | None, client_settings: list[str] | None) -> dict[str, str]:
    """Options of the source: those of --option, and settings of the client (-X) as `kafka.NAME`."""
    given = parse_pairs(options, "--option")
    _refuse_secrets(given)
    for name, value in parse_settings(client_settings or ()).items():
        if not is_security_name(name):
            raise typer.BadParameter(f"{name} has no effect on a pipeline", param_hint="-X")
        if f"kafka.{name}" in given:
            raise typer.BadParameter(f"{name!r} is also set by --option", param_hint="-X")
        given[f"kafka.{name}"] = value
    return given


def _flag(key: str) -> str:
    return _SPOKEN.get(key, f"--{key.replace('_', '-')}")


def _with_flags(message: str) -> str:
    """The source names its own options."""
    for option, key in _KEYS_OF_OPTIONS.items():
        message = message.replace(f"option {option!r}", _flag(key))
    return message


def _refuse_secrets(options: Mapping[str, str]) -> None:
    secret = next((name for name in options if is_secret_name(name)), None)
    if secret is not None:
        raise typer.BadParameter(
            f"{secret}=…: other users of this machine can see arguments; write it into a file: "
            "--command-config FILE",
            param_hint="--option",
        )


def parse_storage(texts: list[str] | None) -> dict[str, str]:
    """Parse `aws_region=eu-central-1`; a secret is refused, as others see arguments."""
    found = parse_pairs(texts, "--storage")
    secret = next(filter(is_secret, found), None)
    if secret is not None:
        raise typer.BadParameter(
            f"{secret}=…: other users of this machine can see arguments; write it into a file: "
            "--storage-config FILE",
            param_hint="--storage",
        )
    return found


def percentiles_from(texts: list[str] | None) -> dict[str, list[float]]:
    """Parse `amount:50,99.9`, one per column."""
    found: dict[str, list[float]] = {}
    for text in texts or ():
        column, _, numbers = text.rpartition(":")
        try:
            found[column] = [float(number) for number in numbers.split(",")]
        except ValueError:
            column = ""
        if not column:
            raise typer.BadParameter(
                f"{text!r} is not COLUMN:PERCENTILES: use amount:50,99", param_hint="--percentile"
            )
    return found
