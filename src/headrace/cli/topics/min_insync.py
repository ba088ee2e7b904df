# SPDX-License-Identifier: Apache-2.0
"""A warning about a min.insync.replicas that the replicas of a topic cannot reach.

Brokers accept it, from an altered setting or from the default of the nodes. Read next: report.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.cli.output import Output
    from headrace.client.tools.admin import Admin, ConfigValue, TopicDescription

NAME = "min.insync.replicas"


def min_insync_warning(topic: TopicDescription, configs: Iterable[ConfigValue]) -> str | None:
    """`configs`: all of the topic, defaults included."""
    wanted = next((each.value for each in configs if each.name == NAME), None)
    fewest = min((len(partition.replicas) for partition in topic.partitions), default=0)
    if wanted is None or not wanted.isdecimal() or int(wanted) <= fewest:
        return None
    replicas = "1 replica" if fewest == 1 else f"{fewest} replicas"
    return (
        f"{NAME}={wanted} is more than {replicas}: Apache Kafka refuses every write with acks=all, Headrace "
        f"waits for {fewest}; lower it: headrace configs set --topic {topic.name} {NAME}={fewest}"
    )


def warn_of_min_insync(admin: Admin, topic: TopicDescription, output: Output) -> None:
    """Says nothing where the settings may not be read."""
    try:
        warning = min_insync_warning(topic, admin.configs("topic", topic.name))
    except ClientError:
        return
    if warning is not None:
        output.note(f"Warning: {warning}")
