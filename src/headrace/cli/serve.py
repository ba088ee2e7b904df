# SPDX-License-Identifier: Apache-2.0
"""`headrace serve` as a typer command: options and their help. Read next: serve_without_typer.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import Json, parse_pairs
from headrace.cli.serve_options import ServeOptions
from headrace.cli.serve_without_typer import run_node


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """Options of the command line with their help."""

    data: Annotated[
        Path | None,
        typer.Option(
            "--data", "-d", metavar="DIR", help="Data directory. Default: the user's data directory."
        ),
    ] = None
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener",
            "-l",
            metavar="[NAME=]HOST:PORT",
            help="Address to listen on; ,advertise=HOST:PORT sets the address for clients, ,protocol=SSL "
            "uses TLS; repeatable. Default: 127.0.0.1:9092.",
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", min=0, max=65535, help="Port on 127.0.0.1; 0: a free port. Not with --listener."
        ),
    ] = None
    ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral",
            help="For tests in any language: a free port unless --port is given, and data in a temporary "
            "directory that is removed at the end.",
        ),
    ] = False
    cores: Annotated[
        str | None,
        typer.Option(
            "--cores",
            metavar="N|auto",
            help="A node on each of N cores, on consecutive ports, started and stopped as one; auto: on all "
            "cores. Default: 1.",
        ),
    ] = None
    as_core: Annotated[
        int | None, typer.Option("--as-core", min=0, hidden=True, help="Set by --cores for its processes.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Properties file, as in Kafka."),
    ] = None
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting; repeatable."),
    ] = None
    from_env: Annotated[
        bool,
        typer.Option(
            "--from-env", help="Read KAFKA_… and HEADRACE_… environment variables, as in containers."
        ),
    ] = False
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous",
            help="Allow listeners without authentication on non-local addresses.",
        ),
    ] = False
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, help="Node id, unique in the cluster.")
    ] = None
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="sqlite:DIR|zk://HOST:PORT,…/PATH",
            help="Coordination store of the cluster: a directory on one host, ZooKeeper on "
            "several. Default: a single node.",
        ),
    ] = None
    allow_same_host: Annotated[
        bool,
        typer.Option("--allow-same-host", help="With ZooKeeper: allow replicas on the same host."),
    ] = False
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=-1, help="Port of /metrics and /healthz; 0: a free port, -1: off."
        ),
    ] = None
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="text|json", help="Format of the node's log.")
    ] = None
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            metavar="debug|info|warning|error",
            help="Least severe messages in the node's log. Default: info.",
        ),
    ] = None
    as_json: Json = False

    def complete(self) -> ServeOptions:
        return ServeOptions(
            data=self.data,
            listeners=tuple(self.listener or ()),
            port=self.port,
            ephemeral=self.ephemeral,
            cores=self.cores,
            as_core=self.as_core,
            config=self.config,
            settings=parse_pairs(self.setting, "--set"),
            from_env=self.from_env,
            allow_anonymous=self.allow_anonymous,
            node_id=self.node_id,
            coordination=self.coordination,
            allow_same_host=self.allow_same_host,
            metrics_port=self.metrics_port,
            log_format=self.log_format,
            log_level=self.log_level,
            as_json=self.as_json,
        )


@takes_options
def serve(arguments: ServeArguments) -> None:
    """Run a node. With no argument it listens on 127.0.0.1:9092 and stores its data in your data directory.

    Flags override environment variables, these override the file. Ctrl-C shuts down cleanly.

    \b
    Examples:
      headrace serve
      headrace serve --port 9093
      headrace serve --ephemeral
      headrace serve --cores auto
      headrace serve --data /srv/headrace --config server.properties
      headrace serve --listener outside=0.0.0.0:9092,advertise=localhost:9092 \\
                     --listener inside=0.0.0.0:29092,advertise=broker:29092 --allow-anonymous
      headrace serve --log-level warning
      headrace serve --set num.partitions=3 --set headrace.flush.default=os
      headrace serve --node-id 3 --coordination zk://h1:2181,h2:2181,h3:2181/headrace
    """
    raise typer.Exit(run_node(arguments.complete()))
