# SPDX-License-Identifier: Apache-2.0
"""Produce (key 0), versions 3 to 13.

Splits a request per partition, appends each part, and replies as `acks` demands: 0 never, 1 when written,
all (-1) when the high watermark has passed (R17). Version 13 names topics by id. Batches whose records take
long to validate go through a thread first. A batch for a new leader whose epoch is not on disk yet
is held until it is (R13). Requests of one connection that differ only in their records are appended together
(`ProduceRun`).

Transactions (KIP-890): before the first batch of a transaction in a partition its coordinator is asked
whether the partition is part of it, or from version 12 on to add it (`Enrolment`). Meanwhile the connection
waits; a marker that is written in between drops the partition's guard, and the batch is refused. Later
batches of the transaction are appended at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.acls import Operation, ResourceType
from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection, PendingReply
from headrace.broker.network.frame_memory import FrameMemory
from headrace.broker.network.request_tasks import NOT_ANSWERED, RequestTasks
from headrace.broker.partition.commit_tracker import OnAck
from headrace.broker.partition.partition import (
    Appended,
    EpochNotSaved,
    NotVerified,
    Partition,
    VerificationGuard,
)
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.validation.record_validation import DeepCheck, TakesLong, check_elsewhere
from headrace.broker.partition.validation.refused_batches import DAMAGED, RefusedBatches, SentBatch
from headrace.broker.quotas.client_throttles import ClientThrottles
from headrace.broker.replication.leader_hints import NO_HINT, Hint, LeaderHints
from headrace.broker.security.authorization import Authorization
from headrace.broker.security.node_login import is_from_node
from headrace.broker.transactions.enrolment import Enrolment, Errors
from headrace.errors import ApiError, DecodeError
from headrace.machines.transactions.events import Producer
from headrace.machines.transactions.versions import adds_partitions, error_of_produce
from headrace.principal import Principal
from headrace.types import INTERNAL_TOPICS, OWN_TOPICS, ClusterView, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader
from headrace.wire.batch import has_transactional_bit, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    read_produce,
    write_produce_reply,
)
from headrace.wire.requests.produce_run import ProduceShape, RunFrame, RunReplies
from headrace.world import Clock, Tasks

logger = logging.getLogger(__name__)

_PRODUCE = ApiKey.PRODUCE.value
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_FROM = 7
_LENGTH_BYTES = 4

TopicResults = tuple[str | None, UUID | None, list[ProduceResult]]
Waiting = list[tuple[Partition, int, list[ProduceResult], int]]
"""partition, last offset, the results it belongs to, place in them"""
MAX_HOLD_S = 5.0
"""How long a request waits at most for a leader that does not take writes yet, whatever its timeout."""
RUN_PAUSE = 64
"""Requests handled one by one after one that could not be appended with others."""


class _Deferred(NamedTuple):
    """A batch that cannot be appended at once, and the place of its result."""

    partition: Partition
    waits_for: DeepCheck | asyncio.Future[Appended] | VerificationGuard
    """The check in a thread, the append when the partition takes writes, or the coordinator's answer."""
    batch: bytearray
    results: list[ProduceResult]
    place: int


class _Produce(NamedTuple):
    """One request under way."""

    header: RequestHeader
    request: ProduceRequest
    started: float
    waiting: Waiting
    deferred: list[_Deferred]
    leaders: list[int]
    """Who was named to lead instead."""
    accepted: list[Partition]
    """To which it was appended at once."""
    connection: KafkaConnection


