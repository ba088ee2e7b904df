# SPDX-License-Identifier: Apache-2.0
"""Chooses the protocol in which a new member joins a group: KIP-848 where the broker and the group allow it.

Works against any Kafka. Read next: client/parallel/member.py, which joins.
"""

from __future__ import annotations

from headrace.cli.records.consume_options import Protocol
from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.parallel.member import GroupProtocol
from headrace.client.tools.brokers import Brokers, run
from headrace.client.tools.group_calls import GroupDescription, describe_classic_group, with_retries
from headrace.wire.api_key import ApiKey

_COOPERATIVE = ("", "cooperative-sticky")
"""Assignors with which a new classic member of ours can join; others rebalance all partitions at once."""


def choose_protocol(cluster: str | Cluster, group: str, wanted: Protocol | None) -> GroupProtocol:
    """A group with classic members is joined as such: a new member does not convert it by itself."""
    if wanted == "cooperative" or wanted == "eager":
        return wanted
    if wanted != "classic" and not run(_serves_kip848(cluster)):
        if wanted == "consumer":
            raise ClientError(
                "the broker does not have the KIP-848 protocol", next_step="use --protocol classic"
            )
        wanted = "classic"
    if wanted == "consumer":
        return "consumer"
    members = run(with_retries(lambda: describe_classic_group(cluster, group)))
    if wanted is None and not _has_consumers(members):
        return "consumer"
    return "cooperative" if members is None or members.assignor in _COOPERATIVE else "eager"


async def _serves_kip848(cluster: str | Cluster) -> bool:
    async with Brokers(cluster) as brokers:
        return serves_kip848(await brokers.any_connection())


def serves_kip848(connection: Connection) -> bool:
    """Apache Kafka turns the protocol on and off by its feature group.version; others may not have that."""
    level = connection.features.get("group.version")
    if level is None and "metadata.version" in connection.features:
        return False
    return level != 0 and ApiKey.CONSUMER_GROUP_HEARTBEAT in connection.versions


def _has_consumers(group: GroupDescription | None) -> bool:
    return group is not None and bool(group.members)
