"""ListOffsets 1-11, OffsetForLeaderEpoch 2-4, DeleteRecords 0-2: where a partition begins and ends.

Everybody is answered as a consumer (R18). Only where nobody leads, replica id -2 asks a replica how far its
log reaches: the controller chooses by it (R19b). A new leader that does not know yet what is committed has no
latest offset (R13).
Nothing is tiered, so "latest tiered" and "earliest pending upload" are unknown offsets.
Gap: a time look-up waits for the disk on the event loop when the batch it finds is cold.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.context import Handler, RequestContext
from headrace.broker.leading import leading_partition
from headrace.broker.log_ends import ANY_REPLICA, own_log_end
from headrace.broker.time_search import search_in_time
from headrace.broker.turns import in_turns
from headrace.errors import ApiError, StorageError
from headrace.types import INTERNAL_TOPICS, NO_NODE, TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker
    from headrace.broker.partition import Partition

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
_UNKNOWN = -1
_HIGH_WATERMARK = -1
_LOOK_AGAIN_S = 0.01


class _Found(NamedTuple):
    timestamp: int = _UNKNOWN
    offset: int = _UNKNOWN
    leader_epoch: int = _UNKNOWN


_Answer = Callable[[str, Any], Awaitable[dict[str, Any]]]


async def _answered(
    broker: Broker, context: RequestContext, answer: _Answer, name: str, asked: Any
) -> dict[str, Any]:
    """One partition's part of a reply: its own error does not spoil the others."""
    try:
        return await answer(name, asked)
    except (ApiError, StorageError, OSError) as error:
        code = _code_of(error)
    broker.metrics.request_error(context.api_key, code)
    return {"error_code": code}


def _code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.kafka_storage_error


async def _caught_up(broker: Broker, asked: Iterable[tuple[str, int]]) -> None:
    """What an acks=1 producer was told is written counts, although its fsync may be under way."""
    async for name, partition_index in in_turns(asked):
        partition = broker.partitions.get(name, partition_index)
        if partition is not None:
            await partition.caught_up()


# ListOffsets


async def list_offsets(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    committed_only = getattr(request, "isolation_level", 0) == _READ_COMMITTED
    times_asked = Counter(
        (topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions
    )

    any_replica = request.replica_id == ANY_REPLICA
    await _caught_up(broker, times_asked)

    async def found(name: str, asked: Any) -> dict[str, Any]:
        if times_asked[name, asked.partition_index] > 1:
            raise ApiError(ErrorCode.invalid_request)
        if any_replica and asked.timestamp == LATEST and _has_no_leader(broker, name, asked.partition_index):
            return _end_of_replica(broker, name, asked.partition_index)._asdict()
        return (await _find_offset(broker, context.api_version, name, asked, committed_only))._asdict()

    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": asked.partition_index}
                    | await _answered(broker, context, found, topic.name, asked)
                    async for asked in in_turns(topic.partitions)
                ],
            }
            async for topic in in_turns(request.topics)
        ]
    }


def _has_no_leader(broker: Broker, name: str, index: int) -> bool:
    topic = broker.cluster.view.topics.get(name)
    known = topic is not None and 0 <= index < len(topic.partitions)
    return topic is not None and known and topic.partitions[index].leader == NO_NODE


def _end_of_replica(broker: Broker, name: str, index: int) -> _Found:
    end = own_log_end(broker, TopicPartition(name, index))
    if end is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition)
    return _Found(offset=end.log_end, leader_epoch=end.last_epoch)


async def _find_offset(broker: Broker, version: int, name: str, asked: Any, committed_only: bool) -> _Found:
    timestamp = asked.timestamp
    if timestamp < 0 and version < _SERVED_FROM.get(timestamp, 1 << 15):
        raise ApiError(ErrorCode.unsupported_version)
    partition = leading_partition(broker, name, asked.partition_index)
    partition.check_leader_epoch(getattr(asked, "current_leader_epoch", _UNKNOWN))
    limit = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        if partition.leading is not None and not partition.leading.machine.latest_is_known:
            raise ApiError(ErrorCode.offset_not_available)
        return _Found(offset=limit, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = partition.log_start_offset
        return _Found(offset=start, leader_epoch=partition.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _Found()
    return await _find_by_time(broker, partition, timestamp, limit)


async def _find_by_time(broker: Broker, partition: Partition, timestamp: int, limit: int) -> _Found:
    if timestamp == MAX_TIMESTAMP:
        look = partition.offset_of_max_timestamp
    else:
        look = partial(partition.offset_for_timestamp, timestamp)
    found = await search_in_time(look, broker.world.tasks.bulk)
    if found is None or found[1] >= limit:
        return _Found()
    return _Found(timestamp=found[0], offset=found[1], leader_epoch=partition.epoch_at(found[1]))


# OffsetForLeaderEpoch


async def offset_for_leader_epoch(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    async def end_of_epoch(name: str, asked: Any) -> dict[str, Any]:
        partition = leading_partition(broker, name, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        leader_epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
        return {"leader_epoch": leader_epoch, "end_offset": end_offset}

    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition": asked.partition}
                    | await _answered(broker, context, end_of_epoch, topic.topic, asked)
                    async for asked in in_turns(topic.partitions)
                ],
            }
            async for topic in in_turns(request.topics)
        ]
    }


# DeleteRecords


async def delete_records(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    """A partition is answered when its new start would survive a crash, on every live replica."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": await asyncio.gather(
                    *(
                        _delete_in_partition(broker, context, topic.name, asked, request.timeout)
                        for asked in topic.partitions
                    )
                ),
            }
            for topic in request.topics
        ]
    }


async def _delete_in_partition(
    broker: Broker, context: RequestContext, name: str, asked: Any, timeout: timedelta
) -> dict[str, Any]:
    low_watermark, code = _UNKNOWN, ErrorCode.none
    await _caught_up(broker, [(name, asked.partition_index)])
    try:
        partition, offset = _deletion(broker, name, asked.partition_index, asked.offset)
        low_watermark = await partition.delete_records_before(offset)
        await _deleted_by_all(broker, partition, low_watermark, timeout.total_seconds())
    except (ApiError, StorageError, OSError) as error:
        code = _code_of(error)
        broker.metrics.request_error(context.api_key, code)
    return {
        "partition_index": asked.partition_index,
        "low_watermark": low_watermark,
        "error_code": code,
    }


async def _deleted_by_all(broker: Broker, partition: Partition, offset: int, within_s: float) -> None:
    """Followers hear of the new start with their next fetch. Raises ApiError."""
    if partition.leading is None:
        return
    deadline = broker.world.clock.monotonic() + within_s
    while (leading := partition.leading) is not None and leading.machine.low_watermark < offset:
        if broker.world.clock.monotonic() >= deadline:
            raise ApiError(ErrorCode.request_timed_out)
        await broker.world.tasks.sleep(_LOOK_AGAIN_S)
    if not partition.leads:
        raise ApiError(ErrorCode.not_leader_or_follower)


def _deletion(broker: Broker, name: str, partition_index: int, offset: int) -> tuple[Partition, int]:
    """Where to delete and below which offset; asking for what is gone already is fine."""
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.invalid_topic_exception)
    partition = leading_partition(broker, name, partition_index)
    if "delete" not in partition.settings.log.cleanup_policy:
        raise ApiError(ErrorCode.policy_violation)
    if offset == _HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise ApiError(ErrorCode.offset_out_of_range)
    return partition, offset


HANDLERS: dict[int, Handler] = {2: list_offsets, 21: delete_records, 23: offset_for_leader_epoch}