class ProduceHandler:
    def __init__(
        self,
        *,
        node_id: int,
        view: Callable[[], ClusterView],
        partitions: Partitions,
        clock: Clock,
        tasks: Tasks,
        metrics: Metrics,
        memory: FrameMemory,
        request_tasks: RequestTasks,
        throttles: ClientThrottles,
        enrolment: Enrolment,
        verifies_transactions: Callable[[], bool],
        authorization: Authorization | None = None,
    ) -> None:
        """`verifies_transactions`: transaction.partition.verification.enable, for versions before 12."""
        self._enrolment = enrolment
        self._verifies_transactions = verifies_transactions
        self._throttles = throttles
        self._partitions = partitions
        self._view = view
        self._authorization = authorization
        self._hints = LeaderHints(node_id, view)
        self._metrics = metrics
        self._refused_batches = RefusedBatches(metrics, clock)
        self._memory = memory
        self._clock = clock
        self._tasks = tasks
        self._request_tasks = request_tasks

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
        produce = _Produce(header, request, started, [], [], [], [], connection)
        results = [self._append_topic(topic, produce, view) for topic in request.topics]
        run = connection.runs.get(_PRODUCE)
        if not isinstance(run, ProduceRun):
            run = connection.runs[_PRODUCE] = ProduceRun(connection, self._clock, self._throttles)
        run.seen(view, start, end, header, request, produce.accepted)
        throttle_ms = 0
        if self._throttles.active:
            acknowledged = request.acks != ACKS_NONE
            throttle_ms = self._throttles.produced(
                connection, header.client_id, end - start, acknowledged=acknowledged
            )
        if produce.deferred:
            verified = self._verify(produce)
            if verified.done():  # by a coordinator on this node
                self._append_verified(produce, verified.result())
            if produce.deferred:
                appending = self._append_deferred(connection, produce, results, throttle_ms, verified)
                self._request_tasks.start(connection, appending)
                return
        self._answer(connection, produce, results, throttle_ms)

    def _answer(
        self, connection: KafkaConnection, produce: _Produce, results: list[TopicResults], throttle_ms: int
    ) -> None:
        header, request, started, waiting, _, leaders, _, _ = produce
        if request.acks == ACKS_NONE:
            self._end_unacknowledged(results, started)
            return
        if waiting:
            pending = connection.expect_reply(_PRODUCE, started)
            _AckGate(pending, header, results, throttle_ms).wait(waiting, started + request.timeout_ms / 1000)
            return
        endpoints = self._hints.endpoints(leaders, connection.listener) if leaders else ()
        frame = write_produce_reply(
            header.api_version,
            header.correlation_id,
            results,
            throttle_ms=throttle_ms,
            node_endpoints=endpoints,
        )
        connection.reply([frame])
        self._metrics.request_done(_PRODUCE, self._clock.monotonic() - started)

    def _append_topic(self, topic: ProduceTopic, produce: _Produce, view: memoryview) -> TopicResults:
        results: list[ProduceResult] = []
        zstd_known = produce.header.api_version >= ZSTD_FROM
        acks_all = produce.request.acks == ACKS_ALL
        has_transactional_id = produce.request.transactional_id is not None
        authorization = self._authorization
        for part in topic.partitions:
            try:
                if authorization is not None:
                    self._authorize(authorization, topic, part, produce, view)
                partition = self._find(topic, part, produce)
                appended = partition.append(
                    view,
                    part.start,
                    part.end,
                    acks_all=acks_all,
                    zstd_known=zstd_known,
                    has_transactional_id=has_transactional_id,
                )
            except NotVerified:
                batch = bytearray(view[part.start : part.end])
                guard = _begin_verification(produce, partition, batch)
                produce.deferred.append(_Deferred(partition, guard, batch, results, len(results)))
                results.append(ProduceResult(part.index))
                continue
            except EpochNotSaved:
                batch = bytearray(view[part.start : part.end])
                held = _hold(produce, partition, batch)
                produce.deferred.append(_Deferred(partition, held, batch, results, len(results)))
                results.append(ProduceResult(part.index))
                continue
            except ApiError as error:
                results.append(self._refused_at_once(produce, topic, part, view, error))
                continue
            except TakesLong as long_way:
                batch = bytearray(view[part.start : part.end])
                produce.deferred.append(_Deferred(partition, long_way.check, batch, results, len(results)))
                results.append(ProduceResult(part.index))
                continue
            produce.accepted.append(partition)
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
        if produce.request.acks == ACKS_ALL and appended.answer is not ErrorCode.none:
            produce.waiting.append((partition, appended.last_offset, results, place))

    def _authorize(
        self,
        authorization: Authorization,
        topic: ProduceTopic,
        part: ProducePartition,
        produce: _Produce,
        view: memoryview,
    ) -> None:
        """Raises ApiError. By what the batch says, not the request (S4); who may write to the topic may also
        be an idempotent producer (KIP-679)."""
        connection, transactional_id = produce.connection, produce.request.transactional_id
        if has_transactional_bit(view, part.start, part.end):
            caller = authorization.sender(connection.principal, connection.peer, _PRODUCE)
            kind = ResourceType.TRANSACTIONAL_ID
            if transactional_id is None or not caller.may(Operation.WRITE, kind, transactional_id):
                raise ApiError(ErrorCode.transactional_id_authorization_failed)
        name = topic.name
        if name is None and topic.topic_id is not None:
            name = self._view().topic_names.get(topic.topic_id)
        access = connection.access or authorization.access(connection)
        if name is not None and not access.writable[name]:
            authorization.refuse(connection, _PRODUCE, Operation.WRITE, ResourceType.TOPIC, name)
            raise ApiError(ErrorCode.topic_authorization_failed)

    def _find(self, topic: ProduceTopic, part: ProducePartition, produce: _Produce) -> Partition:
        request = produce.request
        if not ACKS_ALL <= request.acks <= ACKS_LEADER:
            raise ApiError(ErrorCode.invalid_required_acks, f"acks={request.acks}; use 0, 1 or -1 (all)")
        partition = self._partitions.find(topic.name, topic.topic_id, part.index)
        name = partition.topic_partition.topic
        if name in INTERNAL_TOPICS:
            self._check_internal(name, produce.connection.principal)
        return partition

    def _check_internal(self, name: str, principal: Principal) -> None:
        """Only nodes write to internal topics, and by a request only to those for events and lag."""
        if name not in OWN_TOPICS or not is_from_node(self._view(), principal):
            raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot append to internal topic {name}")

    def _refused(self, produce: _Produce, index: int, error: ApiError, hint: Hint = NO_HINT) -> ProduceResult:
        self._metrics.request_error(_PRODUCE, error.code, produce.connection.activity)
        return ProduceResult(
            index,
            error.code,
            error_message=error.message,
            leader_id=hint.leader,
            leader_epoch=hint.leader_epoch,
            refused_records=error.records,
        )

    def _refused_at_once(
        self,
        produce: _Produce,
        topic: ProduceTopic,
        part: ProducePartition,
        view: memoryview,
        error: ApiError,
    ) -> ProduceResult:
        hint = self._hints.hint(error.code, topic.name, topic.topic_id, part.index)
        if hint is not NO_HINT:
            produce.leaders.append(hint.leader)
        if error.code in DAMAGED:
            name = self._find(topic, part, produce).topic_partition
            self._note_damaged(produce, SentBatch(name, view, part.start, part.end), error)
        return self._refused(produce, part.index, error, hint)

    def _refused_later(self, produce: _Produce, each: _Deferred, error: ApiError) -> ProduceResult:
        if error.code in DAMAGED:
            name, view = each.partition.topic_partition, memoryview(each.batch)
            self._note_damaged(produce, SentBatch(name, view, 0, len(view)), error)
        return self._refused(produce, each.results[each.place].index, error)

    def _note_damaged(self, produce: _Produce, batch: SentBatch, error: ApiError) -> None:
        self._refused_batches.note(produce.connection, produce.header.client_id, batch, error)

    # The long way

    async def _append_deferred(
        self,
        connection: KafkaConnection,
        produce: _Produce,
        results: list[TopicResults],
        throttle_ms: int,
        verified: asyncio.Future[Errors],
    ) -> None:
        size = sum(len(each.batch) for each in produce.deferred)
        self._memory.take(connection, size)
        try:
            errors = await verified
            for each in produce.deferred:
                await self._append_later(produce, each, errors)
        finally:
            self._memory.give_back(connection, size)
        self._answer(connection, produce, results, throttle_ms)

    async def _append_later(self, produce: _Produce, each: _Deferred, errors: Errors) -> None:
        partition, waits_for, batch, results, place = each
        index = results[place].index
        try:
            if isinstance(waits_for, DeepCheck):
                appended = await self._check_and_append(produce, partition, waits_for, batch)
            elif isinstance(waits_for, VerificationGuard):
                _check_enrolled(produce, partition, errors)
                appended = await self._append_guarded(produce, partition, batch, waits_for)
            else:
                appended = await self._until_appended(produce, partition, waits_for, batch)
        except ApiError as error:
            results[place] = self._refused_later(produce, each, error)
            return
        results[place] = _written(index, appended, partition)
        self._appended(produce, partition, appended, results, place)

    def _append_verified(self, produce: _Produce, errors: Errors) -> None:
        """Appends the batches for which the coordinator has answered; the others stay deferred."""
        deferred = produce.deferred[:]
        produce.deferred.clear()
        for each in deferred:
            partition, guard, batch, results, place = each
            if not isinstance(guard, VerificationGuard):
                produce.deferred.append(each)
                continue
            index = results[place].index
            try:
                _check_enrolled(produce, partition, errors)
                appended = _append(produce, partition, batch, guard)
            except (TakesLong, NotVerified):
                produce.deferred.append(each)
            except ApiError as error:
                results[place] = self._refused_later(produce, each, error)
            else:
                results[place] = _written(index, appended, partition)
                self._appended(produce, partition, appended, results, place)

    async def _until_appended(
        self, produce: _Produce, partition: Partition, held: asyncio.Future[Appended], batch: bytearray
    ) -> Appended:
        """After the time it is refused, and the producer looks for the leader again."""
        limit_s = min(produce.request.timeout_ms / 1000, MAX_HOLD_S)
        try:
            async with asyncio.timeout(produce.started + limit_s - self._clock.monotonic()):
                return await held
        except TimeoutError:
            return await self._append_in_transaction(produce, partition, batch)
        except NotVerified:
            return await self._append_in_transaction(produce, partition, batch)
        except TakesLong as long_way:
            return await self._check_and_append(produce, partition, long_way.check, batch)

    async def _check_and_append(
        self,
        produce: _Produce,
        partition: Partition,
        check: DeepCheck,
        batch: bytearray,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        checked = await check_elsewhere(self._tasks, check, batch)
        while (rule := partition.key_rule) is not None and rule != check.keys:  # altered meanwhile
            check = check._replace(validates=True, keys=rule)
            checked = await check_elsewhere(self._tasks, check, batch)
        if checked.batch is None:
            raise ApiError(ErrorCode(checked.error_code), checked.message, records=checked.records or {})
        return await self._append_in_transaction(produce, partition, checked.batch, guard, checked=True)

    # Transactions

    async def _append_in_transaction(
        self,
        produce: _Produce,
        partition: Partition,
        batch: bytearray,
        guard: VerificationGuard | None = None,
        *,
        checked: bool = False,
    ) -> Appended:
        """Appends a batch of which it may not be known yet whether it begins a transaction."""
        if guard is None:
            try:
                return _append(produce, partition, batch, checked=checked)
            except NotVerified:
                guard = await self._enrolled(produce, partition, batch)
        return await self._append_or_ask_again(produce, partition, batch, guard, checked=checked)

    async def _enrolled(self, produce: _Produce, partition: Partition, batch: bytearray) -> VerificationGuard:
        """The guard that was taken before the coordinator was asked. Raises ApiError."""
        guard = _begin_verification(produce, partition, batch)
        errors = await self._ask(produce, _producer_of(batch), frozenset((partition.topic_partition,)))
        _check_enrolled(produce, partition, errors)
        return guard

    async def _append_or_ask_again(
        self,
        produce: _Produce,
        partition: Partition,
        batch: bytearray,
        guard: VerificationGuard,
        *,
        checked: bool = False,
    ) -> Appended:
        """A producer of KIP-890 goes on as soon as its last transaction is decided. While the coordinator was
        asked about the next one, the marker of the last may have dropped the guard: it is asked once more."""
        try:
            return _append(produce, partition, batch, guard, checked=checked)
        except NotVerified:
            if not adds_partitions(ApiKey.PRODUCE, produce.header.api_version):
                raise
            guard = await self._enrolled(produce, partition, batch)
            return _append(produce, partition, batch, guard, checked=checked)

    async def _append_guarded(
        self, produce: _Produce, partition: Partition, batch: bytearray, guard: VerificationGuard
    ) -> Appended:
        try:
            return await self._append_or_ask_again(produce, partition, batch, guard)
        except TakesLong as long_way:  # the topic was altered meanwhile, or the loop has decompressed enough
            return await self._check_and_append(produce, partition, long_way.check, batch, guard)

    def _verify(self, produce: _Produce) -> asyncio.Future[Errors]:
        """Asks once for all partitions in which a transaction begins; there may be none."""
        begun: dict[Producer, list[TopicPartition]] = {}
        for each in produce.deferred:
            if isinstance(each.waits_for, VerificationGuard):
                begun.setdefault(_producer_of(each.batch), []).append(each.partition.topic_partition)
        if not begun:
            return _answered({})
        producer, partitions = begun.popitem()
        if begun:
            every = (name for names in (partitions, *begun.values()) for name in names)
            return _answered(dict.fromkeys(every, ErrorCode.invalid_producer_id_mapping))
        return self._ask(produce, producer, frozenset(partitions))

    def _ask(
        self, produce: _Produce, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> asyncio.Future[Errors]:
        adds = adds_partitions(ApiKey.PRODUCE, produce.header.api_version)
        if not (adds or self._verifies_transactions()):
            return _answered({})
        transactional_id = produce.request.transactional_id
        assert transactional_id is not None, "the partition refuses the batch"
        return self._enrolment.ask(transactional_id, producer, partitions, verify_only=not adds)

    def _end_unacknowledged(self, results: list[TopicResults], started: float) -> None:
        """acks=0 has no reply to carry an error: closing the connection is the only way to tell."""
        self._metrics.request_done(_PRODUCE, self._clock.monotonic() - started)
        failed = next((r for _, _, parts in results for r in parts if r.error_code), None)
        if failed is not None:
            code = ErrorCode(failed.error_code)
            raise DecodeError(f"an acks=0 produce failed: {code.name} {failed.error_message or ''}")


def _hold(produce: _Produce, partition: Partition, batch: bytearray) -> asyncio.Future[Appended]:
    """Appends the batch as soon as the partition takes writes; cancelled, it does not."""
    held: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def append() -> None:
        if held.done():
            return
        try:
            held.set_result(_append(produce, partition, batch))
        except Exception as error:  # noqa: BLE001  handled where the result is awaited
            held.set_exception(error)

    undo = partition.when_writable(append)
    held.add_done_callback(lambda _: undo())
    return held


def _begin_verification(produce: _Produce, partition: Partition, batch: bytearray) -> VerificationGuard:
    """Before the coordinator is asked."""
    adds = adds_partitions(ApiKey.PRODUCE, produce.header.api_version)
    guard = partition.begin_verification(memoryview(batch), 0, begins_at_zero=adds)
    assert guard is not None, "the transaction is not open: the append was NotVerified"
    return guard


def _answered(errors: Errors) -> asyncio.Future[Errors]:
    """Without a question."""
    answered: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
    answered.set_result(errors)
    return answered


def _producer_of(batch: bytearray) -> Producer:
    header = read_header(batch)
    return Producer(header.producer_id, header.producer_epoch)


def _check_enrolled(produce: _Produce, partition: Partition, errors: Errors) -> None:
    """Raises ApiError when the coordinator did not confirm the partition, or was out of reach."""
    error = errors.get(partition.topic_partition, ErrorCode.none)
    if error is not ErrorCode.none:
        code = error_of_produce(produce.header.api_version, error)
        raise ApiError(code, f"{partition.topic_partition} is not in the transaction: {error.name}")


def _append(
    produce: _Produce,
    partition: Partition,
    batch: bytearray,
    guard: VerificationGuard | None = None,
    *,
    checked: bool = False,
) -> Appended:
    """With all checks of the first attempt: the ISR may have shrunk meanwhile."""
    view = memoryview(batch)
    zstd_known = produce.header.api_version >= ZSTD_FROM
    return partition.append(
        view,
        0,
        len(view),
        acks_all=produce.request.acks == ACKS_ALL,
        zstd_known=zstd_known,
        checked=checked,
        guard=guard,
        has_transactional_id=produce.request.transactional_id is not None,
    )


def _written(index: int, appended: Appended, partition: Partition) -> ProduceResult:
    return ProduceResult(index, 0, appended.base_offset, appended.append_time_ms, partition.log_start_offset)


class _AckGate:
    """Answers once every partition of the request is acknowledged, or has failed."""

    __slots__ = ("_header", "_missing", "_pending", "_results", "_throttle_ms")

    def __init__(
        self, pending: PendingReply, header: RequestHeader, results: list[TopicResults], throttle_ms: int
    ) -> None:
        self._throttle_ms = throttle_ms
        self._pending = pending
        self._header = header
        self._results = results
        self._missing = 0

    def wait(self, waiting: Waiting, deadline: float) -> None:
        self._missing = len(waiting)
        for partition, last_offset, results, place in waiting:

            def done(code: ErrorCode, results: list[ProduceResult] = results, place: int = place) -> None:
                self._part_done(code, results, place)

            partition.wait_for_ack(last_offset, deadline, done)

    def _part_done(self, code: ErrorCode, results: list[ProduceResult], place: int) -> None:
        if code is not ErrorCode.none:
            results[place] = ProduceResult(results[place].index, code)
            self._pending.connection.activity.failed(_PRODUCE, code)
        self._missing -= 1
        if not self._missing:
            frame = write_produce_reply(
                self._header.api_version,
                self._header.correlation_id,
                self._results,
                throttle_ms=self._throttle_ms,
            )
            self._pending.complete([frame])


class ProduceRun:
    """Produce requests of one connection that differ only in their records, appended in one write.

    For producers that send many small requests to one partition without waiting. The first request that is
    unlike the last ends the run, and is handled by ProduceHandler.
    """

    __slots__ = (
        "_acks",
        "_client_id",
        "_clock",
        "_connection",
        "_partition",
        "_pause",
        "_replies",
        "_shape",
        "_throttles",
        "_timeout_s",
    )

    def __init__(self, connection: KafkaConnection, clock: Clock, throttles: ClientThrottles) -> None:
        self._connection = connection
        self._throttles = throttles
        self._client_id: str | None = None
        self._clock = clock
        self._partition: Partition | None = None
        """Refuses writes for good when it is given up: ProduceHandler then finds the one that follows it."""
        self._shape: ProduceShape | None = None
        self._replies: RunReplies | None = None
        self._acks = ACKS_LEADER
        self._timeout_s = 0.0
        self._pause = 0

    def seen(
        self,
        view: memoryview,
        start: int,
        end: int,
        header: RequestHeader,
        request: ProduceRequest,
        accepted: Sequence[Partition],
    ) -> None:
        """Notes a request that was handled alone; two in a row accepted by one partition begin a run."""
        topics = request.topics
        if not accepted or len(topics) != 1 or len(topics[0].partitions) != 1:
            self._partition = self._shape = None
            return
        if self._partition is not accepted[0]:
            self._partition, self._shape = accepted[0], None
        elif self._shape is None and request.acks in (ACKS_LEADER, ACKS_ALL):
            name, topic_id, (part,) = topics[0]
            self._acks, self._timeout_s = request.acks, request.timeout_ms / 1000
            self._client_id = header.client_id
            self._shape = ProduceShape.of(view, start, end, header.api_version, part)
            self._replies = RunReplies(header.api_version, name, topic_id, part.index)

    def take(self, view: memoryview, position: int, end: int) -> tuple[int, PendingReply] | None:
        """Handles the frames at `position` that are like the last one.

        Where the first other frame begins, and the replies; None when the frame at `position` is unlike it.
        """
        if self._shape is None or self._partition is None or self._throttles.meters_requests:
            return None
        if self._pause:
            self._pause -= 1
            return None
        started = self._clock.monotonic()
        frames = self._shape.find(view, position, end)
        if not frames:
            if frames is None:
                self._shape = None
            return None
        try:
            reply = self._append(self._partition, view, position, frames, started)
        except ApiError:
            return None  # ProduceHandler makes the error reply
        except Exception:
            logger.exception("produce from %s failed", self._connection.peer)
            raise DecodeError(NOT_ANSWERED) from None
        return None if reply is None else (frames[-1].next_frame, reply)

    def _append(
        self,
        partition: Partition,
        view: memoryview,
        position: int,
        frames: list[RunFrame],
        started: float,
    ) -> PendingReply | None:
        """Leaves in `frames` those that were appended; None when ProduceHandler has to append the first."""
        replies = self._replies
        assert replies is not None
        pending = PendingReply(self._connection, _PRODUCE, started, len(frames))
        throttle_ms = 0

        def done(code: ErrorCode) -> None:
            assert appended is not None  # it is called when `append_run` has returned
            if code is not ErrorCode.none:
                self._connection.activity.failed(_PRODUCE, code)
            offsets, log_start = appended.base_offsets, appended.log_start_offset
            pending.complete([replies.pack(code, frames, offsets, log_start, throttle_ms)])

        on_ack = OnAck(started + self._timeout_s, done) if self._acks == ACKS_ALL else None
        appended = partition.append_run(view, frames, on_ack)
        if appended is None:
            self._pause = RUN_PAUSE
            return None
        base_offsets, log_start_offset, answer = appended
        del frames[len(base_offsets) :]
        pending.count = len(frames)
        if self._throttles.active:
            size = frames[-1].next_frame - position - _LENGTH_BYTES * len(frames)
            throttle_ms = self._throttles.produced(self._connection, self._client_id, size)
        if answer is not None:
            pending.parts = [replies.pack(answer, frames, base_offsets, log_start_offset, throttle_ms)]
        return pending
