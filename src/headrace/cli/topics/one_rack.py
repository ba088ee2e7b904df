# SPDX-License-Identifier: Apache-2.0
"""A warning about replicas that are all in one rack, such as the cores of one host.

Works against any Kafka. Read next: min_insync.py (the other warning).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.cli.output import Output
    from headrace.client.cluster import Cluster
    from headrace.client.tools.admin import TopicDescription


def one_rack_warning(name: str, replicas: int, racks: Collection[str | None]) -> str | None:
    """`racks`: of all nodes. Nodes without one say nothing about what they share."""
    distinct = set(racks)
    if replicas < 2 or len(distinct) != 1 or None in distinct:
        return None
    (rack,) = distinct
    return (
        f"the {replicas} replicas of {name} are all in rack {rack}, and are lost together; on one host a "
        "second replica only costs time and disk: use --replication-factor 1, or nodes on several hosts"
    )


def warn_of_one_rack(cluster: Cluster, topic: TopicDescription, output: Output) -> None:
    """Says nothing where the cluster does not answer."""
    from headrace.client.tools.brokers import run

    if topic.replication_factor < 2:
        return
    try:
        warning = one_rack_warning(topic.name, topic.replication_factor, run(_racks(cluster)))
    except ClientError:
        return
    if warning is not None:
        output.note(f"Warning: {warning}")


async def _racks(cluster: Cluster) -> list[str | None]:
    from headrace.client.tools.brokers import Brokers

    async with Brokers(cluster) as brokers:
        reply = await brokers.metadata([])
    return [None if node.rack is None else str(node.rack) for node in reply.brokers]
