"""`headrace serve` as typer knows it: help, and every form of its options. Read next: serve_plainly.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import Json, parse_pairs
from headrace.cli.serve_plainly import ServeOptions, run_node


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenServeOptions:
    """What the command line says, with the help of each option."""

    data: Annotated[
        Path | None,
        typer.Option(
            "--data", "-d", metavar="DIR", help="Where records are kept. Left out: the user's data folder."
        ),
    ] = None
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener",
            "-l",
            metavar="NAME=HOST:PORT",
            help="Where to listen, and with ,advertise=HOST:PORT what to tell clients; may be repeated. "
            "Left out: 127.0.0.1:9092.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Settings, one key=value a line, as in Kafka."),
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting; may be repeated."),
    ] = None
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Read KAFKA_… and HEADRACE_… variables, as containers do.")
    ] = False
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous",
            help="Let listeners without authentication face other machines.",
        ),
    ] = False
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, help="The node's number in its cluster.")
    ] = None
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="sqlite:DIR|zk://HOST:PORT,…/PATH",
            help="The store that the nodes of a cluster share: a directory on one host, ZooKeeper on "
            "several. Left out: the node is alone.",
        ),
    ] = None
    allow_same_host: Annotated[
        bool,
        typer.Option("--allow-same-host", help="With ZooKeeper: let replicas share a host."),
    ] = False
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=-1, help="Of /metrics and /healthz; 0: a free one, -1: none."),
    ] = None
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="text|json", help="The node's own log lines.")
    ] = None
    as_json: Json = False

    def complete(self) -> ServeOptions:
        return ServeOptions(
            data=self.data,
            listeners=tuple(self.listener or ()),
            config=self.config,
            settings=parse_pairs(self.setting, "--set"),
            from_env=self.from_env,
            allow_anonymous=self.allow_anonymous,
            node_id=self.node_id,
            coordination=self.coordination,
            allow_same_host=self.allow_same_host,
            metrics_port=self.metrics_port,
            log_format=self.log_format,
            as_json=self.as_json,
        )


@takes_options
def serve(given: GivenServeOptions) -> None:
    """Run a node. With no argument it listens on 127.0.0.1:9092 and keeps its data in your data folder.

    Flags win over variables, variables over the file. Ctrl-C stops it cleanly.

    \b
    Examples:
      headrace serve
      headrace serve --data /srv/headrace --config server.properties
      headrace serve --listener outside=0.0.0.0:9092,advertise=localhost:9092 \\
                     --listener inside=0.0.0.0:29092,advertise=broker:29092 --allow-anonymous
      headrace serve --set num.partitions=3 --set headrace.flush.default=os
      headrace serve --node-id 3 --coordination zk://h1:2181,h2:2181,h3:2181/headrace
    """
    raise typer.Exit(run_node(given.complete()))
