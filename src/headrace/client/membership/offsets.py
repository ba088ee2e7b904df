# SPDX-License-Identifier: Apache-2.0
"""Fetches and commits a group's offsets, with retries during rebalances and coordinator moves.

Read next: ../coordinator.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from headrace.client.coordinator import OFFSETS_LANE, Coordinator, retry_while_coordinator_moves
from headrace.client.membership.group_metadata import GroupMetadata
from headrace.client.membership.member import by_topic
from headrace.client.retry import Backoff
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NEWEST_WITH_TOPIC_NAMES = 9
_FIRST_WITH_MANY_GROUPS = 8

_ALSO_RETRIED = frozenset(
    {
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
        ErrorCode.unstable_offset_commit,
    }
)
"""Besides a moved coordinator: a rebalance or a transaction that is about to end."""

Who = Callable[[], GroupMetadata]
"""Called before every attempt, since a rebalance changes it."""


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, who: Who, *, timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._who = who
        self._timeout_ms = timeout_ms

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets of those partitions that have one. Waits for pending transactional commits."""
        topics = [
            {"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()
        ]

        async def ask() -> dict[TopicPartition, int]:
            reply = await self._coordinator.call(
                ApiKey.OFFSET_FETCH,
                lambda version: self._fetch_fields(version, topics),
                lane=OFFSETS_LANE,
                newest=_NEWEST_WITH_TOPIC_NAMES,
            )
            return self._found(reply.groups[0] if hasattr(reply, "groups") else reply)

        return await self._retry(ask, self._timeout_ms) if topics else {}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        still_ours: Callable[[TopicPartition], bool] = lambda _: True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """The offsets that were committed: none of deleted topics.

        `still_ours` is called before every attempt: another member may own the partition by then.
        """

        async def ask() -> dict[TopicPartition, int]:
            ours = {each: offset for each, offset in offsets.items() if still_ours(each)}
            if ours:
                reply = await self._coordinator.call(
                    ApiKey.OFFSET_COMMIT,
                    self._commit_fields(ours),
                    lane=OFFSETS_LANE,
                    newest=_NEWEST_WITH_TOPIC_NAMES,
                )
                ours = self._taken(reply, ours)
            return ours

        return await self._retry(ask, self._timeout_ms if timeout_ms is None else timeout_ms)

    async def _retry(
        self, ask: Callable[[], Awaitable[dict[TopicPartition, int]]], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        return await retry_while_coordinator_moves(ask, Backoff(timeout_ms), also=_ALSO_RETRIED)

    def _fetch_fields(self, version: int, topics: list[dict[str, Any]]) -> dict[str, Any]:
        who = self._who()
        if version < _FIRST_WITH_MANY_GROUPS:
            return {"group_id": who.group, "topics": topics, "require_stable": True}
        member = {"member_id": who.member_id or None, "member_epoch": who.generation}
        return {"groups": [{"group_id": who.group, "topics": topics, **member}], "require_stable": True}

    def _commit_fields(self, offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
        who = self._who()
        return {
            "group_id": who.group,
            "generation_id_or_member_epoch": who.generation,
            "member_id": who.member_id,
            "group_instance_id": who.instance_id,
            "topics": [
                {"name": name, "partitions": [_entry(n, offsets[TopicPartition(name, n)]) for n in numbers]}
                for name, numbers in by_topic(offsets).items()
            ],
        }

    def _found(self, answer: Any) -> dict[TopicPartition, int]:
        if error := self._coordinator.error_of(getattr(answer, "error_code", 0)):
            raise error
        self._check(entry for topic in answer.topics for entry in topic.partitions)
        return {
            TopicPartition(str(topic.name), int(entry.partition_index)): int(entry.committed_offset)
            for topic in answer.topics
            for entry in topic.partitions
            if int(entry.committed_offset) >= 0
        }

    def _taken(self, reply: Any, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        entries = {
            TopicPartition(str(topic.name), int(entry.partition_index)): entry
            for topic in reply.topics
            for entry in topic.partitions
        }
        there = {
            each: entry
            for each, entry in entries.items()
            if int(entry.error_code) != ErrorCode.unknown_topic_or_partition
        }
        self._check(there.values())
        return {each: offsets[each] for each in there}

    def _check(self, entries: Iterable[Any]) -> None:
        for entry in entries:
            if error := self._coordinator.error_of(entry.error_code):
                raise error


def _entry(partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
