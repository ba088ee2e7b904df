# SPDX-License-Identifier: Apache-2.0
"""Where logs begin and end (ListOffsets): one request to each leader for all its partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls, of_each
from headrace.console.state.model import Snapshot, TopicState
from headrace.console.state.polls import Offsets
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey

Which = Literal["start", "end", "last_stable"]

_TIMESTAMPS = {"start": -2, "end": -1, "last_stable": -1}
_READ_COMMITTED = 1
_NEWEST_FOR_ALL = 9
"""Later versions add special timestamps only."""


def by_leader(topics: Iterable[TopicState]) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = defaultdict(dict)
    for topic in topics:
        for partition in topic.partitions.values():
            if partition.leader is not None:
                found[partition.leader].setdefault(topic.name, []).append(partition.partition)
    return found


async def ask_offsets(
    calls: BrokerCalls, snapshot: Snapshot, topics: Iterable[TopicState], which: Which
) -> tuple[Offsets, Mapping[int, str]]:
    """The offsets, and what is wrong with nodes that did not answer."""
    leaders = by_leader(topics)
    live = [node_id for node_id in leaders if (node := snapshot.nodes.get(node_id)) and node.up]
    answers = await of_each(live, lambda node_id: _ask(calls, node_id, leaders[node_id], which))
    found: dict[TopicPartition, int] = {}
    problems = {}
    for node_id, answer in answers.items():
        if isinstance(answer, ClientError):
            problems[node_id] = answer.what
        else:
            found.update(answer)
    return found, problems


async def ask_offset_at(calls: BrokerCalls, node_id: int, where: TopicPartition, timestamp: int) -> int:
    """The first offset since a time (-2: the start, -1: the end); -1 when there is none."""
    found = await _list(calls, node_id, {where.topic: [where.partition]}, timestamp, 0)
    return found.get(where, -1)


async def _ask(
    calls: BrokerCalls, node_id: int, topics: Mapping[str, list[int]], which: Which
) -> dict[TopicPartition, int]:
    isolation = _READ_COMMITTED if which == "last_stable" else 0
    return await _list(calls, node_id, topics, _TIMESTAMPS[which], isolation)


async def _list(
    calls: BrokerCalls, node_id: int, topics: Mapping[str, list[int]], timestamp: int, isolation: int
) -> dict[TopicPartition, int]:
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "timestamp": timestamp} for index in partitions],
        }
        for name, partitions in topics.items()
    ]
    fields = {"replica_id": -1, "isolation_level": isolation, "topics": asked}
    reply = await calls.node(node_id, ApiKey.LIST_OFFSETS, fields, newest=_NEWEST_FOR_ALL)
    return {
        TopicPartition(str(topic.name), int(each.partition_index)): int(each.offset)
        for topic in reply.topics
        for each in topic.partitions
        if int(each.error_code) == 0
    }
