# SPDX-License-Identifier: Apache-2.0
"""Requests to group coordinators for groups.py: list, describe, offsets.

librdkafka lacks the newer states, groups of other protocol types and deletion of offsets, and aborts the
process when the coordinator it asks for offsets has just moved or is new (librdkafka#5040).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.kafka_errors import code_error
from headrace.client.retry import Backoff, retry
from headrace.client.tools.brokers import Brokers
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, assigned_partitions
from headrace.wire.error_codes import ErrorCode

_NEWEST_WITH_TOPIC_NAMES = 9
"""From version 10 on, OffsetFetch names topics by their ids alone."""
_TIMEOUT_MS = 15_000
_RETRY_MS = 200
_NOT_READY = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group in a list; `group_type` is "classic" or "consumer" (KIP-848)."""

    group_id: str
    protocol_type: str
    group_type: str
    state: str
    node_id: int
    """The group's coordinator: only it lists the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, and the partitions assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its state and members."""

    group_id: str
    protocol_type: str
    group_type: str
    state: str
    assignor: str
    epoch: int | None
    """Of the KIP-848 protocol; brokers do not return the classic generation."""
    node_id: int
    members: tuple[GroupMember, ...]
    """By client id, then by what they are assigned."""

    @property
    def active(self) -> bool:
        return bool(self.members) or self.state not in ("Empty", "Dead")

    @property
    def assigned(self) -> dict[TopicPartition, GroupMember]:
        return {partition: member for member in self.members for partition in member.assigned}


