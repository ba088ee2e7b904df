# SPDX-License-Identifier: Apache-2.0
"""`headrace topics`: create, list, describe, alter, delete, on any Kafka.

Parses arguments and prints results. Requests are in client/tools/admin.py, stored key ranges in
client/partitioning/stored_ranges.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import HELP_STYLE, Configs, ConnectOptions, DryRun, Json, Yes, confirm, parse_pairs
from headrace.cli.output import Cell, Output, clean, human_bytes
from headrace.cli.progress import ProgressBar
from headrace.cli.topics.key_ranges import RangeChoice
from headrace.cli.topics.min_insync import warn_of_min_insync
from headrace.cli.topics.one_rack import warn_of_one_rack

if TYPE_CHECKING:
    from headrace.client.tools.admin import Admin, TopicDescription

app = typer.Typer(
    help="Create, list, describe, alter and delete topics.", no_args_is_help=True, rich_markup_mode=HELP_STYLE
)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", "-p", min=1, help="Number of partitions. Default: the broker's."),
]
CheckOnly = Annotated[
    bool,
    typer.Option(
        "--dry-run", "--validate-only", help="Let the broker check the request, and change nothing."
    ),
]


@app.command()
@takes_options
def create(
    *,
    topic: Name,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Number of replicas of each partition."),
    ] = None,
    config: Configs = None,
    choice: RangeChoice,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic exists already.")
    ] = False,
    dry_run: CheckOnly = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Create a topic.

    With one partition all records are totally ordered, but a single node writes them, on one core,
    and only one consumer of a group can read them.

    Several partitions are written and read in parallel, by as many consumers as there are partitions.
    Order then holds only within a partition (records with the same key stay together), and each costs
    memory, open files and a little time at start and failover. Adding partitions later maps keys to other
    partitions and cannot be undone, so choose the number you expect to need; a common rule is
    partitions ≥ consumers = throughput of all producers / throughput of one consumer.

    \b
    Examples:
      headrace topics create orders
      headrace topics create orders --partitions 3 --replication-factor 3
      headrace topics create people --partitions 2 --ranges AAAA..MZZZ,NAAA..ZZZZ
      headrace topics create people --ranges A..M,N..Z --config headrace.partitioner=enforce
      headrace topics create latest --config cleanup.policy=compact
    """
    from headrace.client.errors import ClientError
    from headrace.client.tools.admin import Admin
    from headrace.client.tools.partitioner_store import PartitionerStore

    configs = parse_pairs(config, "--config")
    output = Output(as_json=as_json)
    wanted = choice.parsed(partitions)
    cluster = connect.cluster()
    admin = Admin(cluster)
    store = PartitionerStore(cluster, admin)
    outside = choice.policy or "error"
    created = True
    given: dict[str, Any] = {
        "replication_factor": replication_factor,
        "configs": configs,
        "validate_only": dry_run,
    }
    try:
        if wanted:
            store.create_topic(topic, wanted, outside, partitions=len(wanted), **given)
        else:
            admin.create_topic(topic, partitions=partitions, **given)
    except ClientError as error:
        if not (if_not_exists and error.code == "TOPIC_ALREADY_EXISTS"):
            raise
        created = False
    if dry_run:
        output.say({"topic": topic, "valid": True}, f"Topic '{topic}' could be created.")
        return
    description = _await_topic(admin, topic)
    if created and wanted and store.load(topic, description.topic_id) is None:
        store.save(topic, description.topic_id, wanted, outside)
    output.say(
        {"topic": topic, "created": created, **_counts(description)},
        f"{'Created' if created else 'There already is a'} topic '{topic}' with {_counted(description)}.",
    )
    warn_of_min_insync(admin, description, output)
    warn_of_one_rack(cluster, description, output)


