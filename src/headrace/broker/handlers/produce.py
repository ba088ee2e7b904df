"""Produce (key 0), versions 3 to 13.

Splits a request per partition, appends each part, answers when the acknowledgement asked for is given:
acks=0 never, acks=1 when written, acks=all when the high watermark has passed (R17). Version 13 names
topics by id. Not served yet: transactions (a transactional id or batch is refused).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.partition import Partition
from headrace.broker.waiters import AckWaiter
from headrace.errors import ApiError, DecodeError
from headrace.wire.api_table import RequestHeader
from headrace.wire.error_codes import ErrorCode
from headrace.wire.produce_fetch import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce,
    write_produce_reply,
)

if TYPE_CHECKING:
    from headrace.broker.node import Broker

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
PRODUCE_KEY = 0
ZSTD_FROM = 7

TopicResults = tuple[str | None, UUID | None, list[ProduceResult]]
Waiting = list[tuple[Partition, int, list[ProduceResult], int]]
"""partition, last offset, the results it belongs to, place in them"""


class ProduceHandler:
    def __init__(self, broker: Broker) -> None:
        self._partitions = broker.partitions
        self._metrics = broker.metrics
        self._clock = broker.world.clock

    def __call__(
        self, connection: KafkaConnection, header: RequestHeader, view: memoryview, end: int, started: float
    ) -> None:
        request = read_produce(view, header.body_position, end, header.api_version)
        waiting: Waiting = []
        zstd_known = header.api_version >= ZSTD_FROM
        results = [self._append_topic(t, request, view, waiting, zstd_known) for t in request.topics]
        if request.acks == ACKS_NONE:
            self._end_unacknowledged(results, started)
            return
        if waiting:
            pending = connection.expect_reply(PRODUCE_KEY, started)
            _AckGate(pending, header, results).wait(waiting, started + request.timeout_ms / 1000)
            return
        connection.reply([write_produce_reply(header.api_version, header.correlation_id, results)])
        self._metrics.request_done(PRODUCE_KEY, self._clock.monotonic() - started)

    def _append_topic(
        self,
        topic: ProduceTopic,
        request: ProduceRequest,
        view: memoryview,
        waiting: Waiting,
        zstd_known: bool,
    ) -> TopicResults:
        results: list[ProduceResult] = []
        for part in topic.partitions:
            try:
                partition = self._find(topic, part, request)
                appended = partition.append(view, part.start, part.end, zstd_known=zstd_known)
            except ApiError as error:
                self._metrics.request_error(PRODUCE_KEY, error.code)
                results.append(ProduceResult(part.index, error.code, error_message=error.message))
                continue
            if request.acks == ACKS_ALL and partition.high_watermark <= appended.last_offset:
                waiting.append((partition, appended.last_offset, results, len(results)))
            results.append(
                ProduceResult(
                    part.index, 0, appended.base_offset, appended.append_time_ms, partition.log_start_offset
                )
            )
        return topic.name, topic.topic_id, results

    def _find(self, topic: ProduceTopic, part: ProducePartition, request: ProduceRequest) -> Partition:
        if not ACKS_ALL <= request.acks <= ACKS_LEADER:
            raise ApiError(ErrorCode.invalid_required_acks, f"acks={request.acks}; use 0, 1 or -1 (all)")
        if request.transactional_id is not None:
            raise ApiError(
                ErrorCode.transactional_id_authorization_failed, "transactions are not served yet"
            )
        return self._partitions.find(topic.name, topic.topic_id, part.index)

    def _end_unacknowledged(self, results: list[TopicResults], started: float) -> None:
        """acks=0 has no reply to carry an error: closing the connection is the only way to tell."""
        self._metrics.request_done(PRODUCE_KEY, self._clock.monotonic() - started)
        failed = next((r for _, _, parts in results for r in parts if r.error_code), None)
        if failed is not None:
            code = ErrorCode(failed.error_code)
            raise DecodeError(f"an acks=0 produce failed: {code.name} {failed.error_message or ''}")


class _AckGate:
    """Answers once every partition of the request is acknowledged, or has failed."""

    __slots__ = ("_header", "_missing", "_pending", "_results")

    def __init__(self, pending: PendingReply, header: RequestHeader, results: list[TopicResults]) -> None:
        self._pending = pending
        self._header = header
        self._results = results
        self._missing = 0

    def wait(self, waiting: Waiting, deadline: float) -> None:
        self._missing = len(waiting)
        for partition, last_offset, results, place in waiting:

            def done(code: ErrorCode, results: list[ProduceResult] = results, place: int = place) -> None:
                self._part_done(code, results, place)

            if not partition.wait_for_ack(AckWaiter(last_offset, deadline, done)):
                done(ErrorCode.none)

    def _part_done(self, code: ErrorCode, results: list[ProduceResult], place: int) -> None:
        if code is not ErrorCode.none:
            results[place] = ProduceResult(results[place].index, code)
        self._missing -= 1
        if not self._missing:
            frame = write_produce_reply(
                self._header.api_version, self._header.correlation_id, self._results
            )
            self._pending.complete([frame])
