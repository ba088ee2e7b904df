# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster`: nodes of a cluster on this host, of Headrace or of Apache Kafka, under one supervisor.

Parses arguments and prints results; headrace.cluster does the work. Read next: up.py, view.py (what is
shown), elect.py, cli/reassignment.py (moving partitions off a node that is removed).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.client_settings import connect
from headrace.cli.options import (
    HELP_STYLE,
    ClientSettings,
    CommandConfig,
    DryRun,
    Json,
    Yes,
    confirm,
    parse_pairs,
)
from headrace.cli.output import Output
from headrace.client.cluster import Cluster

if TYPE_CHECKING:
    from headrace.client.security_settings import SecuritySettings
    from headrace.client.tools.reassignments import Targets
    from headrace.cluster.folder import ClusterFolder
    from headrace.cluster.supervisor import Supervisor

app = typer.Typer(
    help="Run, inspect, grow and break a cluster of several nodes on this host.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)


class EngineChoice(StrEnum):
    headrace = "headrace"
    kafka = "kafka"


Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", "-d", metavar="DIR", help="Directory of the cluster. Default: in the user's data directory."
    ),
]
ElsewhereBootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="A cluster that was not started here."),
]
NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="Node id.")]


@app.command()
def up(
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", min=1, max=99, help="Number of nodes. Default: 3.")
    ] = None,
    directory: Directory = None,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Broker: Headrace, or Apache Kafka.")
    ] = EngineChoice.headrace,
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="sqlite:DIR|zk://HOST:PORT,…/PATH",
            help="Coordination store of the nodes. Default: in the cluster's directory.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65000, help="Port of the first node; 0: free ports. Default: 9092 if free."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of every node; repeatable."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS, logins and ACLs; certificates, users and client files are made in the directory.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return when all nodes are ready; crashed nodes are not restarted."),
    ] = False,
    console: Annotated[
        bool, typer.Option("--console", help="Serve the web console beside it, until Ctrl-C.")
    ] = False,
    console_port: Annotated[
        int | None,
        typer.Option(
            "--console-port",
            min=0,
            max=65535,
            help="The console's port; 0: a free one. Means --console. Default: 8080.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a cluster on this host and show its state until Ctrl-C stops it.

    An existing cluster in the directory is started again with its records.

    \b
    Examples:
      headrace up
      headrace up --console
      headrace cluster up --nodes 5
      headrace cluster up --nodes 3 --dir /tmp/try --detach
      headrace cluster up --secure
      headrace cluster up --nodes 3 --coordination zk://h1:2181,h2:2181,h3:2181/headrace
      headrace cluster up --nodes 3 --engine kafka
    """
    from headrace.cli.cluster.up import UpOptions, run_cluster
    from headrace.cli.console import DEFAULT_PORT
    from headrace.config.secret_arguments import refuse_secrets

    settings = parse_pairs(setting, "--set")
    refuse_secrets(settings, "--set", "start nodes with secrets by `headrace serve --config FILE`")
    options = UpOptions(
        nodes=nodes,
        engine=engine.value,
        coordination=coordination,
        port=port,
        settings=settings,
        secure=secure,
        detach=detach,
        console_port=DEFAULT_PORT if console and console_port is None else console_port,
    )
    run_cluster(_folder(directory), options, Output(as_json=as_json))


@app.command()
def status(
    directory: Directory = None,
    bootstrap: ElsewhereBootstrap = None,
    command_config: CommandConfig = None,
    client_settings: ClientSettings = None,
    as_json: Json = False,
) -> None:
    """Show the nodes, the controller, and partitions without a leader or in-sync replicas.

    \b
    Examples:
      headrace cluster status
      headrace cluster status --dir /tmp/try --json
      headrace cluster status --bootstrap h1:9092
    """
    from headrace.cli.cluster.view import show_status
    from headrace.cluster.status import read_remote_status, read_status

    if bootstrap is not None and directory is not None:
        raise typer.BadParameter("use either --dir or --bootstrap")
    if bootstrap is None:
        folder = _folder(directory)
        found = read_status(folder, _security(folder, command_config, client_settings))
    else:
        target = connect(bootstrap, command_config, client_settings or ())
        found = read_remote_status(target)
    output = Output(as_json=as_json)
    if as_json:
        output.document(found.document())
    else:
        show_status(found, output)


@app.command()
def kill(node: NodeId, directory: Directory = None, as_json: Json = False) -> None:
    """Kill a node with SIGKILL. It stays down until it is started.

    This ends the process and is not a power cut: the operating system keeps what the node has written and
    writes it to the disk later.

    \b
    Examples:
      headrace cluster kill 0
    """
    pid = _supervisor(directory).kill(node)
    Output(as_json=as_json).say({"killed": node, "pid": pid}, f"Killed node {node} (process {pid}).")


@app.command()
def start(node: NodeId, directory: Directory = None, as_json: Json = False) -> None:
    """Start a node that was killed or stopped; returns when it is ready.

    \b
    Examples:
      headrace cluster start 0
    """
    supervisor = _supervisor(directory)
    supervisor.start([node])
    address = supervisor.folder.read().member(node).address
    Output(as_json=as_json).say({"started": node, "address": address}, f"Node {node} is ready at {address}.")


@app.command()
def stop(
    node: Annotated[
        int | None, typer.Argument(metavar="[NODE]", min=0, help="Default: the whole cluster.")
    ] = None,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Stop a node cleanly, after moving its leadership to other nodes; or stop all nodes.

    \b
    Examples:
      headrace cluster stop 2
      headrace cluster stop
    """
    supervisor = _supervisor(directory)
    if node is None:
        supervisor.stop_all()
        Output(as_json=as_json).say({"stopped": "all"}, "Stopped every node; their records remain.")
    else:
        supervisor.stop(node)
        Output(as_json=as_json).say({"stopped": node}, f"Stopped node {node}.")


@app.command()
def add(directory: Directory = None, as_json: Json = False) -> None:
    """Add a node with the next free id and start it.

    New topics use it at once. Existing topics get replicas on it by reassignment.

    \b
    Examples:
      headrace cluster add
      headrace topics alter orders --replication-factor 3
    """
    member = _supervisor(directory).add()
    Output(as_json=as_json).say(
        {"added": member.node_id, "address": member.address},
        f"Node {member.node_id} is ready at {member.address}. New topics use it; move existing replicas "
        "with `headrace topics alter TOPIC --replication-factor N`.",
    )


@app.command()
def remove(
    node: NodeId,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    command_config: CommandConfig = None,
    client_settings: ClientSettings = None,
    as_json: Json = False,
) -> None:
    """Move a node's partitions to other nodes, then stop it and remove it from the cluster.

    Its directory remains, and its id is not reused.

    \b
    Examples:
      headrace cluster remove 4
      headrace cluster remove 4 --dry-run
    """
    from headrace.cli.reassignment import move_off_node, plan_without_node
    from headrace.client.tools.reassignments import unregister

    supervisor = _supervisor(directory)
    plan = supervisor.folder.read()
    plan.member(node)
    security = _security(supervisor.folder, command_config, client_settings)
    output = Output(as_json=as_json)
    cluster = Cluster(bootstrap=plan.bootstrap, security=security)
    if dry_run:
        targets = plan_without_node(cluster, node)
        sentence = f"Would move {len(targets)} partitions, then stop node {node} and remove it."
        _preview_moves(targets, output, sentence, {"would_remove": node})
        return
    confirm(f"move all partitions off node {node} and remove it from the cluster", yes=yes)
    moved = move_off_node(cluster, node, output)
    supervisor.stop(node)
    supervisor.remove(node)
    unregister(Cluster(bootstrap=supervisor.folder.read().bootstrap, security=security), node)
    output.say({"removed": node, "moved": moved}, f"Removed node {node}; {moved} partitions were moved.")


@app.command()
def balance(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Default: all topics.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    directory: Directory = None,
    bootstrap: ElsewhereBootstrap = None,
    command_config: CommandConfig = None,
    client_settings: ClientSettings = None,
    as_json: Json = False,
) -> None:
    """Move partitions between nodes until each leads as many, of every topic and in all.

    New nodes, and new cores of `headrace serve --cores`, get their share of the topics that there are.
    Records are copied; producers and consumers go on.

    \b
    Examples:
      headrace cluster balance --dry-run
      headrace cluster balance orders --bootstrap h1:9092
    """
    from headrace.cli.reassignment import balance as balance_leaders
    from headrace.cli.reassignment import plan_balance

    target = _target(directory, bootstrap, command_config, client_settings)
    output = Output(as_json=as_json)
    if dry_run:
        targets = plan_balance(target, topic)
        _preview_moves(targets, output, f"Would move {len(targets)} partitions.", {})
        return
    confirm("move partitions between nodes" if topic is None else f"move partitions of {topic}", yes=yes)
    moved = balance_leaders(target, topic, output)
    output.say({"moved": moved}, f"Moved {moved} partitions; every node leads as many.")


@app.command()
def elect(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Default: all topics.")] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="With --unclean: only this partition of TOPIC."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect any live replica of partitions without a leader, losing records."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    directory: Directory = None,
    bootstrap: ElsewhereBootstrap = None,
    command_config: CommandConfig = None,
    client_settings: ClientSettings = None,
    as_json: Json = False,
) -> None:
    """Elect preferred leaders: the first replica of each partition, where it is in sync.

    A node that was down leads nothing when it returns, until this command is run.

    With --unclean it elects leaders for partitions that have none because every replica with all
    acknowledged records is permanently down or damaged: records that only those had are lost.

    \b
    Examples:
      headrace cluster elect
      headrace cluster elect orders --bootstrap h1:9092
      headrace cluster elect --dry-run
      headrace cluster elect orders --partition 0 --unclean
    """
    from headrace.cli.cluster.elect import run_preferred_election, run_unclean_election

    if partition is not None and not (unclean and topic):
        raise typer.BadParameter("needs TOPIC and --unclean", param_hint="--partition")
    target = _target(directory, bootstrap, command_config, client_settings)
    output = Output(as_json=as_json)
    if unclean:
        run_unclean_election(target, topic, partition, output, yes=yes, dry_run=dry_run)
    else:
        run_preferred_election(target, topic, output, dry_run=dry_run)


def _preview_moves(targets: Targets, output: Output, sentence: str, document: dict[str, Any]) -> None:
    if output.as_json:
        moves = {f"{topic}-{index}": list(nodes) for (topic, index), nodes in sorted(targets.items())}
        output.document({"dry_run": True, **document, "would_move": moves})
        return
    for (topic, index), nodes in sorted(targets.items()):
        output.line(f"{topic}-{index}: its replicas would be on nodes {', '.join(map(str, nodes))}.")
    output.line(sentence)


def _folder(directory: Path | None) -> ClusterFolder:
    from headrace.cluster.folder import ClusterFolder
    from headrace.config import default_data_directory

    return ClusterFolder(directory or default_data_directory() / "cluster")


def _security(
    folder: ClusterFolder, command_config: str | None, settings: list[str] | None
) -> SecuritySettings:
    """That of a file or of settings that are named, else that of the cluster's admin."""
    from headrace.cluster.security import plan_security

    plan = folder.read()
    if command_config or settings:
        return connect(plan.bootstrap, command_config, settings or ()).security
    return plan_security(plan)


def _target(
    directory: Path | None, bootstrap: str | None, command_config: str | None, settings: list[str] | None
) -> Cluster:
    """The cluster of `--bootstrap`, or that of the directory."""
    if bootstrap is not None:
        return connect(bootstrap, command_config, settings or ())
    folder = _folder(directory)
    return Cluster(bootstrap=folder.read().bootstrap, security=_security(folder, command_config, settings))


def _supervisor(directory: Path | None) -> Supervisor:
    from headrace.cluster.supervisor import Supervisor

    folder = _folder(directory)
    folder.read()
    return Supervisor(folder, Output().note)
