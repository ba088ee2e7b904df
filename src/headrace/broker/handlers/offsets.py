# SPDX-License-Identifier: Apache-2.0
"""ListOffsets 1-11, OffsetForLeaderEpoch 2-4, DeleteRecords 0-2.

Every client is served as a consumer: no offset above the high watermark (R18). Exception: for a partition
without a leader, ListOffsets with replica id -2 returns the log end offset of the local replica, which the
controller needs for an unclean election (R19b). A new leader answers "latest" with OFFSET_NOT_AVAILABLE until
its high watermark is known (R13). Without tiered storage, "latest tiered" and "earliest pending upload" are
unknown offsets.

Gaps: a look-up by timestamp reads from the disk on the event loop when the batch is not in the page cache.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.time_search import search_in_time
from headrace.broker.replication.log_ends import ANY_REPLICA, own_log_end
from headrace.broker.security.node_login import check_node
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, StorageError
from headrace.types import INTERNAL_TOPICS, NO_NODE, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock, Tasks

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_SERVED_FROM = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
_CONSUMER = -1
_UNKNOWN = -1
_HIGH_WATERMARK = -1
_POLL_INTERVAL_S = 0.01
_DELETED_CONCURRENTLY = 200


class _Found(NamedTuple):
    timestamp: int = _UNKNOWN
    offset: int = _UNKNOWN
    leader_epoch: int = _UNKNOWN


_Lookup = Callable[[str, Any], Awaitable[dict[str, Any]]]


class OffsetHandlers:
    """Handlers of ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(
        self,
        *,
        cluster: ClusterMetadata,
        partitions: Partitions,
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.LIST_OFFSETS: self.list_offsets,
            ApiKey.DELETE_RECORDS: self.delete_records,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch,
        }

    async def _result_or_error(
        self, context: RequestContext, look_up: _Lookup, name: str, entry: Any
    ) -> dict[str, Any]:
        """Reply fields of one partition; its error does not affect the other partitions."""
        try:
            return await look_up(name, entry)
        except (ApiError, StorageError, OSError) as error:
            code = _code_of(error)
        self._metrics.request_error(context.api_key, code, context.activity)
        return {"error_code": code}

    async def _wait_until_flushed(self, names: Iterable[tuple[str, int]]) -> None:
        """Wait for fsyncs in progress, so that records acknowledged with acks=1 count."""
        async for name, partition_index in yielding(names):
            partition = self._partitions.get(name, partition_index)
            if partition is not None:
                await partition.caught_up()

    # ListOffsets

    async def list_offsets(self, context: RequestContext, request: Any) -> dict[str, Any]:
        committed_only = getattr(request, "isolation_level", 0) == _READ_COMMITTED
        counts = await _count_partitions(request)
        any_replica = request.replica_id == ANY_REPLICA
        await self._wait_until_flushed(counts)

        # A replica's id gives no right here, and so needs no login: kafka-python 3 always sends 0.
        async def found(name: str, entry: Any) -> dict[str, Any]:
            if counts[name, entry.partition_index] > 1:
                raise ApiError(ErrorCode.invalid_request)
            if any_replica and entry.timestamp == LATEST and self._is_leaderless(name, entry.partition_index):
                return self._own_log_end(name, entry.partition_index)._asdict()
            return (await self._find_offset(context.api_version, name, entry, committed_only))._asdict()

        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": entry.partition_index}
                        | await self._result_or_error(context, found, topic.name, entry)
                        async for entry in yielding(topic.partitions)
                    ],
                }
                async for topic in yielding(request.topics)
            ]
        }

    def _is_leaderless(self, name: str, index: int) -> bool:
        topic = self._cluster.view.topics.get(name)
        known = topic is not None and 0 <= index < len(topic.partitions)
        return topic is not None and known and topic.partitions[index].leader == NO_NODE

    def _own_log_end(self, name: str, index: int) -> _Found:
        end = own_log_end(self._partitions, TopicPartition(name, index))
        if end is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return _Found(offset=end.log_end, leader_epoch=end.last_epoch)

    async def _find_offset(self, version: int, name: str, entry: Any, committed_only: bool) -> _Found:
        timestamp = entry.timestamp
        if timestamp < 0 and version < _SERVED_FROM.get(timestamp, 1 << 15):
            raise ApiError(ErrorCode.unsupported_version)
        partition = self._partitions.find_led(name, entry.partition_index)
        partition.check_leader_epoch(getattr(entry, "current_leader_epoch", _UNKNOWN))
        limit = partition.last_stable_offset if committed_only else partition.high_watermark
        if timestamp == LATEST:
            if not partition.role.latest_is_known:
                raise ApiError(ErrorCode.offset_not_available)
            return _Found(offset=limit, leader_epoch=partition.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = partition.log_start_offset
            return _Found(offset=start, leader_epoch=partition.epoch_at(start))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _Found()
        return await self._find_by_time(partition, timestamp, limit)

    async def _find_by_time(self, partition: Partition, timestamp: int, limit: int) -> _Found:
        if timestamp == MAX_TIMESTAMP:
            look = partition.offset_of_max_timestamp
        else:
            look = partial(partition.offset_for_timestamp, timestamp)
        found = await search_in_time(look, self._tasks.bulk)
        if found is None or found[1] >= limit:
            return _Found()
        return _Found(timestamp=found[0], offset=found[1], leader_epoch=partition.epoch_at(found[1]))

    # OffsetForLeaderEpoch

    async def offset_for_leader_epoch(self, context: RequestContext, request: Any) -> dict[str, Any]:
        async def end_of_epoch(name: str, entry: Any) -> dict[str, Any]:
            if (replica_id := getattr(request, "replica_id", _CONSUMER)) > _CONSUMER:
                check_node(self._cluster.view, context.principal, replica_id)
            partition = self._partitions.find_led(name, entry.partition)
            partition.check_leader_epoch(entry.current_leader_epoch)
            leader_epoch, end_offset = partition.end_offset_for_epoch(entry.leader_epoch)
            return {"leader_epoch": leader_epoch, "end_offset": end_offset}

        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [
                        {"partition": entry.partition}
                        | await self._result_or_error(context, end_of_epoch, topic.topic, entry)
                        async for entry in yielding(topic.partitions)
                    ],
                }
                async for topic in yielding(request.topics)
            ]
        }

    # DeleteRecords

    async def delete_records(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """A partition is done when its new log start offset is durable on every live replica.

        Only partitions that this node holds get a task: a request may name very many others.
        """
        counts = await _count_partitions(request)
        timeout_s = request.timeout.total_seconds()
        topics: list[dict[str, Any]] = []
        deletions: list[Coroutine[Any, Any, None]] = []
        async for topic in yielding(request.topics):
            results: list[dict[str, Any]] = []
            async for entry in yielding(topic.partitions):
                result = {"partition_index": entry.partition_index, "low_watermark": _UNKNOWN}
                results.append(result)
                if counts[topic.name, entry.partition_index] > 1:
                    result["error_code"] = ErrorCode.invalid_request
                    continue
                deletion = self._delete_records_in(topic.name, entry, timeout_s, result)
                if self._partitions.get(topic.name, entry.partition_index) is None:
                    await deletion  # sets the error at once
                else:
                    deletions.append(deletion)
            topics.append({"name": topic.name, "partitions": results})
        for start in range(0, len(deletions), _DELETED_CONCURRENTLY):
            await asyncio.gather(*deletions[start : start + _DELETED_CONCURRENTLY])
        async for topic_result in yielding(topics):
            async for result in yielding(topic_result["partitions"]):
                if result["error_code"] is not ErrorCode.none:
                    self._metrics.request_error(context.api_key, result["error_code"], context.activity)
        return {"topics": topics}

    async def _delete_records_in(
        self, name: str, entry: Any, timeout_s: float, result: dict[str, Any]
    ) -> None:
        """Set the low watermark and error code in the partition's part of the reply."""
        await self._wait_until_flushed([(name, entry.partition_index)])
        result["error_code"] = ErrorCode.none
        try:
            partition, offset = self._deletion(name, entry.partition_index, entry.offset)
            result["low_watermark"] = await partition.delete_records_before(offset)
            await self._wait_until_followers_deleted(partition, result["low_watermark"], timeout_s)
        except (ApiError, StorageError, OSError) as error:
            result["error_code"] = _code_of(error)

    async def _wait_until_followers_deleted(
        self, partition: Partition, offset: int, timeout_s: float
    ) -> None:
        """Followers receive the new log start offset with their next fetch. Raises ApiError."""
        if not isinstance(partition.role, LeaderRole):
            return
        deadline = self._clock.monotonic() + timeout_s
        while isinstance(role := partition.role, LeaderRole) and not role.is_deleted_below(offset):
            if self._clock.monotonic() >= deadline:
                raise ApiError(ErrorCode.request_timed_out)
            await self._tasks.sleep(_POLL_INTERVAL_S)
        if not partition.leads:
            raise ApiError(ErrorCode.not_leader_or_follower)

    def _deletion(self, name: str, partition_index: int, offset: int) -> tuple[Partition, int]:
        """The partition and the offset to delete up to, which may already be deleted. Raises ApiError."""
        if name in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.invalid_topic_exception)
        partition = self._partitions.find_led(name, partition_index)
        if "delete" not in partition.settings.log.cleanup_policy:
            raise ApiError(ErrorCode.policy_violation)
        if offset == _HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.offset_out_of_range)
        return partition, offset


def _code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.kafka_storage_error


async def _count_partitions(request: Any) -> Counter[tuple[str, int]]:
    """How often the request names each partition; one named twice is refused."""
    counts: Counter[tuple[str, int]] = Counter()
    async for topic in yielding(request.topics):  # each may have but one partition
        async for entry in yielding(topic.partitions):
            counts[topic.name, entry.partition_index] += 1
    return counts
