"""Consumer groups of any Kafka cluster: who is in them, what they committed, resetting and deleting.

Offsets and deletion go through confluent-kafka (admin.py). Listing and describing ask the nodes themselves
(brokers.py): librdkafka knows neither the newer states nor groups of other protocol types, and cannot delete
offsets. What the offsets mean is lag.py's. Read next: group_report.py.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.admin import Admin, OffsetSpec
from headrace.client.brokers import Brokers, run
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error, code_error
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE = 15, 16, 47, 69

STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
TYPES = ("classic", "consumer")
CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers; Connect's and others' assignments are their own business."""

_GONE = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}


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


class Groups(Admin):
    """Every method raises ClientError, and nothing else, when the cluster cannot or will not do it."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._bootstrap = bootstrap

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Sorted by name. Filtered here, so that older brokers, which cannot, answer alike."""
        found = run(_list_groups(self._bootstrap))
        wanted_states, wanted_types = ({name.lower() for name in names} for names in (states, types))
        return [
            group
            for group in sorted(found, key=lambda group: group.group_id)
            if (not states or group.state.lower() in wanted_states)
            and (not types or group.group_type.lower() in wanted_types)
        ]

    def find_group(self, group_id: str) -> GroupDescription | None:
        listed = [group for group in self.list_groups() if group.group_id == group_id]
        return self.describe_groups(listed).get(group_id)

    def describe_group(self, group_id: str) -> GroupDescription:
        found = self.find_group(group_id)
        if found is None:
            raise code_error("GROUP_ID_NOT_FOUND", name=group_id, kind="group")
        return found

    def describe_groups(self, groups: Iterable[GroupListing]) -> dict[str, GroupDescription]:
        """By group id; those that ended meanwhile are missing."""
        return run(_describe_groups(self._bootstrap, list(groups)))

    def committed(self, group_ids: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        """Every offset that each group has committed. All groups are asked at once."""
        requests = [self._kafka.ConsumerGroupTopicPartitions(group_id) for group_id in group_ids]
        futures = {
            request.group_id: self._client.list_consumer_group_offsets(
                [request], request_timeout=self._timeout_s
            )
            for request in requests
        }
        answers = {
            group_id: self._answer(asked, group_id, "group") for group_id, asked in futures.items()
        }
        return {
            group_id: {
                TopicPartition(entry.topic, entry.partition): int(entry.offset)
                for entry in sorted(answer.topic_partitions, key=lambda e: (e.topic, e.partition))
                if entry.error is None and entry.offset >= 0
            }
            for group_id, answer in answers.items()
        }

    def ends(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec = "latest"
    ) -> dict[TopicPartition, int]:
        """Offsets of partitions of many topics; those of deleted topics are missing."""
        asked = {self._kafka.TopicPartition(*partition): self._spec(spec) for partition in set(partitions)}
        if not asked:
            return {}
        found = {}
        for key, future in self._client.list_offsets(asked, request_timeout=self._timeout_s).items():
            try:
                answer = self._answer({key: future}, key.topic, "topic")
            except ClientError as error:
                if error.code not in _GONE:
                    raise
                continue
            found[TopicPartition(key.topic, key.partition)] = int(answer.offset)
        return found

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits in the name of the group. The broker refuses while anybody is in it."""
        entries = [self._kafka.TopicPartition(*where, offset) for where, offset in offsets.items()]
        request = self._kafka.ConsumerGroupTopicPartitions(group_id, entries)
        answer = self._one(
            lambda: self._client.alter_consumer_group_offsets([request], request_timeout=self._timeout_s),
            group_id,
            "group",
        )
        for entry in answer.topic_partitions:
            if entry.error is not None:
                raise client_error(entry.error, name=group_id, kind="group")

    def delete_group(self, group_id: str) -> None:
        self._one(
            lambda: self._client.delete_consumer_groups([group_id], request_timeout=self._timeout_s),
            group_id,
            "group",
        )

    def delete_offsets(self, group_id: str, topic: str) -> int:
        """Forgets what the group committed for a topic; how many partitions that were."""
        node_id = self.describe_group(group_id).node_id
        held = self.committed([group_id])[group_id]
        partitions = [partition for name, partition in held if name == topic]
        if not partitions:
            raise ClientError(
                f"group {group_id!r} has committed nothing for topic {topic!r}",
                next_step=f"see what it has: headrace groups describe {group_id}",
            )
        run(_delete_offsets(self._bootstrap, node_id, group_id, topic, partitions))
        return len(partitions)

    def _answer(self, futures: Mapping[Any, Any], name: str, kind: str) -> Any:
        """Of a question that is under way already."""
        return self._one(lambda: futures, name, kind)


async def _list_groups(bootstrap: str) -> list[GroupListing]:
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


async def _describe_groups(bootstrap: str, groups: list[GroupListing]) -> dict[str, GroupDescription]:
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


async def _delete_offsets(
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