async def with_retries(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retries while a coordinator is new, loading or moving."""
    backoff = Backoff(_TIMEOUT_MS, first_ms=_RETRY_MS, max_ms=_RETRY_MS)
    return await retry(attempt, backoff.wait, retriable=lambda error: error.code in _NOT_READY)


async def list_groups(bootstrap: str | Cluster) -> list[GroupListing]:
    found = []
    async with Brokers(bootstrap) as brokers:
        for node_id in await brokers.node_ids():
            reply = await brokers.call_node(node_id, ApiKey.LIST_GROUPS, {})
            _check(reply.error_code, "", "cluster")
            found += [
                GroupListing(
                    group_id=str(group.group_id),
                    protocol_type=str(group.protocol_type),
                    group_type=str(getattr(group, "group_type", "") or "classic").lower(),
                    state=str(getattr(group, "group_state", "")),
                    node_id=node_id,
                )
                for group in reply.groups
            ]
    return found


async def describe_groups(
    bootstrap: str | Cluster, groups: list[GroupListing]
) -> dict[str, GroupDescription]:
    described: dict[str, GroupDescription] = {}
    async with Brokers(bootstrap) as brokers:
        for node_id in sorted({group.node_id for group in groups}):
            here = [group for group in groups if group.node_id == node_id]
            kip848 = [group.group_id for group in here if group.group_type == "consumer"]
            classic = [group.group_id for group in here if group.group_type == "classic"]
            if kip848:
                reply = await brokers.call_node(
                    node_id, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": kip848}
                )
                described |= _described(node_id, reply, _kip848_group)
            if classic:
                reply = await brokers.call_node(node_id, ApiKey.DESCRIBE_GROUPS, {"groups": classic})
                described |= _described(node_id, reply, _classic_group)
    return described


async def describe_classic_group(bootstrap: str | Cluster, group_id: str) -> GroupDescription | None:
    """A classic group by its name; None when there is none, or it is one of KIP-848."""
    async with Brokers(bootstrap) as brokers:
        node_id = await _coordinator(brokers, group_id)
        reply = await brokers.call_node(node_id, ApiKey.DESCRIBE_GROUPS, {"groups": [group_id]})
        return _described(node_id, reply, _classic_group).get(group_id)


async def committed_offsets(
    bootstrap: str | Cluster, coordinators: Mapping[str, int | None]
) -> dict[str, dict[TopicPartition, int]]:
    """Every offset that each group has committed; coordinators by group, None where that is not known."""
    found: dict[str, dict[TopicPartition, int]] = {}
    async with Brokers(bootstrap) as brokers:
        for group_id, known in coordinators.items():
            node_id = await _coordinator(brokers, group_id) if known is None else known
            all_topics = {"group_id": group_id, "topics": None}
            fields = {**all_topics, "groups": [all_topics]}
            reply = await brokers.call_node(
                node_id, ApiKey.OFFSET_FETCH, fields, newest=_NEWEST_WITH_TOPIC_NAMES
            )
            answer = reply.groups[0] if hasattr(reply, "groups") else reply
            _check(getattr(answer, "error_code", 0), group_id, "group")
            found[group_id] = _offsets(answer)
    return found


def _offsets(answer: Any) -> dict[TopicPartition, int]:
    found = {
        TopicPartition(str(topic.name), int(partition.partition_index)): int(partition.committed_offset)
        for topic in answer.topics
        for partition in topic.partitions
        if int(partition.error_code) == 0 and int(partition.committed_offset) >= 0
    }
    return dict(sorted(found.items()))


async def _coordinator(brokers: Brokers, group_id: str) -> int:
    """The first such request makes a broker create `__consumer_offsets`."""
    fields = {"key": group_id, "key_type": 0, "coordinator_keys": [group_id]}
    reply = await brokers.call_any(ApiKey.FIND_COORDINATOR, fields)
    answer = reply.coordinators[0] if hasattr(reply, "coordinators") else reply
    _check(answer.error_code, group_id, "group")
    return int(answer.node_id)


def _described(node_id: int, reply: Any, read: Any) -> dict[str, GroupDescription]:
    found = {}
    for group in reply.groups:
        if int(group.error_code) == ErrorCode.group_id_not_found or str(group.group_state) == "Dead":
            continue
        _check(group.error_code, str(group.group_id), "group")
        found[str(group.group_id)] = read(node_id, group)
    return found


def _classic_group(node_id: int, group: Any) -> GroupDescription:
    readable = str(group.protocol_type) == PROTOCOL_TYPE
    return GroupDescription(
        group_id=str(group.group_id),
        protocol_type=str(group.protocol_type),
        group_type="classic",
        state=str(group.group_state),
        assignor=str(group.protocol_data),
        epoch=None,
        node_id=node_id,
        members=_ordered(
            GroupMember(
                member_id=str(member.member_id),
                instance_id=getattr(member, "group_instance_id", None),
                client_id=str(member.client_id),
                host=str(member.client_host).removeprefix("/"),
                assigned=read_assignment(bytes(member.member_assignment)) if readable else (),
            )
            for member in group.members
        ),
    )


def _kip848_group(node_id: int, group: Any) -> GroupDescription:
    return GroupDescription(
        group_id=str(group.group_id),
        protocol_type=PROTOCOL_TYPE,
        group_type="consumer",
        state=str(group.group_state),
        assignor=str(group.assignor_name),
        epoch=int(group.group_epoch),
        node_id=node_id,
        members=_ordered(
            GroupMember(
                member_id=str(member.member_id),
                instance_id=member.instance_id,
                client_id=str(member.client_id),
                host=str(member.client_host).removeprefix("/"),
                assigned=tuple(
                    sorted(
                        TopicPartition(str(topic.topic_name), int(partition))
                        for topic in member.assignment.topic_partitions
                        for partition in topic.partitions
                    )
                ),
            )
            for member in group.members
        ),
    )


def _ordered(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(
        sorted(members, key=lambda m: (m.client_id, not m.assigned, m.assigned, m.instance_id or m.member_id))
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a classic consumer's assignment; none for bytes of another protocol."""
    assigned = assigned_partitions(data)
    return tuple(
        sorted(TopicPartition(topic, each) for topic, numbers in assigned.items() for each in numbers)
    )


async def delete_offsets(
    bootstrap: str | Cluster, node_id: int, group_id: str, topic: str, partitions: Sequence[int]
) -> None:
    asked = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
    async with Brokers(bootstrap) as brokers:
        reply = await brokers.call_node(
            node_id, ApiKey.OFFSET_DELETE, {"group_id": group_id, "topics": asked}
        )
    _check(reply.error_code, group_id, "group")
    for entry in (entry for topic_reply in reply.topics for entry in topic_reply.partitions):
        _check(entry.error_code, group_id, "group")


def _check(code: Any, name: str, kind: str) -> None:
    if int(code) != 0:
        raise code_error(ErrorCode(int(code)).name.upper(), name=name, kind=kind)
