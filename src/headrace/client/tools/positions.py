# SPDX-License-Identifier: Apache-2.0
"""Current positions of group members, as far as their fetches show them; only Headrace reports those.

A leader lists the clients that fetch from a partition, each with the offset it asked for last, in a config of
the topic that must be asked for by name; Apache Kafka has no such config and says nothing. A fetch names no
group: it is a member's when client id and address are those of the partition's owner.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers, run
from headrace.client.tools.group_calls import GroupMember
from headrace.types import READERS, TopicPartition
from headrace.wire.api_key import ApiKey

_TOPIC_RESOURCE = 2
_SAME_TIME_MS = 3_000
"""A client that was silent for so much longer than another no longer reads."""


class Reader(NamedTuple):
    """A client that fetched from a partition, and the offset that it asked for last."""

    client_id: str
    host: str
    offset: int
    age_ms: int


def current_positions(
    bootstrap: str | Cluster, owners: Mapping[TopicPartition, GroupMember]
) -> dict[TopicPartition, int]:
    """By partition; those that cannot be known are missing. Optional, so errors mean that none is known."""
    if not owners:
        return {}
    try:
        readers = run(_readers(bootstrap, {where.topic for where in owners}))
    except ClientError:
        return {}
    found = {where: position_of(member, readers.get(where, ())) for where, member in owners.items()}
    return {where: offset for where, offset in found.items() if offset is not None}


def position_of(member: GroupMember, readers: Sequence[Reader]) -> int | None:
    """The offset that the member asked for last; None when no client can be it, or several can."""
    alike = [each for each in readers if (each.client_id, each.host) == (member.client_id, member.host)]
    latest = min((each.age_ms for each in alike), default=0)
    offsets = {each.offset for each in alike if each.age_ms <= latest + _SAME_TIME_MS}
    return offsets.pop() if len(offsets) == 1 else None


async def _readers(bootstrap: str | Cluster, topics: Iterable[str]) -> dict[TopicPartition, list[Reader]]:
    found: dict[TopicPartition, list[Reader]] = {}
    async with Brokers(bootstrap) as brokers:
        leaders = _topics_by_leader(await brokers.metadata(sorted(topics)))
        for node_id, led in leaders.items():
            resources = [
                {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": [READERS]}
                for topic in sorted(led)
            ]
            fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
            found |= read_readers(await brokers.call_node(node_id, ApiKey.DESCRIBE_CONFIGS, fields))
    return found


def _topics_by_leader(metadata: Any) -> dict[int, set[str]]:
    leaders: dict[int, set[str]] = defaultdict(set)
    for topic in metadata.topics:
        for partition in topic.partitions:
            if int(partition.leader_id) >= 0:
                leaders[int(partition.leader_id)].add(str(topic.name))
    return leaders


def read_readers(reply: Any) -> dict[TopicPartition, list[Reader]]:
    """From a reply of DescribeConfigs; what a newer broker says in another form is left out."""
    found = {}
    for result in reply.results:
        for config in result.configs:
            prefix, _, partition = str(config.name).rpartition(".")
            if prefix != READERS:
                continue
            try:
                readers = [
                    Reader(str(client_id), str(host), int(offset), int(age_ms))
                    for client_id, host, offset, age_ms in json.loads(config.value or "[]")
                ]
                found[TopicPartition(str(result.resource_name), int(partition))] = readers
            except (ValueError, TypeError):
                continue
    return found
