# SPDX-License-Identifier: Apache-2.0
"""Reads the one partition of an internal topic (`__headrace_events`, `__headrace_lag`) by Fetch requests.

Long polls have a connection of their own, so that other requests do not wait behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.offset_requests import ask_offset_at
from headrace.console.state.model import Snapshot
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, iter_records

EARLIEST, LATEST = -2, -1
_NEWEST_BY_NAME = 12
"""From version 13 on, Fetch names topics by their ids."""
_LANE = "internal topics"


class EventLog:
    def __init__(self, calls: BrokerCalls, topic: str) -> None:
        self._calls = calls
        self.where = TopicPartition(topic, 0)

    def leader(self, snapshot: Snapshot) -> int | None:
        """The node to ask; None where there is no such topic, or it has no leader."""
        topic = snapshot.topics.get(self.where.topic)
        partition = topic.partitions.get(0) if topic else None
        return partition.leader if partition else None

    async def offset_at(self, leader: int, timestamp: int) -> int:
        """The first offset since a time, EARLIEST or LATEST; the end where there is none."""
        found = await ask_offset_at(self._calls, leader, self.where, timestamp)
        return found if found >= 0 else await ask_offset_at(self._calls, leader, self.where, LATEST)

    async def read(
        self, leader: int, offset: int, *, wait_ms: int, max_bytes: int, lane: str = _LANE
    ) -> tuple[list[Record], int]:
        """Records from an offset on, and the offset to go on from; none when nothing came in time."""
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        fields = {
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "isolation_level": 0,
            "topics": [{"topic": self.where.topic, "partitions": [partition]}],
        }
        reply = await self._calls.node(
            leader, ApiKey.FETCH, fields, newest=_NEWEST_BY_NAME, lane=lane, wait_ms=wait_ms
        )
        _check(getattr(reply, "error_code", 0), self.where.topic)
        for response in reply.responses:
            for data in response.partitions:
                _check(data.error_code, self.where.topic)
                return _records(data.records, offset)
        return [], offset


def _records(data: Any, offset: int) -> tuple[list[Record], int]:
    found, following = [], offset
    for batch, next_offset in _batches(memoryview(data or b"")):
        found += [record for record in iter_records(batch) if record.offset >= offset]
        following = next_offset
    return found, following


def _batches(view: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Whole batches and the offset after each; a last one that is cut off is left out."""
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if position + header.size > len(view):
            return
        if not header.is_control:
            yield view[position : position + header.size], header.next_offset
        position += header.size


def _check(code: Any, topic: str) -> None:
    if int(code) != 0:
        error: ClientError = code_error(ErrorCode(int(code)).name.upper(), name=topic)
        raise error
