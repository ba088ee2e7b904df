"""`headrace cluster`: nodes of a cluster on this host, of Headrace or of Apache Kafka, under one supervisor.

Arguments in, words out; the work is in headrace.cluster. Read next: cluster_up.py, cluster_view.py (what is
shown), cluster_remove.py (moving partitions off a node that leaves), cluster_elect.py.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.help import HELP_STYLE
from headrace.cli.options import Json, Yes, confirm, parse_pairs
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cluster.folder import ClusterFolder
    from headrace.cluster.supervisor import Supervisor

app = typer.Typer(
    help="Run, look at, grow and break a cluster of several nodes on this host.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)


class EngineChoice(StrEnum):
    headrace = "headrace"
    kafka = "kafka"


Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", "-d", metavar="DIR", help="Where the cluster lives. Left out: a folder of the user's data."
    ),
]
ElsewhereBootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="A cluster that runs elsewhere."),
]
NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's number.")]


@app.command()
def up(
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", min=1, max=99, help="How many nodes. Left out: 3.")
    ] = None,
    directory: Directory = None,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Whose nodes: Headrace's, or real Apache Kafka.")
    ] = EngineChoice.headrace,
    coordination: Annotated[
        str | None,
        typer.Option(
            "--coordination",
            metavar="sqlite:DIR|zk://HOST:PORT,…/PATH",
            help="The store that the nodes share. Left out: a directory of the cluster's own.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65000, help="Of the first node; 0: free ones. Left out: 9092 if it is free."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of every node; may be repeated."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when all nodes serve; nobody starts again what dies.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start a cluster on this host and show how it is doing, until Ctrl-C stops it.

    A directory that holds a cluster already is started as it was left, with its records.

    \b
    Examples:
      headrace cluster up --nodes 5
      headrace cluster up --nodes 3 --dir /tmp/try --detach
      headrace cluster up --nodes 3 --coordination zk://h1:2181,h2:2181,h3:2181/headrace
      headrace cluster up --nodes 3 --engine kafka
    """
    from headrace.cli.cluster_up import UpOptions, run_cluster

    options = UpOptions(
        nodes=nodes,
        engine=engine.value,
        coordination=coordination,
        port=port,
        settings=parse_pairs(setting, "--set"),
        detach=detach,
    )
    run_cluster(_folder(directory), options, Output(as_json=as_json))


@app.command()
def status(
    directory: Directory = None,
    bootstrap: ElsewhereBootstrap = None,
    as_json: Json = False,
) -> None:
    """Show the nodes, who controls, and partitions that lack a leader or replicas.

    \b
    Examples:
      headrace cluster status
      headrace cluster status --dir /tmp/try --json
      headrace cluster status --bootstrap h1:9092
    """
    from headrace.cli.cluster_view import show_status
    from headrace.cluster.status import read_remote_status, read_status

    if bootstrap is not None and directory is not None:
        raise typer.BadParameter("give either --dir or --bootstrap")
    found = read_remote_status(bootstrap) if bootstrap else read_status(_folder(directory))
    output = Output(as_json=as_json)
    if as_json:
        output.document(found.document())
    else:
        show_status(found, output)


@app.command()
def kill(node: NodeId, directory: Directory = None, as_json: Json = False) -> None:
    """Kill a node as a power cut would (SIGKILL). It stays down until it is started.

    \b
    Examples:
      headrace cluster kill 0
    """
    pid = _supervisor(directory).kill(node)
    Output(as_json=as_json).say({"killed": node, "pid": pid}, f"Killed node {node} (process {pid}).")


@app.command()
def start(node: NodeId, directory: Directory = None, as_json: Json = False) -> None:
    """Start a node that was killed or stopped; returns when it answers.

    \b
    Examples:
      headrace cluster start 0
    """
    supervisor = _supervisor(directory)
    supervisor.start([node])
    address = supervisor.folder.read().member(node).address
    Output(as_json=as_json).say({"started": node, "address": address}, f"Node {node} serves at {address}.")


