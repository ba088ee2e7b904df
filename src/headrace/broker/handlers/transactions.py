# SPDX-License-Identifier: Apache-2.0
"""AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, WriteTxnMarkers 1-2, DescribeTransactions 0,
ListTransactions 0-2.

Translates requests of any version to events of a transactional id and its replies back. The decisions are in
machines/transactions/transactional_id.py; that partitions exist is checked here. AddPartitionsToTxn 4 and 5
come from other nodes, for the transactions of several producers at once. A producer before KIP-890 that adds
to its next transaction while markers of the last are written waits for them up to 100 ms; nodes do so
themselves.

Gaps: two-phase commit (KIP-939).
Read next: broker/transactions/coordinator.py, broker/transactions/marker_writer.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.acls import Operation
from headrace.broker.coordinators.client_patterns import InvalidPattern, matching
from headrace.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.metrics import Metrics
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import ITEMS_PER_YIELD, unique, yielding
from headrace.broker.security.authorization import Authorization
from headrace.broker.transactions.concurrent_retry import ConcurrentRetry
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.broker.transactions.marker_writer import Marker, MarkerWriter
from headrace.errors import ApiError
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    ErrorReply,
    Producer,
    ProducerReply,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.machines.transactions.listing import ListingFilter, TransactionDescription, describe, listing
from headrace.machines.transactions.transactional_id import TransactionalId
from headrace.machines.transactions.versions import (
    BEFORE_KIP_890,
    error_for,
    version_of_add_partitions,
    version_of_end,
)
from headrace.types import INTERNAL_TOPICS, ClusterView, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock, Tasks, Thread

BATCHED_FROM = 4
"""First version of AddPartitionsToTxn that is for nodes: it holds several transactions."""

_MANY = 10 * ITEMS_PER_YIELD
"""Of items that take less than a microsecond each."""

_CONCURRENT = ErrorReply(error=ErrorCode.concurrent_transactions)

T = TypeVar("T")
Body = ReplyBody | ApiError
Codes = Mapping[TopicPartition, ErrorCode]
MarkerCodes = dict[int, dict[str, dict[int, ErrorCode]]]
"""By producer id, topic and partition."""


class Addition(NamedTuple):
    """What a request adds to one transaction, or asks about."""

    transactional_id: str
    producer: Producer
    verify_only: bool
    topics: Sequence[Any]


class _Checked(NamedTuple):
    addition: Addition
    errors: Mapping[TopicPartition, ErrorCode]
    """Of every partition once; any error refuses all of them."""

    @property
    def name(self) -> str:
        return self.addition.transactional_id

    @property
    def refused(self) -> bool:
        return any(self.errors.values())


class TransactionHandlers:
    """Handlers of the requests about transactions, except InitProducerId and TxnOffsetCommit."""

    def __init__(
        self,
        *,
        view: Callable[[], ClusterView],
        transactions: TransactionCoordinator,
        groups: GroupCoordinator,
        markers: MarkerWriter,
        metrics: Metrics,
        clock: Clock,
        tasks: Tasks,
        pattern_thread: Thread,
        authorization: Authorization | None = None,
    ) -> None:
        """`authorization`: of the topics in AddPartitionsToTxn."""
        self._view = view
        self._transactions = transactions
        self._groups = groups
        self._markers = markers
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks
        self._pattern_thread = pattern_thread
        self._authorization = authorization

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
        }

    def deferred_by_key(self) -> dict[int, DeferredHandler]:
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
            ApiKey.END_TXN: self.end_txn,
        }

    def _told(self, context: RequestContext, error: ErrorCode) -> ErrorCode:
        """The error as the request's version spells it."""
        told = error_for(ApiKey(context.api_key), context.api_version, error)
        if told is not ErrorCode.none:
            self._metrics.request_error(context.api_key, told, context.activity)
        return told

    # AddPartitionsToTxn

    def add_partitions_to_txn(
        self, context: RequestContext, request: Any, reply: DeferredReply
    ) -> Coroutine[Any, Any, dict[str, Any]] | None:
        additions = additions_in(context.api_version, request)
        if sum(len(topic.partitions) for each in additions for topic in each.topics) > ITEMS_PER_YIELD:
            return self._add_many(context, additions)
        checked = [_Checked(each, dict(self._errors(context, each))) for each in additions]

        def finish(bodies: list[Body]) -> dict[str, Any]:
            pairs = zip(checked, bodies, strict=True)
            return added_reply(
                context.api_version,
                [(each.name, topic_results(self._codes(context, each, body))) for each, body in pairs],
            )

        answers = _Answers[Body](len(checked), reply.answer_with(finish))
        for number, each in enumerate(checked):
            self._add(context.api_version, each, partial(answers.put, number))
        return None

    async def _add_many(self, context: RequestContext, additions: Sequence[Addition]) -> dict[str, Any]:
        checked = []
        async for addition in yielding(additions):
            found = {name: error async for name, error in yielding(self._errors(context, addition), _MANY)}
            checked.append(_Checked(addition, found))
        answered: asyncio.Future[list[Body]] = asyncio.get_running_loop().create_future()
        answers = _Answers[Body](len(checked), partial(_set, answered))
        async for number, each in yielding(enumerate(checked)):
            self._add(context.api_version, each, partial(answers.put, number))
        results = []
        async for each, body in yielding(zip(checked, await answered, strict=True)):
            codes = [pair async for pair in yielding(self._codes(context, each, body), _MANY)]
            results.append((each.name, topic_results(codes)))
        return added_reply(context.api_version, results)

    def _errors(
        self, context: RequestContext, addition: Addition
    ) -> Iterator[tuple[TopicPartition, ErrorCode]]:
        for named in addition.topics:
            topic = self._view().topics.get(named.name)
            count = 0 if topic is None else len(topic.partitions)
            denied = context.api_version < BATCHED_FROM and not self._may_write(context, named.name)
            for index in named.partitions:
                if denied:
                    error = ErrorCode.topic_authorization_failed
                elif 0 <= index < count:
                    error = ErrorCode.none
                else:
                    error = ErrorCode.unknown_topic_or_partition
                yield TopicPartition(named.name, index), error

    def _may_write(self, context: RequestContext, name: str) -> bool:
        """No client writes to internal topics; offsets are added by AddOffsetsToTxn."""
        if name in INTERNAL_TOPICS:
            return False
        authorization = self._authorization
        return authorization is None or authorization.caller(context).may_on_topic(Operation.WRITE, name)

    def _add(self, version: int, checked: _Checked, answer: Callable[[Body], None]) -> None:
        """Any answer will do for partitions that are refused already."""
        transactional_id, producer, verify_only, _ = checked.addition

        def event(token: ReplyToken) -> Event:
            if verify_only:
                return VerifyPartitionsInTxn(token=token, producer=producer, partitions=tuple(checked.errors))
            return AddPartitionsToTxn(
                token=token,
                producer=producer,
                partitions=frozenset(checked.errors),
                transaction_version=version_of_add_partitions(version),
            )

        if checked.refused:
            answer(ErrorReply(error=ErrorCode.operation_not_attempted))
        elif version < BATCHED_FROM:
            self._add_for_client(transactional_id, event, answer)
        else:
            self._transactions.submit(transactional_id, event, answer)

    def _add_for_client(
        self, transactional_id: str, event: Callable[[ReplyToken], Event], answer: Callable[[Body], None]
    ) -> None:
        """Markers of the producer's last transaction are waited for, but not long."""
        retry = ConcurrentRetry(self._clock, self._tasks)

        def ask() -> None:
            self._transactions.submit(transactional_id, event, answered)

        def answered(body: Body) -> None:
            if not (body == _CONCURRENT and retry.schedule(ask)):
                answer(body)

        ask()

    def _codes(
        self, context: RequestContext, checked: _Checked, body: Body
    ) -> Iterator[tuple[TopicPartition, ErrorCode]]:
        errors: Iterable[ErrorCode]
        if checked.refused:
            errors = (error or ErrorCode.operation_not_attempted for error in checked.errors.values())
        elif isinstance(body, VerifyPartitionsReply):
            errors = body.errors
        else:
            error = body.code if isinstance(body, ApiError) else _expect(body, ErrorReply).error
            errors = repeat(error, len(checked.errors))
        told: dict[ErrorCode, ErrorCode] = {}
        for partition, error in zip(checked.errors, errors, strict=True):
            if error not in told:
                told[error] = self._told(context, error)
            yield partition, told[error]

    # AddOffsetsToTxn

    def add_offsets_to_txn(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
        offsets = TopicPartition(OFFSETS_TOPIC, self._groups.partition_of(request.group_id))

        def event(token: ReplyToken) -> AddPartitionsToTxn:
            return AddPartitionsToTxn(
                token=token,
                producer=Producer(request.producer_id, request.producer_epoch),
                partitions=frozenset({offsets}),
                transaction_version=BEFORE_KIP_890,  # clients of KIP-890 do not send this request
            )

        def finish(body: Body) -> dict[str, Any]:
            return {"error_code": self._told(context, _expect(body, ErrorReply).error)}

        self._add_for_client(request.transactional_id, event, reply.answer_with(finish))

    # EndTxn

    def end_txn(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
        def event(token: ReplyToken) -> EndTxn:
            return EndTxn(
                token=token,
                producer=Producer(request.producer_id, request.producer_epoch),
                committed=request.committed,
                transaction_version=version_of_end(context.api_version),
            )

        def finish(body: Body) -> dict[str, Any]:
            ended = _expect(body, ProducerReply)
            producer_id, epoch = ended.producer
            error = self._told(context, ended.error)
            return {"error_code": error, "producer_id": producer_id, "producer_epoch": epoch}

        self._transactions.submit(request.transactional_id, event, reply.answer_with(finish))

    # WriteTxnMarkers

    async def write_txn_markers(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Partitions are independent of each other: a long marker is written in parts."""
        writes = [
            (_marker(each), part)
            async for each in yielding(request.markers)
            for part in _parts(await unique(_marked(each)))
        ]
        answered: asyncio.Future[list[Codes]] = asyncio.get_running_loop().create_future()
        answers = _Answers[Codes](len(writes), partial(_set, answered))
        async for number, (marker, partitions) in yielding(enumerate(writes), at_a_time=1):
            self._markers.write(marker, partitions, partial(answers.put, number))
        codes: MarkerCodes = {each.producer_id: {} for each in request.markers}
        async for (marker, _), written in yielding(zip(writes, await answered, strict=True), at_a_time=10):
            for name, code in written.items():
                codes[marker.producer_id].setdefault(name.topic, {})[name.partition] = code
            for error in filter(None, set(written.values())):
                self._metrics.request_error(context.api_key, error, context.activity)
        return await markers_reply(codes)

    # DescribeTransactions

    async def describe_transactions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        return {
            "transaction_states": [
                {"transactional_id": name, **await self._describe(context, name)}
                async for name in yielding(await unique(request.transactional_ids))
            ]
        }

    async def _describe(self, context: RequestContext, transactional_id: str) -> dict[str, Any]:
        try:
            machine = await self._transactions.transactional_id(transactional_id)
            found = None if machine is None else describe(machine)
            if found is None:
                raise ApiError(ErrorCode.transactional_id_not_found)
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code, context.activity)
            return {"error_code": error.code}
        return _described(found)

    # ListTransactions

    async def list_transactions(self, context: RequestContext, request: Any) -> dict[str, Any]:
        wanted = ListingFilter(
            states=dict.fromkeys(request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            longer_than_ms=getattr(request, "duration_filter", -1),
        )
        machines = await self._transactions.listed()
        pattern = getattr(request, "transactional_id_pattern", None)
        if pattern:
            wanted = replace(wanted, matches_id=(await self._matching(pattern, machines)).__contains__)
        now_ms = self._clock.wall_ms()
        return {
            "unknown_state_filters": wanted.unknown_states,
            "transaction_states": [
                {
                    "transactional_id": found.transactional_id,
                    "producer_id": found.producer_id,
                    "transaction_state": found.state,
                }
                async for machine in yielding(machines)
                if (found := listing(machine, wanted, now_ms)) is not None
            ],
        }

    async def _matching(self, pattern: str, machines: Iterable[TransactionalId]) -> frozenset[str]:
        names = [machine.transactional_id async for machine in yielding(machines, 10 * ITEMS_PER_YIELD)]
        try:
            return await self._pattern_thread.run(matching, pattern, names)
        except InvalidPattern as error:
            raise ApiError(ErrorCode.invalid_regular_expression, str(error)) from None


class _Answers(Generic[T]):
    """Collects the answers to several questions; `done` gets them in the order of the questions."""

    __slots__ = ("_answers", "_done", "_missing")

    def __init__(self, count: int, done: Callable[[list[T]], None]) -> None:
        self._answers: dict[int, T] = {}
        self._missing = count
        self._done = done
        if not count:
            done([])

    def put(self, number: int, answer: T) -> None:
        self._answers[number] = answer
        self._missing -= 1
        if not self._missing:
            self._done([self._answers[each] for each in range(len(self._answers))])


def _set(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # the request was cancelled
        future.set_result(result)


def _expect(body: Body, wanted: type[T]) -> T:
    if isinstance(body, ApiError):
        raise body
    if not isinstance(body, wanted):
        raise TypeError(f"expected {wanted.__name__}, not {body!r}")
    return body


def additions_in(version: int, request: Any) -> list[Addition]:
    """The transactions of an AddPartitionsToTxn request; one below version 4."""
    if version >= BATCHED_FROM:
        return [
            Addition(
                each.transactional_id,
                Producer(each.producer_id, each.producer_epoch),
                each.verify_only,
                each.topics,
            )
            for each in request.transactions
        ]
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    return [Addition(request.v3_and_below_transactional_id, producer, False, request.v3_and_below_topics)]


def added_reply(version: int, results: Sequence[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """`results`: of each transactional id, by topic."""
    if version >= BATCHED_FROM:
        entries = [{"transactional_id": name, "topic_results": topics} for name, topics in results]
        return {"error_code": ErrorCode.none, "results_by_transaction": entries}
    ((_, topics),) = results
    return {"results_by_topic_v3_and_below": topics}


def topic_results(codes: Iterable[tuple[TopicPartition, ErrorCode]]) -> list[dict[str, Any]]:
    """The results of one transaction."""
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, index), code in codes:
        found.setdefault(name, []).append({"partition_index": index, "partition_error_code": code})
    return [{"name": name, "results_by_partition": results} for name, results in found.items()]


def _marker(entry: Any) -> Marker:
    return Marker(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        committed=entry.transaction_result,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_version=getattr(entry, "transaction_version", BEFORE_KIP_890),
    )


def _marked(entry: Any) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in entry.topics for index in topic.partition_indexes)


def _parts(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(partitions), ITEMS_PER_YIELD):
        yield partitions[start : start + ITEMS_PER_YIELD]


async def markers_reply(codes: MarkerCodes) -> dict[str, Any]:
    """One entry for each producer, as Apache Kafka answers also when a request has two markers of one."""
    return {
        "markers": [
            {
                "producer_id": producer_id,
                "topics": [
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": index, "error_code": code}
                            for index, code in partitions.items()
                        ],
                    }
                    async for name, partitions in yielding(topics.items())
                ],
            }
            async for producer_id, topics in yielding(codes.items())
        ]
    }


def _described(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transaction_state": found.state,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_timestamp,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": name, "partitions": [each.partition for each in partitions]}
            for name, partitions in groupby(found.partitions, attrgetter("topic"))
        ],
    }
