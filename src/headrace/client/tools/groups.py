# SPDX-License-Identifier: Apache-2.0
"""Consumer groups of any Kafka cluster: members, committed offsets, resetting and deleting.

Ends of logs, commits and deletion go through confluent-kafka (admin.py), the rest asks the coordinators
(group_calls.py). What the offsets mean is lag.py's. Read next: group_report.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error, code_error
from headrace.client.tools.admin import DEFAULT_TIMEOUT_MS, Admin, OffsetSpec
from headrace.client.tools.brokers import run
from headrace.client.tools.group_calls import (
    GroupDescription,
    GroupListing,
    GroupMember,
    committed_offsets,
    delete_offsets,
    describe_groups,
    list_groups,
    with_retries,
)
from headrace.client.tools.reset import Offsets, Strategy
from headrace.types import TopicPartition

__all__ = [
    "STATES",
    "TYPES",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Groups",
]

STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
TYPES = ("classic", "consumer")

_GONE = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"}


class Groups(Admin):
    """Every method raises ClientError, and nothing else, when the cluster fails or refuses it."""

    def __init__(self, bootstrap: str | Cluster, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        super().__init__(bootstrap, timeout_ms=timeout_ms)
        self._bootstrap = bootstrap

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Sorted by name. Filtered here, so that older brokers, which cannot, answer alike."""
        found = run(with_retries(lambda: list_groups(self._bootstrap)))
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
        """By group id; those deleted meanwhile are missing."""
        asked = list(groups)
        return run(with_retries(lambda: describe_groups(self._bootstrap, asked)))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Every offset that a group has committed."""
        return run(with_retries(lambda: committed_offsets(self._bootstrap, {group_id: None})))[group_id]

    def committed_by(self, groups: Iterable[GroupListing]) -> dict[str, dict[TopicPartition, int]]:
        """The same of many groups, by group id."""
        coordinators = {group.group_id: group.node_id for group in groups}
        return run(with_retries(lambda: committed_offsets(self._bootstrap, coordinators)))

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

    def offsets_for_reset(
        self,
        strategy: Strategy,
        partitions: Iterable[TopicPartition],
        committed: Mapping[TopicPartition, int],
    ) -> Offsets:
        """What `reset.plan_changes` needs to know."""
        ends = self.ends(partitions)
        at_time: dict[TopicPartition, int] = {}
        if strategy.kind == "time":
            found = self.ends(ends, strategy.value)
            at_time = {where: found[where] if found.get(where, -1) >= 0 else ends[where] for where in ends}
        starts = self.ends(ends, "earliest")
        return Offsets(committed=committed, starts=starts, ends=ends, at_time=at_time)

    def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits for the group. The broker refuses while it has members."""
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
        """Deletes the group's offsets of a topic; returns the number of partitions."""
        node_id = self.describe_group(group_id).node_id
        held = self.committed(group_id)
        partitions = [partition for name, partition in held if name == topic]
        if not partitions:
            raise ClientError(
                f"group {group_id!r} has committed nothing for topic {topic!r}",
                next_step=f"see what it has: headrace groups describe {group_id}",
            )
        run(delete_offsets(self._bootstrap, node_id, group_id, topic, partitions))
        return len(partitions)

    def _answer(self, futures: Mapping[Any, Any], name: str, kind: str) -> Any:
        """Of a question that is under way already."""
        return self._one(lambda: futures, name, kind)
