# SPDX-License-Identifier: Apache-2.0
"""Unclean elections on any Kafka: partitions without a leader, their last in-sync replicas, and candidates.

Elects only the given partitions, so that no other loses records. Blocking, for tools; prints
nothing. Read next: reassignments.py (preferred leaders).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionLost
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers, partitions_of, run
from headrace.client.tools.reassignments import check
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_UNCLEAN = 1
_PARTITIONS_PER_REPLY = 2_000
_LOOKS, _LOOK_EVERY_S = 25, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderless:
    """A partition that nobody leads."""

    place: TopicPartition
    had_all: tuple[int, ...]
    """Nodes that had every acknowledged record when they were last heard of."""
    may_lead: tuple[int, ...]
    """Nodes that are up and whose log of it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedLeader:
    place: TopicPartition
    leader: int | None
    """None: not known within a few seconds."""
    begins_at: int | None
    """The offset at which its log ended when it was elected; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanOutcome:
    elected: tuple[ElectedLeader, ...]
    refused: Mapping[TopicPartition, str]
    """Why, in the cluster's words."""


def leaderless(
    bootstrap: str | Cluster, topic: str | None = None, partition: int | None = None
) -> tuple[Leaderless, ...]:
    """Of a partition, of a topic, of all topics. Raises ClientError when what was named does not exist."""

    async def ask() -> tuple[Leaderless, ...]:
        async with Brokers(bootstrap) as brokers:
            reply = await brokers.metadata(None if topic is None else [topic])
            if topic is not None:
                _check_there(topic, partition, partitions_of(topic, reply))
            lacking = {
                TopicPartition(str(entry.name), int(each.partition_index)): each
                for entry in reply.topics
                for each in entry.partitions
                if int(each.leader_id) < 0 and partition in (None, int(each.partition_index))
            }
            live = {int(node.node_id) for node in reply.brokers}
            had_all = await _had_all(brokers, lacking) if lacking else {}
        return tuple(
            Leaderless(
                place=place,
                had_all=had_all[place],
                may_lead=tuple(sorted(live & set(each.replica_nodes) - set(each.offline_replicas))),
            )
            for place, each in sorted(lacking.items())
        )

    return run(ask())


def elect_unclean(bootstrap: str | Cluster, places: Sequence[TopicPartition]) -> UncleanOutcome:
    """A live replica leads each of them, whatever it lacks; those that have a leader by now keep it."""

    async def ask() -> UncleanOutcome:
        async with Brokers(bootstrap) as brokers:
            wanted = [{"topic": name, "partitions": found} for name, found in _by_topic(places).items()]
            fields = {"election_type": _UNCLEAN, "topic_partitions": wanted}
            reply = await brokers.call_any(ApiKey.ELECT_LEADERS, fields)
            check(reply, "electing leaders")
            refused = _refusals(reply)
            elected = [place for place in places if place not in refused]
            return UncleanOutcome(elected=await _await_leaders(brokers, elected), refused=refused)

    return run(ask())


def _check_there(topic: str, partition: int | None, found: list[Any]) -> None:
    if partition is not None and partition not in [int(each.partition_index) for each in found]:
        raise ClientError(
            f"topic {topic!r} has no partition {partition}, it has {len(found)}",
            next_step=f"see them: headrace topics describe {topic}",
        )


async def _had_all(
    brokers: Brokers, lacking: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas in sync, and those that are eligible without being so, where the cluster knows (KIP-966)."""
    found = {place: tuple(map(int, each.isr_nodes)) for place, each in lacking.items()}
    try:
        async for topic, each in _described(brokers, sorted({place.topic for place in lacking})):
            place = TopicPartition(topic, int(each.partition_index))
            eligible = each.eligible_leader_replicas or each.last_known_elr or ()
            if place in found:
                found[place] = tuple(sorted({*each.isr_nodes, *eligible}))
    except ClientError as error:
        if error.code != "UNSUPPORTED_VERSION":
            raise
    return found


async def _described(brokers: Brokers, topics: list[str]) -> AsyncIterator[tuple[str, Any]]:
    """Every partition of the topics, page by page."""
    cursor: dict[str, Any] | None = None
    while True:
        fields = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": _PARTITIONS_PER_REPLY,
            "cursor": cursor,
        }
        reply = await brokers.call_any(ApiKey.DESCRIBE_TOPIC_PARTITIONS, fields)
        for topic in reply.topics:
            for each in topic.partitions:
                yield str(topic.name), each
        following = reply.next_cursor
        if following is None:
            return
        cursor = {"topic_name": following.topic_name, "partition_index": following.partition_index}
        topics = [name for name in topics if name >= following.topic_name]


def _refusals(reply: Any) -> dict[TopicPartition, str]:
    return {
        TopicPartition(str(topic.topic), int(each.partition_id)): str(
            each.error_message or ErrorCode(int(each.error_code)).name
        )
        for topic in reply.replica_election_results
        for each in topic.partition_result
        if int(each.error_code) not in (ErrorCode.none, ErrorCode.election_not_needed)
    }


async def _await_leaders(brokers: Brokers, places: Sequence[TopicPartition]) -> tuple[ElectedLeader, ...]:
    """The controller has decided; the node that answers may learn of it a moment later."""
    found: dict[TopicPartition, ElectedLeader] = {}
    for look in range(_LOOKS):
        missing = [place for place in places if place not in found]
        if not missing:
            break
        if look:
            await asyncio.sleep(_LOOK_EVERY_S)
        try:
            found |= await _leaders(brokers, missing)
        except ConnectionLost:
            continue
    return tuple(
        found.get(place, ElectedLeader(place=place, leader=None, begins_at=None)) for place in places
    )


async def _leaders(brokers: Brokers, places: Sequence[TopicPartition]) -> dict[TopicPartition, ElectedLeader]:
    reply = await brokers.metadata(sorted({place.topic for place in places}))
    led: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for topic in reply.topics:
        for each in topic.partitions:
            place = TopicPartition(str(topic.name), int(each.partition_index))
            if place in places and int(each.leader_id) >= 0:
                led[int(each.leader_id)][place] = int(each.leader_epoch)
    found = {}
    for leader, epochs in led.items():
        for place, offset in (await _ends_before(brokers, leader, epochs)).items():
            found[place] = ElectedLeader(place=place, leader=leader, begins_at=offset)
    return found


async def _ends_before(
    brokers: Brokers, leader: int, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """Where the log ended before each epoch; without those that the node does not know to lead yet."""
    fields = {
        "replica_id": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": -1,
                        "leader_epoch": epochs[TopicPartition(topic, index)] - 1,
                    }
                    for index in indexes
                ],
            }
            for topic, indexes in _by_topic(epochs).items()
        ],
    }
    reply = await brokers.call_node(leader, ApiKey.OFFSET_FOR_LEADER_EPOCH, fields)
    return {
        TopicPartition(str(topic.topic), int(each.partition)): (
            None if int(each.end_offset) < 0 else int(each.end_offset)
        )
        for topic in reply.topics
        for each in topic.partitions
        if int(each.error_code) == ErrorCode.none
    }


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place in places:
        found[place.topic].append(place.partition)
    return found
