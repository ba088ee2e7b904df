"""A query's progress as a consumer group: memberless commits that every lag tool sees.

Commits follow Spark's own commit log, never run ahead of it, and never fail a query: what fails is counted
and tried again at the next trigger. Read next: planner.py (when), survey.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from headrace.client.arrow.bounds import TryAgain
from headrace.client.arrow.cluster import GROUP, Cluster, find_coordinator
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.offsets import Offsets
from pyspark_headrace.patience import patiently

OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE = 8, 9, 15, 69
_NEWEST_WITH_TOPIC_NAMES = 9
"""Of OffsetCommit and OffsetFetch: from version 10 on they name topics by their ids alone."""
_PATIENCE_MS = 5_000
_NO_GENERATION = -1

T = TypeVar("T")
_log = logging.getLogger("pyspark_headrace")


class GroupProgress:
    """Of one group. `failures` counts the commits that did not get through."""

    def __init__(self, cluster: Cluster, group: str, *, patience_ms: int = _PATIENCE_MS) -> None:
        self._cluster = cluster
        self._group = group
        self._patience_ms = patience_ms
        self._committed: Offsets | None = None
        self.failures = 0

    async def refuse_members(self) -> None:
        """ClientError names whoever is in the group: their commits and ours would overwrite each other."""
        members = await self._patiently(self._members)
        if members:
            raise ClientError(
                f"group {self._group!r} has members: {', '.join(members)}",
                next_step="stop them, or give the query a group of its own",
                code="NON_EMPTY_GROUP",
            )

    async def committed(self) -> Mapping[TopicPartition, int]:
        return await self._patiently(self._fetch)

    async def commit(self, done: Offsets) -> None:
        """`done`: up to where Spark has committed. Never raises."""
        if done == self._committed or not done.topics:
            return
        try:
            await self._patiently(lambda: self._commit(done))
        except ClientError as error:
            self.failures += 1
            _log.warning("group %r was not told how far the query is: %s", self._group, error)
        else:
            self._committed = done

    # -- private -------------------------------------------------------------------------------------------

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Coordinators move, and a cluster's first group has to wait for the topic of groups."""
        return await patiently(ask, timeout_ms=self._patience_ms)

    async def _coordinator(self) -> Connection:
        node_id, code = await find_coordinator(self._cluster, GROUP, self._group)
        self._check(code)
        return await self._cluster.connection(node_id)

    async def _members(self) -> list[str]:
        connection = await self._coordinator()
        found: list[Any] = []
        if CONSUMER_GROUP_DESCRIBE in connection.versions:
            reply = await connection.call(CONSUMER_GROUP_DESCRIBE, {"group_ids": [self._group]})
            found = self._members_of(reply)
        if not found:
            found = self._members_of(await connection.call(DESCRIBE_GROUPS, {"groups": [self._group]}))
        return sorted(
            f"{member.client_id} at {str(member.client_host).removeprefix('/')}" for member in found
        )

    def _members_of(self, reply: Any) -> list[Any]:
        (group,) = reply.groups
        if int(group.error_code) == ErrorCode.group_id_not_found:
            return []
        self._check(group.error_code)
        return list(group.members)

    async def _fetch(self) -> Mapping[TopicPartition, int]:
        connection = await self._coordinator()
        version = min(connection.version_for(OFFSET_FETCH), _NEWEST_WITH_TOPIC_NAMES)
        all_topics = {"group_id": self._group, "topics": None}
        fields = {**all_topics, "groups": [all_topics]}
        reply = await connection.call(OFFSET_FETCH, fields, version=version)
        answer = reply.groups[0] if hasattr(reply, "groups") else reply
        self._check(getattr(answer, "error_code", 0))
        return {
            TopicPartition(str(topic.name), int(entry.partition_index)): int(entry.committed_offset)
            for topic in answer.topics
            for entry in topic.partitions
            if int(entry.error_code) == 0 and int(entry.committed_offset) >= 0
        }

    async def _commit(self, done: Offsets) -> None:
        connection = await self._coordinator()
        version = min(connection.version_for(OFFSET_COMMIT), _NEWEST_WITH_TOPIC_NAMES)
        fields = {
            "group_id": self._group,
            "generation_id_or_member_epoch": _NO_GENERATION,
            "member_id": "",
            "topics": [
                {
                    "name": topic,
                    "partitions": [_entry(done.query, number, at) for number, at in held.partitions.items()],
                }
                for topic, held in done.topics.items()
            ],
        }
        reply = await connection.call(OFFSET_COMMIT, fields, version=version)
        for entry in (entry for topic in reply.topics for entry in topic.partitions):
            self._check(entry.error_code)

    def _check(self, error_code: Any) -> None:
        code = ErrorCode(int(error_code))
        if code is ErrorCode.unknown_member_id:
            raise ClientError(f"group {self._group!r} has members now, and only they may commit for it")
        if code is not ErrorCode.none:
            raise TryAgain(f"group {self._group!r}: {code.name}", code)


def _entry(query: str, partition: int, position: Any) -> dict[str, Any]:
    metadata = {"batchEnd": position.offset, "query": query}
    return {
        "partition_index": partition,
        "committed_offset": position.offset,
        "committed_leader_epoch": position.epoch,
        "committed_metadata": json.dumps(metadata, separators=(",", ":")),
    }
