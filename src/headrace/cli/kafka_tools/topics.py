# SPDX-License-Identifier: Apache-2.0
"""`kafka-topics`: create, list, describe, alter and delete topics, with Apache Kafka's options and output.

Requests: client/tools/admin.py. The same in headrace's own words: cli/topics/commands.py.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from headrace.cli.errors import UsageError
from headrace.cli.kafka_tools.options import ToolParser, client_properties, cluster_of, parse_properties
from headrace.cli.output import Output
from headrace.cli.topics.key_ranges import RangeChoice
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin, PartitionDescription, TopicDescription
from headrace.client.tools.partitioner_store import PartitionerStore

ERROR = "Error while executing topic command : {}"
ACTIONS = ("create", "list", "describe", "alter", "delete")
_IDS_OF_NONE = "none"

Shown = Callable[[PartitionDescription, int], bool]
"""Whether a partition is shown, by its description and the topic's min.insync.replicas."""
_FILTERS: dict[str, Shown] = {
    "under_replicated_partitions": lambda partition, minimum: len(partition.isr) < len(partition.replicas),
    "unavailable_partitions": lambda partition, minimum: partition.leader is None,
    "under_min_isr_partitions": lambda partition, minimum: len(partition.isr) < minimum,
    "at_min_isr_partitions": lambda partition, minimum: len(partition.isr) == minimum,
}


def run(arguments: Sequence[str]) -> None:
    parser = _parser()
    options = parser.parse_tool(arguments)
    action = parser.one_action(options, ACTIONS)
    if action in ("create", "alter", "delete"):
        parser.require(options, "topic")
    _check(options, action)
    cluster = cluster_of(options, client_properties(options.command_config, (), "--command-config"))
    admin = Admin(cluster)
    if action == "alter":
        _alter(admin, options, PartitionerStore(cluster, admin))
    elif action == "delete":
        _delete(admin, options, PartitionerStore(cluster, admin))
    else:
        {"create": _create, "list": _list, "describe": _describe}[action](admin, options)


def _parser() -> ToolParser:
    parser = ToolParser("kafka-topics", "Create, list, describe, alter and delete topics.")
    parser.flag("--create", help="Create a topic.")
    parser.flag("--list", help="List the topics.")
    parser.flag("--describe", help="Show topics with their partitions.")
    parser.flag("--alter", help="Add partitions.")
    parser.flag("--delete", help="Delete topics with all records.")
    parser.text("--topic", help="The topic; except with --create, a regular expression.")
    parser.number("--partitions", help="Number of partitions. Default: the broker's.")
    parser.number("--replication-factor", help="Number of replicas. Default: the broker's.")
    parser.repeated("--config", metavar="KEY=VALUE", help="A topic setting, with --create; repeatable.")
    parser.flag("--if-not-exists", help="With --create: succeed when the topic exists.")
    parser.flag("--if-exists", help="With --alter, --describe and --delete: succeed when there is no topic.")
    parser.flag("--exclude-internal", help="Leave internal topics out.")
    parser.flag("--topics-with-overrides", help="Only topics with settings of their own.")
    parser.flag("--under-replicated-partitions", help="Only partitions with replicas out of sync.")
    parser.flag("--unavailable-partitions", help="Only partitions without a leader.")
    parser.flag("--under-min-isr-partitions", help="Only partitions below min.insync.replicas.")
    parser.flag("--at-min-isr-partitions", help="Only partitions at min.insync.replicas.")
    parser.text("--command-config", metavar="FILE", help="Properties of the client: TLS and login.")
    return parser


def _check(options: argparse.Namespace, action: str) -> None:
    """Refuse wrong options before anything is connected."""
    if options.config and action != "create":
        raise UsageError(
            f"--config is only for --create, not for --{action}",
            f"change settings: headrace configs set --topic {options.topic or 'TOPIC'} {options.config[0]}",
        )
    parse_properties(options.config, "--config")
    if options.topic and action != "create":
        topic_pattern(options.topic)
    if action == "alter" and options.partitions is None:
        raise UsageError('Missing required argument "[partitions]"')
    if action == "alter" and options.replication_factor is not None:
        raise UsageError(
            "--replication-factor cannot be altered by kafka-topics",
            f"headrace topics alter {options.topic} --replication-factor {options.replication_factor}",
        )


