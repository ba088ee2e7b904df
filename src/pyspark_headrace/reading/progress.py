# SPDX-License-Identifier: Apache-2.0
"""Commits a query's offsets to a consumer group, so that lag tools see its progress.

Commits follow Spark's own commit log, never run ahead of it, and never fail a query: failures are counted
and retried at the next trigger. Read next: planner.py (when), offset_lookup.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from headrace.client.connection import Connection
from headrace.client.coordinator import CoordinatorType, find_coordinator
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.retry import Backoff, retry
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.reading.offsets import Offsets

_NEWEST_WITH_TOPIC_NAMES = 9
"""OffsetCommit and OffsetFetch identify topics by id only from version 10 on."""
_TIMEOUT_MS = 5_000
_NO_GENERATION = -1

T = TypeVar("T")
_log = logging.getLogger("pyspark_headrace")


class GroupProgress:
    """Offsets of one group, committed without membership. `failures` counts failed commits."""

    def __init__(self, client: NetworkClient, group: str, *, timeout_ms: int = _TIMEOUT_MS) -> None:
        self._client = client
        self._group = group
        self._timeout_ms = timeout_ms
        self._committed: Offsets | None = None
        self.failures = 0

    async def check_no_members(self) -> None:
        """Raise ClientError when the group has members: their commits and ours would overwrite each other."""
        members = await self._with_retries(self._members)
        if members:
            raise ClientError(
                f"group {self._group!r} has members: {', '.join(members)}",
                next_step="stop them, or use another group for the query",
                code="NON_EMPTY_GROUP",
            )

    async def committed(self) -> Mapping[TopicPartition, int]:
        found = await self._with_retries(self._fetch)
        return {place: int(entry.committed_offset) for place, entry in found.items()}

    async def other_query(self, query: str) -> str | None:
        """The id of another query whose offsets the group has; None: of none. Never raises."""
        try:
            entries = (await self._with_retries(self._fetch)).values()
        except ClientError as error:
            _log.warning("the offsets of group %r were not read: %s", self._group, error)
            return None
        others = {_query_of(entry) for entry in entries} - {None, query}
        return min(filter(None, others), default=None)

    async def commit(self, done: Offsets) -> None:
        """Commit the offsets that Spark has committed. Never raises."""
        if done == self._committed or not done.topics:
            return
        try:
            await self._with_retries(lambda: self._commit(done))
        except ClientError as error:
            self.failures += 1
            _log.warning("offsets of the query were not committed to group %r: %s", self._group, error)
        else:
            self._committed = done

    # -- private -------------------------------------------------------------------------------------------

    async def _with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry: coordinators move, and the first group waits for __consumer_offsets to be created."""
        return await retry(ask, Backoff(self._timeout_ms).wait)

    async def _coordinator(self) -> Connection:
        node_id, code = await find_coordinator(self._client, CoordinatorType.GROUP, self._group)
        self._check(code)
        return await self._client.connection(node_id)

    async def _members(self) -> list[str]:
        connection = await self._coordinator()
        found: list[Any] = []
        if ApiKey.CONSUMER_GROUP_DESCRIBE in connection.versions:
            reply = await connection.call(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [self._group]})
            found = self._members_of(reply)
        if not found:
            found = self._members_of(await connection.call(ApiKey.DESCRIBE_GROUPS, {"groups": [self._group]}))
        return sorted(
            f"{member.client_id} at {str(member.client_host).removeprefix('/')}" for member in found
        )

    def _members_of(self, reply: Any) -> list[Any]:
        (group,) = reply.groups
        if int(group.error_code) == ErrorCode.group_id_not_found:
            return []
        self._check(group.error_code)
        return list(group.members)

    async def _fetch(self) -> Mapping[TopicPartition, Any]:
        """The entries of the reply for partitions with an offset."""
        connection = await self._coordinator()
        version = min(connection.version_for(ApiKey.OFFSET_FETCH), _NEWEST_WITH_TOPIC_NAMES)
        all_topics = {"group_id": self._group, "topics": None}
        fields = {**all_topics, "groups": [all_topics]}
        reply = await connection.call(ApiKey.OFFSET_FETCH, fields, version=version)
        answer = reply.groups[0] if hasattr(reply, "groups") else reply
        self._check(getattr(answer, "error_code", 0))
        return {
            TopicPartition(str(topic.name), int(entry.partition_index)): entry
            for topic in answer.topics
            for entry in topic.partitions
            if int(entry.error_code) == 0 and int(entry.committed_offset) >= 0
        }

    async def _commit(self, done: Offsets) -> None:
        connection = await self._coordinator()
        version = min(connection.version_for(ApiKey.OFFSET_COMMIT), _NEWEST_WITH_TOPIC_NAMES)
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
        reply = await connection.call(ApiKey.OFFSET_COMMIT, fields, version=version)
        for entry in (entry for topic in reply.topics for entry in topic.partitions):
            self._check(entry.error_code)

    def _check(self, error_code: Any) -> None:
        code = ErrorCode(int(error_code))
        if code is ErrorCode.unknown_member_id:
            raise ClientError(f"group {self._group!r} has members now, so only members can commit")
        if code is not ErrorCode.none:
            raise BrokerError(f"group {self._group!r}: {code.name}", code)


def _query_of(entry: Any) -> str | None:
    """From the metadata of `_entry`; None: another program has committed it."""
    try:
        return str(json.loads(str(entry.metadata))["query"])
    except (ValueError, KeyError, TypeError):
        return None


def _entry(query: str, partition: int, position: Any) -> dict[str, Any]:
    metadata = {"batchEnd": position.offset, "query": query}
    return {
        "partition_index": partition,
        "committed_offset": position.offset,
        "committed_leader_epoch": position.epoch,
        "committed_metadata": json.dumps(metadata, separators=(",", ":")),
    }