@app.command("list")
@takes_options
def list_(
    *,
    internal: Annotated[
        bool, typer.Option("--all", "-a", help="Include internal topics (names beginning with __).")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """List the topics.

    \b
    Examples:
      headrace topics list
      headrace topics list --all --json
    """
    from headrace.client.tools.admin import Admin

    output = Output(as_json=as_json)
    topics = Admin(connect.cluster()).list_topics(internal=internal)
    if as_json:
        output.document(
            [
                {
                    "name": topic.name,
                    "partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                    "internal": topic.internal,
                }
                for topic in topics
            ]
        )
        return
    if output.terminal and not topics:
        output.note("There are no topics yet; create one: headrace topics create NAME")
        return
    rows = [(topic.name, topic.partitions, topic.replication_factor) for topic in topics]
    output.table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)


@app.command()
@takes_options
def describe(
    *,
    topic: Name,
    producers: Annotated[
        bool, typer.Option("--producers", help="Also show the idempotent producers known to the leaders.")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show a topic: partitions, leaders, replicas, offsets, sizes, settings, key ranges.

    \b
    Examples:
      headrace topics describe orders
      headrace topics describe orders --producers --json
    """
    from headrace.cli.topics.report import TopicReport

    report = TopicReport.read(connect.cluster(), topic, producers=producers)
    output = Output(as_json=as_json)
    if as_json:
        output.document(report.document())
        return
    output.fields(report.fields())
    columns, rows = report.partition_table()
    output.line("")
    output.table(columns, [_sized(row, output.terminal) for row in rows])
    if producers:
        output.line("")
        output.table(*report.producer_table())


@app.command()
@takes_options
def alter(
    *,
    topic: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="New number of partitions; it cannot be reduced."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="New number of replicas; the command waits until they are in sync.",
        ),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default; repeatable."),
    ] = None,
    choice: RangeChoice,
    dry_run: CheckOnly = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Add partitions to a topic, change its replicas, its settings or its key ranges.

    More partitions change the partition of a key: records written earlier stay where they are. A topic
    that partitions by key range needs new ranges together with new partitions.

    \b
    Examples:
      headrace topics alter orders --partitions 6
      headrace topics alter orders --replication-factor 3
      headrace topics alter orders --config retention.ms=3600000 --unset segment.bytes
      headrace topics alter people --partitions 3 --ranges A..H,I..P,Q..Z
      headrace topics alter people --outside nearest
    """
    from headrace.cli.reassignment import change_replication_factor, plan_replication_factor
    from headrace.client.tools.admin import Admin
    from headrace.client.tools.partitioner_store import PartitionerStore

    values = parse_pairs(config, "--config")
    if not (partitions or replication_factor or values or unset or choice.given):
        raise typer.BadParameter(
            "nothing to change: --partitions, --replication-factor, --config, --unset, --ranges or --outside"
        )
    output = Output(as_json=as_json)
    cluster = connect.cluster()
    admin = Admin(cluster)
    store = PartitionerStore(cluster, admin)
    before = admin.describe_topic(topic)
    total = partitions or len(before.partitions)
    new_ranges = choice.for_altered(before, total, store.load(topic, before.topic_id))
    if replication_factor is not None and dry_run:
        plan_replication_factor(cluster, topic, replication_factor)
    if total != len(before.partitions):
        admin.add_partitions(topic, total, validate_only=dry_run)
    if new_ranges is not None and not dry_run:
        store.save(topic, before.topic_id, new_ranges.ranges, new_ranges.outside)
    if values or unset:
        admin.alter_configs("topic", topic, values=values, unset=unset or (), validate_only=dry_run)
    if dry_run:
        output.say({"topic": topic, "valid": True}, f"Topic '{topic}' could be altered.")
        return
    if replication_factor is not None:
        change_replication_factor(cluster, topic, replication_factor, output)
    after = admin.describe_topic(topic)
    output.say({"topic": topic, **_counts(after)}, f"Altered topic '{topic}': {_counted(after)}.")
    warn_of_min_insync(admin, after, output)
    warn_of_one_rack(cluster, after, output)


@app.command()
@takes_options
def delete(
    *,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of the topics.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records permanently.

    \b
    Examples:
      headrace topics delete orders
      headrace topics delete orders payments --dry-run
      headrace topics delete orders payments --yes
    """
    from headrace.client.tools.admin import Admin
    from headrace.client.tools.partitioner_store import PartitionerStore

    output = Output(as_json=as_json)
    cluster = connect.cluster()
    admin = Admin(cluster)
    found = [admin.describe_topic(topic) for topic in topics]
    named = ", ".join(f"'{clean(topic.name)}' ({_counted(topic)})" for topic in found)
    if dry_run:
        output.say({"dry_run": True, "would_delete": topics}, f"Would delete {named} with all records.")
        return
    confirm(f"permanently delete {named} at {cluster} with all records", yes=yes)
    store = PartitionerStore(cluster, admin)
    with ProgressBar("deleting", len(topics)) as bar:
        for topic in topics:
            admin.delete_topic(topic)
            store.remove(topic)
            bar.advance()
    output.say({"deleted": topics}, f"Deleted {named}.")


def _await_topic(admin: Admin, topic: str) -> TopicDescription:
    """Wait for the topic: a cluster may reply before every node knows it."""
    for _ in range(50):
        found = admin.find_topic(topic)
        if found is not None:
            return found
        time.sleep(0.1)
    return admin.describe_topic(topic)


def _counts(topic: TopicDescription) -> dict[str, Any]:
    return {"partitions": len(topic.partitions), "replication_factor": topic.replication_factor}


def _counted(topic: TopicDescription) -> str:
    count, copies = len(topic.partitions), topic.replication_factor
    return f"{count} partition{'s'[: count > 1]}, replication factor {copies}"


def _sized(row: tuple[Cell, ...], terminal: bool) -> tuple[Cell, ...]:
    """Format the last column, a size: with units on a terminal, in bytes otherwise."""
    size = row[-1]
    return (*row[:-1], human_bytes(size)) if terminal and isinstance(size, int) else row
