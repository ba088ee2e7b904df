"""Produce (key 0), versions 3 to 13.

Splits a request per partition, appends each part, answers when the acknowledgement asked for is given:
acks=0 never, acks=1 when written, acks=all when the high watermark has passed (R17). Version 13 names
topics by id. Batches whose records take long to check go through the worker process first.
Not served yet: transactions (a transactional id or batch is refused).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.deep_check import DeepCheck, NeedsWorker, check_batch
from headrace.broker.leader_hints import NO_HINT, Hint, LeaderHints
from headrace.broker.partition import Appended, Partition
from headrace.broker.peers import PEER_CLIENT
from headrace.broker.produce_run import ProduceRun
from headrace.broker.waiters import AckWaiter
from headrace.errors import ApiError, DecodeError
from headrace.types import INTERNAL_TOPICS, OWN_TOPICS
from headrace.wire.api_table import RequestHeader
from headrace.wire.batch import read_header
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
ADMIN_CLIENT = "__admin_client"
"""The one client id that may write to internal topics, as in Apache Kafka: for tools that repair them."""

TopicResults = tuple[str | None, UUID | None, list[ProduceResult]]
Waiting = list[tuple[Partition, int, list[ProduceResult], int]]
"""partition, last offset, the results it belongs to, place in them"""
StartTask = Callable[[KafkaConnection, Coroutine[Any, Any, None]], None]
"""Runs the rest of a request in a task; nothing else of the connection starts meanwhile."""


class _Unchecked(NamedTuple):
    """A batch that has to go through the worker, and the place of its result."""

    partition: Partition
    check: DeepCheck
    batch: bytes
    results: list[ProduceResult]
    place: int


class _Produce(NamedTuple):
    """One request under way."""

    header: RequestHeader
    request: ProduceRequest
    started: float
    waiting: Waiting
    unchecked: list[_Unchecked]
    leaders: list[int]
    """Who was named to lead instead."""


class ProduceHandler:
    def __init__(self, broker: Broker, start_task: StartTask) -> None:
        self._broker = broker
        self._partitions = broker.partitions
        self._hints = LeaderHints(broker.node_id, lambda: broker.cluster.view)
        self._metrics = broker.metrics
        self._memory = broker.hub.memory
        self._clock = broker.world.clock
        self._bulk = broker.world.tasks.bulk
        self._start_task = start_task

    def __call__(
        self,
        connection: KafkaConnection,
        header: RequestHeader,
        view: memoryview,
        start: int,
        end: int,
        started: float,
    ) -> None:
        request = read_produce(view, header.body_position, end, header.api_version)
        run = connection.runs.get(PRODUCE_KEY)
        if not isinstance(run, ProduceRun):
            run = connection.runs[PRODUCE_KEY] = ProduceRun(self._broker, connection)
        run.seen(view, start, end, header.api_version, request)
        produce = _Produce(header, request, started, [], [], [])
        results = [self._append_topic(topic, produce, view) for topic in request.topics]
        if produce.unchecked:
            self._start_task(connection, self._check_and_append(connection, produce, results))
        else:
            self._answer(connection, produce, results)

    def _answer(self, connection: KafkaConnection, produce: _Produce, results: list[TopicResults]) -> None:
        header, request, started, waiting, _, leaders = produce
        if request.acks == ACKS_NONE:
            self._end_unacknowledged(results, started)
            return
        if waiting:
            pending = connection.expect_reply(PRODUCE_KEY, started)
            _AckGate(pending, header, results).wait(waiting, started + request.timeout_ms / 1000)
            return
        endpoints = self._hints.endpoints(leaders, connection.listener) if leaders else ()
        connection.reply(
            [
                write_produce_reply(
                    header.api_version, header.correlation_id, results, node_endpoints=endpoints
                )
            ]
        )
        self._metrics.request_done(PRODUCE_KEY, self._clock.monotonic() - started)

    def _append_topic(self, topic: ProduceTopic, produce: _Produce, view: memoryview) -> TopicResults:
        results: list[ProduceResult] = []
        zstd_known = produce.header.api_version >= ZSTD_FROM
        for part in topic.partitions:
            try:
                partition = self._find(topic, part, produce)
                if partition.leading is not None and produce.request.acks == ACKS_ALL:
                    partition.check_insync(view, part.start, part.end)
                appended = partition.append(view, part.start, part.end, zstd_known=zstd_known)
            except ApiError as error:
                hint = self._hints.hint(error.code, topic.name, topic.topic_id, part.index)
                if hint is not NO_HINT:
                    produce.leaders.append(hint.leader)
                results.append(self._refused(part.index, error, hint))
                continue
            except NeedsWorker as long_way:
                batch = bytes(view[part.start : part.end])
                produce.unchecked.append(
                    _Unchecked(partition, long_way.check, batch, results, len(results))
                )
                results.append(ProduceResult(part.index))
                continue
            self._appended(produce, partition, appended, results, len(results))
            results.append(_written(part.index, appended, partition))
        return topic.name, topic.topic_id, results

    def _appended(
        self,
        produce: _Produce,
        partition: Partition,
        appended: Appended,
        results: list[ProduceResult],
        place: int,
    ) -> None:
        if produce.request.acks == ACKS_ALL and partition.high_watermark <= appended.last_offset:
            produce.waiting.append((partition, appended.last_offset, results, place))

    def _find(self, topic: ProduceTopic, part: ProducePartition, produce: _Produce) -> Partition:
        request = produce.request
        if not ACKS_ALL <= request.acks <= ACKS_LEADER:
            raise ApiError(ErrorCode.invalid_required_acks, f"acks={request.acks}; use 0, 1 or -1 (all)")
        if request.transactional_id is not None:
            raise ApiError(
                ErrorCode.transactional_id_authorization_failed, "transactions are not served yet"
            )
        partition = self._partitions.find(topic.name, topic.topic_id, part.index)
        name = partition.topic_partition.topic
        if name in INTERNAL_TOPICS and not _may_write(produce.header.client_id, name):
            raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot append to internal topic {name}")
        return partition

    def _refused(self, index: int, error: ApiError, hint: Hint = NO_HINT) -> ProduceResult:
        self._metrics.request_error(PRODUCE_KEY, error.code)
        return ProduceResult(
            index,
            error.code,
            error_message=error.message,
            leader_id=hint.leader,
            leader_epoch=hint.leader_epoch,
            refused_records=error.records,
        )

    # The long way

    async def _check_and_append(
        self, connection: KafkaConnection, produce: _Produce, results: list[TopicResults]
    ) -> None:
        size = sum(len(each.batch) for each in produce.unchecked)
        self._memory.take(size)
        try:
            for each in produce.unchecked:
                await self._check_one(produce, each)
        finally:
            self._memory.give_back(size)
        self._answer(connection, produce, results)

    async def _check_one(self, produce: _Produce, each: _Unchecked) -> None:
        partition, check, batch, results, place = each
        index = results[place].index
        checked = await self._bulk(check_batch, check, batch, read_header(batch))
        try:
            if checked.batch is None:
                code = ErrorCode(checked.error_code)
                raise ApiError(code, checked.message, records=checked.records)
            view = memoryview(bytearray(checked.batch))
            zstd_known = produce.header.api_version >= ZSTD_FROM
            appended = partition.append(view, 0, len(view), zstd_known=zstd_known, checked=True)
        except ApiError as error:
            results[place] = self._refused(index, error)
            return
        results[place] = _written(index, appended, partition)
        self._appended(produce, partition, appended, results, place)

    def _end_unacknowledged(self, results: list[TopicResults], started: float) -> None:
        """acks=0 has no reply to carry an error: closing the connection is the only way to tell."""
        self._metrics.request_done(PRODUCE_KEY, self._clock.monotonic() - started)
        failed = next((r for _, _, parts in results for r in parts if r.error_code), None)
        if failed is not None:
            code = ErrorCode(failed.error_code)
            raise DecodeError(f"an acks=0 produce failed: {code.name} {failed.error_message or ''}")


def _written(index: int, appended: Appended, partition: Partition) -> ProduceResult:
    return ProduceResult(
        index, 0, appended.base_offset, appended.append_time_ms, partition.log_start_offset
    )


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

            partition.wait_for_ack(AckWaiter(last_offset, deadline, done))

    def _part_done(self, code: ErrorCode, results: list[ProduceResult], place: int) -> None:
        if code is not ErrorCode.none:
            results[place] = ProduceResult(results[place].index, code)
        self._missing -= 1
        if not self._missing:
            frame = write_produce_reply(
                self._header.api_version, self._header.correlation_id, self._results
            )
            self._pending.complete([frame])


def _may_write(client_id: str | None, internal_topic: str) -> bool:
    """The other nodes write what they have to tell of themselves."""
    if client_id == ADMIN_CLIENT:
        return True
    return internal_topic in OWN_TOPICS and (client_id or "").startswith(PEER_CLIENT)
