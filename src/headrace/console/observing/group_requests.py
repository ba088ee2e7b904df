# SPDX-License-Identifier: Apache-2.0
"""Groups from their coordinators: one request each to list, describe and fetch offsets of all of a node's.

What a member's assignment means is group_calls.py's. Read next: state/group_folding.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.client.tools.group_calls import read_assignment
from headrace.console.observing.broker_calls import BrokerCalls, of_each
from headrace.console.state.model import GroupState, MemberState
from headrace.console.state.polls import GroupsPoll
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from headrace.wire.error_codes import ErrorCode

_NEWEST_WITH_TOPIC_NAMES = 9
"""From version 10 on, OffsetFetch names topics by their ids alone."""
_MANY_GROUPS_FROM = 8
MOST_GROUPS = 5_000


async def ask_groups(calls: BrokerCalls, node_ids: Iterable[int]) -> GroupsPoll:
    """Every group with its members. Raises ClientError when all nodes refuse the list."""
    answers = await of_each(node_ids, lambda node_id: _list(calls, node_id))
    failures = {node_id: answer for node_id, answer in answers.items() if isinstance(answer, ClientError)}
    if failures and len(failures) == len(answers):
        raise next(iter(failures.values()))
    listed = [group for answer in answers.values() if not isinstance(answer, ClientError) for group in answer]
    groups = {group.group_id: group for group in listed[:MOST_GROUPS]}
    groups |= await describe(calls, groups)
    return GroupsPoll(groups=groups, silent=frozenset(failures))


async def _list(calls: BrokerCalls, node_id: int) -> list[GroupState]:
    reply = await calls.node(node_id, ApiKey.LIST_GROUPS, {})
    _check(reply.error_code, "")
    return [
        GroupState(
            group_id=str(group.group_id),
            group_type=_type(group),
            state=str(getattr(group, "group_state", "")),
            coordinator=node_id,
        )
        for group in reply.groups
    ]


def _type(group: Any) -> str:
    """classic or consumer; others (Connect's, share groups) by their own names."""
    kind = str(getattr(group, "group_type", "") or "classic").lower()
    protocol = str(group.protocol_type)
    return protocol if kind == "classic" and protocol not in ("", PROTOCOL_TYPE) else kind


async def describe(calls: BrokerCalls, groups: Mapping[str, GroupState]) -> dict[str, GroupState]:
    """The groups with members; those whose coordinator moved or does not answer are missing."""
    nodes = {group.coordinator for group in groups.values() if group.coordinator is not None}
    answers = await of_each(nodes, lambda node_id: _describe_at(calls, node_id, groups.values()))
    found: dict[str, GroupState] = {}
    for answer in answers.values():
        if not isinstance(answer, ClientError):
            found.update(answer)
    return found


async def _describe_at(
    calls: BrokerCalls, node_id: int, groups: Collection[GroupState]
) -> dict[str, GroupState]:
    here = [group for group in groups if group.coordinator == node_id]
    new = [group.group_id for group in here if group.group_type == "consumer"]
    other = [group.group_id for group in here if group.group_type not in ("consumer", "share", "streams")]
    found: dict[str, GroupState] = {}
    if new:
        reply = await calls.node(node_id, ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": new})
        found |= {str(each.group_id): _new(node_id, each) for each in reply.groups if _is_there(each)}
    if other:
        reply = await calls.node(node_id, ApiKey.DESCRIBE_GROUPS, {"groups": other})
        found |= {str(each.group_id): _classic(node_id, each) for each in reply.groups if _is_there(each)}
    return found


def _is_there(group: Any) -> bool:
    return int(group.error_code) == 0 and str(group.group_state) != "Dead"


def _classic(node_id: int, group: Any) -> GroupState:
    protocol = str(group.protocol_type)
    readable = protocol in ("", PROTOCOL_TYPE)
    return GroupState(
        group_id=str(group.group_id),
        group_type="classic" if readable else protocol,
        state=str(group.group_state),
        assignor=str(group.protocol_data),
        coordinator=node_id,
        members=_ordered(
            MemberState(
                member_id=str(each.member_id),
                instance_id=getattr(each, "group_instance_id", None),
                client_id=str(each.client_id),
                host=str(each.client_host).removeprefix("/"),
                assigned=read_assignment(bytes(each.member_assignment)) if readable else (),
                subscribed=tuple(sorted(subscribed_topics(bytes(each.member_metadata)) or ()))
                if readable
                else (),
            )
            for each in group.members
        ),
    )


def _new(node_id: int, group: Any) -> GroupState:
    return GroupState(
        group_id=str(group.group_id),
        group_type="consumer",
        state=str(group.group_state),
        assignor=str(group.assignor_name),
        epoch=int(group.group_epoch),
        coordinator=node_id,
        members=_ordered(
            MemberState(
                member_id=str(each.member_id),
                instance_id=each.instance_id,
                client_id=str(each.client_id),
                host=str(each.client_host).removeprefix("/"),
                assigned=tuple(
                    sorted(
                        TopicPartition(str(topic.topic_name), int(partition))
                        for topic in each.assignment.topic_partitions
                        for partition in topic.partitions
                    )
                ),
                subscribed=tuple(map(str, each.subscribed_topic_names)),
            )
            for each in group.members
        ),
    )


def _ordered(members: Iterable[MemberState]) -> tuple[MemberState, ...]:
    return tuple(sorted(members, key=lambda each: (each.client_id, each.instance_id or each.member_id)))


async def ask_committed(
    calls: BrokerCalls, groups: Iterable[GroupState]
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of groups; those whose coordinator does not answer are missing."""
    by_node: dict[int, list[str]] = {}
    for group in groups:
        if group.coordinator is not None and group.group_type != "share":
            by_node.setdefault(group.coordinator, []).append(group.group_id)
    answers = await of_each(by_node, lambda node_id: _committed_at(calls, node_id, by_node[node_id]))
    found: dict[str, dict[TopicPartition, int]] = {}
    for answer in answers.values():
        if not isinstance(answer, ClientError):
            found.update(answer)
    return found


async def _committed_at(
    calls: BrokerCalls, node_id: int, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    if await calls.version(node_id, ApiKey.OFFSET_FETCH) < _MANY_GROUPS_FROM:
        return {group: await _committed_of(calls, node_id, group) for group in groups}
    fields = {"groups": [{"group_id": group, "topics": None} for group in groups]}
    reply = await calls.node(node_id, ApiKey.OFFSET_FETCH, fields, newest=_NEWEST_WITH_TOPIC_NAMES)
    return {str(answer.group_id): _offsets(answer) for answer in reply.groups if int(answer.error_code) == 0}


async def _committed_of(calls: BrokerCalls, node_id: int, group: str) -> dict[TopicPartition, int]:
    """From brokers older than Apache Kafka 3.0, which answer for one group at a time."""
    reply = await calls.node(node_id, ApiKey.OFFSET_FETCH, {"group_id": group, "topics": None})
    return _offsets(reply)


def _offsets(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(str(topic.name), int(each.partition_index)): int(each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
        if int(each.error_code) == 0 and int(each.committed_offset) >= 0
    }


def _check(code: Any, name: str) -> None:
    if int(code) != 0:
        raise code_error(ErrorCode(int(code)).name.upper(), name=name, kind="cluster")