@app.command()
def stop(
    node: Annotated[
        int | None, typer.Argument(metavar="[NODE]", min=0, help="Left out: the whole cluster.")
    ] = None,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Stop a node cleanly, so that others lead what it led before it ends; or stop all of them.

    \b
    Examples:
      headrace cluster stop 2
      headrace cluster stop
    """
    supervisor = _supervisor(directory)
    if node is None:
        supervisor.stop_all()
        Output(as_json=as_json).say({"stopped": "all"}, "Stopped every node; their records stay.")
    else:
        supervisor.stop(node)
        Output(as_json=as_json).say({"stopped": node}, f"Stopped node {node}.")


@app.command()
def add(directory: Directory = None, as_json: Json = False) -> None:
    """Add a node under the next free number and start it.

    New topics use it at once. Topics that exist get replicas on it when they are told to.

    \b
    Examples:
      headrace cluster add
      headrace topics alter orders --replication-factor 3
    """
    member = _supervisor(directory).add()
    Output(as_json=as_json).say(
        {"added": member.node_id, "address": member.address},
        f"Node {member.node_id} serves at {member.address}. New topics use it; give others replicas there "
        "with `headrace topics alter TOPIC --replication-factor N`.",
    )


@app.command()
def remove(node: NodeId, directory: Directory = None, yes: Yes = False, as_json: Json = False) -> None:
    """Move a node's partitions to the others, then stop it and take it out of the cluster.

    Its folder stays where it is, and its number is not given to another node.

    \b
    Examples:
      headrace cluster remove 4
    """
    from headrace.cli.cluster_remove import move_away
    from headrace.client.reassignments import unregister

    supervisor = _supervisor(directory)
    plan = supervisor.folder.read()
    plan.member(node)
    confirm(f"move every partition off node {node} and take it out of the cluster", yes=yes)
    output = Output(as_json=as_json)
    moved = move_away(plan.bootstrap, node, output)
    supervisor.stop(node)
    supervisor.forget(node)
    unregister(supervisor.folder.read().bootstrap, node)
    output.say({"removed": node, "moved": moved}, f"Removed node {node}; {moved} partitions were moved.")


@app.command()
def elect(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Left out: every topic.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="With --unclean: only this one of TOPIC.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Where nobody leads: any live replica, giving up records that it lacks."
        ),
    ] = False,
    yes: Yes = False,
    directory: Directory = None,
    bootstrap: ElsewhereBootstrap = None,
    as_json: Json = False,
) -> None:
    """Give leadership back to preferred leaders: the first replica of each partition, where it is in sync.

    A node that was away leads nothing when it returns, until this is asked for.

    With --unclean it is for partitions that have no leader, because every replica that has all
    acknowledged records is down or damaged, and will not return: what only those had is lost for good.

    \b
    Examples:
      headrace cluster elect
      headrace cluster elect orders --bootstrap h1:9092
      headrace cluster elect orders --partition 0 --unclean
    """
    from headrace.cli.cluster_elect import elect_any, elect_preferred_ones

    if partition is not None and not (unclean and topic):
        raise typer.BadParameter("goes with TOPIC and --unclean", param_hint="--partition")
    target = bootstrap or _folder(directory).read().bootstrap
    output = Output(as_json=as_json)
    if unclean:
        elect_any(target, topic, partition, output, yes=yes)
    else:
        elect_preferred_ones(target, topic, output)


def _folder(directory: Path | None) -> ClusterFolder:
    from headrace.cluster.folder import ClusterFolder
    from headrace.config import default_data_directory

    return ClusterFolder(directory or default_data_directory() / "cluster")


def _supervisor(directory: Path | None) -> Supervisor:
    from headrace.cluster.supervisor import Supervisor

    folder = _folder(directory)
    folder.read()
    return Supervisor(folder, Output().note)