def _create(admin: Admin, options: argparse.Namespace) -> None:
    try:
        admin.create_topic(
            options.topic,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            configs=parse_properties(options.config, "--config"),
        )
    except ClientError as error:
        if error.code != "TOPIC_ALREADY_EXISTS":
            raise
        if not options.if_not_exists:
            raise ClientError(f"Topic '{options.topic}' already exists.", code=error.code) from error
        return
    Output().line(f"Created topic {options.topic}.")


def _list(admin: Admin, options: argparse.Namespace) -> None:
    output = Output()
    for name in _matching(admin, options):
        output.line(name)


def _describe(admin: Admin, options: argparse.Namespace) -> None:
    names = _existing(admin, options) if options.topic else _matching(admin, options)
    output = Output()
    for name in names:
        _describe_one(admin, name, options, output)


def _describe_one(admin: Admin, name: str, options: argparse.Namespace, output: Output) -> None:
    topic = admin.describe_topic(name)
    settings = admin.configs("topic", name)
    overrides = [each for each in settings if not each.is_default]
    if options.topics_with_overrides and not overrides:
        return
    filters = [shown for option, shown in _FILTERS.items() if getattr(options, option)]
    if not filters:
        configs = ",".join(f"{each.name}={each.value}" for each in overrides)
        _line(
            output,
            f"Topic: {topic.name}",
            f"TopicId: {topic.topic_id}",
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {topic.replication_factor}",
            f"Configs: {configs}",
        )
    if options.topics_with_overrides:
        return
    minimum = int(next((each.value for each in settings if each.name == "min.insync.replicas"), None) or 1)
    for partition in topic.partitions:
        if all(shown(partition, minimum) for shown in filters):
            _line(output, *_partition_cells(topic, partition))


def _partition_cells(topic: TopicDescription, partition: PartitionDescription) -> tuple[str, ...]:
    return (
        "",
        f"Topic: {topic.name}",
        f"Partition: {partition.index}",
        f"Leader: {_IDS_OF_NONE if partition.leader is None else partition.leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
        "Elr: ",
        "LastKnownElr: ",
    )


def _alter(admin: Admin, options: argparse.Namespace, store: PartitionerStore) -> None:
    for name in _existing(admin, options):
        topic = admin.describe_topic(name)
        stored = store.load(name, topic.topic_id)
        RangeChoice().for_altered(topic, options.partitions, stored)
        admin.add_partitions(name, options.partitions)


def _delete(admin: Admin, options: argparse.Namespace, store: PartitionerStore) -> None:
    for name in _existing(admin, options):
        admin.delete_topic(name)
        store.remove(name)


def _existing(admin: Admin, options: argparse.Namespace) -> list[str]:
    """The topics that --topic matches; none is an error without --if-exists."""
    names = _matching(admin, options)
    if not names and not options.if_exists:
        raise ClientError(
            f"Topic '{options.topic}' does not exist as expected", next_step="list them: kafka-topics --list"
        )
    return names


def _matching(admin: Admin, options: argparse.Namespace) -> list[str]:
    pattern = topic_pattern(options.topic) if options.topic else None
    return [
        topic.name
        for topic in admin.list_topics(internal=not options.exclude_internal)
        if pattern is None or pattern.fullmatch(topic.name)
    ]


def topic_pattern(text: str) -> re.Pattern[str]:
    """A regular expression for names of topics; commas separate alternatives, as in Apache Kafka."""
    try:
        return re.compile(text.strip().strip("\"'").replace(",", "|").replace(" ", ""))
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}") from None


def _line(output: Output, *cells: str) -> None:
    output.row(*cells)


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))
