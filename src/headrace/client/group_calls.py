"""What is asked of a cluster's group coordinators directly, for groups.py: list, describe, offsets.

librdkafka knows neither the newer states nor groups of other protocol types, cannot delete offsets, and ends
the process when a coordinator it asks for offsets has just moved or is new (librdkafka#5040).
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.brokers import Brokers
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS, LIST_GROUPS = 9, 10, 15, 16
OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE = 47, 69

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers; Connect's and others' assignments are their own business."""

_NEWEST_WITH_TOPIC_NAMES = 9
"""From version 10 on, OffsetFetch names topics by their ids alone."""
_PATIENCE_S = 15.0
_TRY_AGAIN_S = 0.2
_NOT_READY = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str
    group_type: str
    state: str
    node_id: int
    """The group's coordinator: only it lists the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    protocol_type: str
    group_type: str
    state: str
    assignor: str
    epoch: int | None
    """Of the KIP-848 protocol; the classic generation is not told."""
    node_id: int
    members: tuple[GroupMember, ...]
    """By client id, then by what they are assigned."""

    @property
    def active(self) -> bool:
        return bool(self.members) or self.state not in ("Empty", "Dead")

    @property
    def assigned(self) -> dict[TopicPartition, GroupMember]:
        return {partition: member for member in self.members for partition in member.assigned}


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Asks again while a coordinator is new, loading or moving: an answer may be seconds away."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return await ask()
        except ClientError as error:
            if error.code not in _NOT_READY or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_TRY_AGAIN_S)


async def list_groups(bootstrap: str) -> list[GroupListing]:
    found = []
    async with Brokers(bootstrap) as brokers:
        for node_id in await brokers.node_ids():
            reply = await brokers.call_node(node_id, LIST_GROUPS, {})
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


async def describe_groups(bootstrap: str, groups: list[GroupListing]) -> dict[str, GroupDescription]:
    described: dict[str, GroupDescription] = {}
    async with Brokers(bootstrap) as brokers:
        for node_id in sorted({group.node_id for group in groups}):
            here = [group for group in groups if group.node_id == node_id]
            modern = [group.group_id for group in here if group.group_type == "consumer"]
            classic = [group.group_id for group in here if group.group_type == "classic"]
            if modern:
                reply = await brokers.call_node(node_id, CONSUMER_GROUP_DESCRIBE, {"group_ids": modern})
                described |= _described(node_id, reply, _modern_group)
            if classic:
                reply = await brokers.call_node(node_id, DESCRIBE_GROUPS, {"groups": classic})
                described |= _described(node_id, reply, _classic_group)
    return described


async def committed_offsets(
    bootstrap: str, coordinators: Mapping[str, int | None]
) -> dict[str, dict[TopicPartition, int]]:
    """Every offset that each group has committed; coordinators by group, None where that is not known."""
    found: dict[str, dict[TopicPartition, int]] = {}
    async with Brokers(bootstrap) as brokers:
        for group_id, known in coordinators.items():
            node_id = await _coordinator(brokers, group_id) if known is None else known
            all_topics = {"group_id": group_id, "topics": None}
            fields = {**all_topics, "groups": [all_topics]}
            reply = await brokers.call_node(node_id, OFFSET_FETCH, fields, newest=_NEWEST_WITH_TOPIC_NAMES)
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
    """The first question about any group makes a broker create the topic that holds groups."""
    fields = {"key": group_id, "key_type": 0, "coordinator_keys": [group_id]}
    reply = await brokers.call_any(FIND_COORDINATOR, fields)
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
    readable = str(group.protocol_type) == CONSUMER_PROTOCOL
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


def _modern_group(node_id: int, group: Any) -> GroupDescription:
    return GroupDescription(
        group_id=str(group.group_id),
        protocol_type=CONSUMER_PROTOCOL,
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
    """What a classic consumer was assigned, from the part that every version of its bytes begins with.

    Nothing for bytes of somebody else's making.
    """
    found: list[TopicPartition] = []
    try:
        (topics,) = struct.unpack_from(">i", data, 2)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">H", data, position)
            position += 2
            name = data[position : position + length].decode()
            (count,) = struct.unpack_from(">i", data, position + length)
            position += length + 4
            found += [TopicPartition(name, each) for each in struct.unpack_from(f">{count}i", data, position)]
            position += 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


async def delete_offsets(
    bootstrap: str, node_id: int, group_id: str, topic: str, partitions: Sequence[int]
) -> None:
    asked = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
    async with Brokers(bootstrap) as brokers:
        reply = await brokers.call_node(node_id, OFFSET_DELETE, {"group_id": group_id, "topics": asked})
    _check(reply.error_code, group_id, "group")
    for entry in (entry for topic_reply in reply.topics for entry in topic_reply.partitions):
        _check(entry.error_code, group_id, "group")


def _check(code: Any, name: str, kind: str) -> None:
    if int(code) != 0:
        raise code_error(ErrorCode(int(code)).name.upper(), name=name, kind=kind)
