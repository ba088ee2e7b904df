"""A group's committed offsets: asked for and committed, with other tries while the group is changing hands.

Knows no membership beyond who the member is at the moment. Read next: coordinator.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.client.arrow.cluster import Patience
from headrace.client.arrow.group_metadata import GroupMetadata
from headrace.client.errors import ClientError
from headrace.client.membership.coordinator import (
    MOVED,
    OFFSETS_LANE,
    Coordinator,
    GroupRefused,
    is_passing,
)
from headrace.client.membership.member import by_topic
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
_NEWEST_WITH_TOPIC_NAMES = 9
_FIRST_WITH_MANY_GROUPS = 8

_SOON_OVER = MOVED | {
    ErrorCode.rebalance_in_progress,
    ErrorCode.stale_member_epoch,
    ErrorCode.unstable_offset_commit,
}
"""A rebalance or a transaction that is about to end: the next try has a newer generation."""

Who = Callable[[], GroupMetadata]
"""Asked before every try, since a rebalance changes it."""


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, who: Who, *, timeout_ms: int) -> None:
        self._coordinator = coordinator
        self._who = who
        self._timeout_ms = timeout_ms

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of those that have any. Waits for transactions that are about to commit offsets."""
        topics = [
            {"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()
        ]

        async def ask() -> dict[TopicPartition, int]:
            reply = await self._coordinator.call(
                OFFSET_FETCH,
                lambda version: self._fetch_fields(version, topics),
                lane=OFFSETS_LANE,
                newest=_NEWEST_WITH_TOPIC_NAMES,
            )
            return self._found(reply.groups[0] if hasattr(reply, "groups") else reply)

        return await self._again_and_again(ask, Patience(self._timeout_ms)) if topics else {}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        still_ours: Callable[[TopicPartition], bool] = lambda _: True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """What was committed: nothing of topics that are gone.

        `still_ours` is asked before every try: a partition may belong to another member by then.
        """

        async def ask() -> dict[TopicPartition, int]:
            ours = {each: offset for each, offset in offsets.items() if still_ours(each)}
            if ours:
                reply = await self._coordinator.call(
                    OFFSET_COMMIT,
                    self._commit_fields(ours),
                    lane=OFFSETS_LANE,
                    newest=_NEWEST_WITH_TOPIC_NAMES,
                )
                ours = self._taken(reply, ours)
            return ours

        patience = Patience(self._timeout_ms if timeout_ms is None else timeout_ms)
        return await self._again_and_again(ask, patience)

    async def _again_and_again(self, ask: Callable[[], Any], patience: Patience) -> dict[TopicPartition, int]:
        while True:
            try:
                return dict(await ask())
            except ClientError as error:
                soon_over = isinstance(error, GroupRefused) and error.error_code in _SOON_OVER
                if not soon_over and not is_passing(error):
                    raise
                await patience.wait(error)

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
        if refusal := self._coordinator.refusal(getattr(answer, "error_code", 0)):
            raise refusal
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
            if refusal := self._coordinator.refusal(entry.error_code):
                raise refusal


def _entry(partition: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
