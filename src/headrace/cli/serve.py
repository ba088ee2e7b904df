"""`headrace serve`: flags into a configuration, then the node until it is told to stop.

The only module of the CLI that reaches into the broker. Read next: broker/app.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace import __version__
from headrace.cli.options import Json, parse_pairs
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.broker.node import Broker


def serve(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", "-d", metavar="DIR", help="Where records are kept. Left out: the user's data folder."
        ),
    ] = None,
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener",
            "-l",
            metavar="NAME=HOST:PORT",
            help="Where to listen, and with ,advertise=HOST:PORT what to tell clients; may be repeated. "
            "Left out: 127.0.0.1:9092.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Settings, one key=value a line, as in Kafka."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting; may be repeated."),
    ] = None,
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Read KAFKA_… and HEADRACE_… variables, as containers do.")
    ] = False,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous",
            help="Let listeners without authentication face other machines.",
        ),
    ] = False,
    node_id: Annotated[int | None, typer.Option("--node-id", min=0, help="The node's number.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=-1, help="Of /metrics and /healthz; 0: a free one, -1: none."),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="text|json", help="The node's own log lines.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a node. With no argument it listens on 127.0.0.1:9092 and keeps its data in your data folder.

    Flags win over variables, variables over the file. Ctrl-C stops it cleanly.

    \b
    Examples:
      headrace serve
      headrace serve --data /srv/headrace --config server.properties
      headrace serve --listener outside=0.0.0.0:9092,advertise=localhost:9092 \\
                     --listener inside=0.0.0.0:29092,advertise=broker:29092 --allow-anonymous
      headrace serve --set num.partitions=3 --set headrace.flush.default=os
    """
    from headrace.config import listener_overrides, load_config

    overrides = parse_pairs(setting, "--set") | listener_overrides(listener or [])
    flags: dict[str, object] = {
        "log.dirs": data,
        "node.id": node_id,
        "headrace.metrics.port": metrics_port,
        "headrace.log.format": log_format,
        "listeners.allow.anonymous": "true" if allow_anonymous else None,
    }
    overrides |= {key: str(value) for key, value in flags.items() if value is not None}
    node_config = load_config(config, overrides, dict(os.environ) if from_env else None)

    from headrace.broker.app import run

    raise typer.Exit(run(node_config, lambda broker: print_ready(broker, Output(as_json=as_json))))


def print_ready(broker: Broker, output: Output) -> None:
    """One line that says where the node is; programs wait for it."""
    listening = {endpoint.listener: f"{endpoint.host}:{endpoint.port}" for endpoint in broker.endpoints}
    data = str(broker.config.data_directory)
    metrics = None
    if broker.metrics_address is not None:
        metrics = f"http://{broker.metrics_address[0]}:{broker.metrics_address[1]}/metrics"
    if output.as_json:
        document = {"ready": True, "node_id": broker.node_id, "listeners": listening}
        output.json_line({**document, "data": data, "metrics": metrics, "version": __version__})
    else:
        addresses = ", ".join(
            address if len(listening) == 1 else f"{address} ({name})" for name, address in listening.items()
        )
        output.styled(
            (f"Headrace {__version__} ready", "bold green"),
            (" at ", ""),
            (addresses, "bold cyan"),
            (f", data in {data}, metrics at {metrics or 'none'}", ""),
        )
    output.flush()
