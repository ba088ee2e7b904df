# SPDX-License-Identifier: Apache-2.0
"""Asks the coordinator of a transactional id about the partitions that its producer writes to (KIP-890).

Asked by the leader of a partition before the first batch of a transaction, and by a group's coordinator
before the first offsets of one. Either whether the partition is part of the transaction (`verify_only`: the
producer has added it itself), or to add it. A coordinator on this node is asked without a socket. Others get
one request at a time; what comes meanwhile is sent together in the next one. Every question is answered: a
node that cannot be reached within ANSWER_TIMEOUT_MS counts as NETWORK_EXCEPTION.
Read next: handlers/produce.py, handlers/group_offsets.py, machines/transactions/versions.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from headrace.broker.coordinators.machine_driver import Answer
from headrace.broker.metrics import TransactionCounters
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.broker.transactions.concurrent_retry import ConcurrentRetry
from headrace.errors import ApiError
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    ErrorReply,
    Producer,
    VerifyPartitionsInTxn,
    VerifyPartitionsReply,
)
from headrace.machines.transactions.versions import KIP_890
from headrace.types import Node, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Clock, Tasks

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 5_000
ENROLMENT = "enrolment"
"""The purpose of the connections to other nodes."""
_ADD_PARTITIONS_VERSION = 5
MOST_PARTITIONS = 5_000
"""Of one request: a receiver bounds what it reads (wire/request_bounds.py)."""

Errors = Mapping[TopicPartition, ErrorCode]
"""Of every partition that was asked about."""


class Coordinator(Protocol):
    """What is needed of the transaction coordinator of this node."""

    def coordinator_of(self, transactional_id: str) -> Node | None: ...

    def submit(
        self, transactional_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer
    ) -> None: ...


class _Question:
    """Compared by identity."""

    __slots__ = (
        "answer", "partitions", "producer", "retry", "transactional_id", "verify_only",
    )  # fmt: skip

    def __init__(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        verify_only: bool,
        answer: Callable[[Errors], None],
        retry: ConcurrentRetry,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.partitions = partitions
        self.verify_only = verify_only
        self.answer = answer
        self.retry = retry

    def errors(self, code: ErrorCode) -> Errors:
        return dict.fromkeys(self.partitions, code)


class _NodeQueue:
    """What is to be asked of one node."""

    __slots__ = ("sending", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Question] = []
        self.sending = False

    def take(self) -> list[_Question]:
        """The questions of the next request, which has one entry for each transactional id."""
        taken: dict[str, _Question] = {}
        together: list[_Question] = []
        later: list[_Question] = []
        partitions = 0
        for each in self.waiting:
            partitions += len(each.partitions)
            first = taken.setdefault(each.transactional_id, each)
            alike = (first.producer, first.verify_only) == (each.producer, each.verify_only)
            fits = partitions <= MOST_PARTITIONS or not together
            (together if alike and fits else later).append(each)
        self.waiting = later
        return together


class Enrolment:
    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        tasks: Tasks,
        coordinator: Coordinator,
        peers: Peers,
        counters: TransactionCounters,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._tasks = tasks
        self._coordinator = coordinator
        self._peers = peers
        self._counters = counters
        self._open: dict[_Question, None] = {}
        self._queues: dict[int, _NodeQueue] = {}
        self._stopped = False

    def enrol(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        *,
        verify_only: bool,
        answer: Callable[[Errors], None],
    ) -> None:
        """`answer` is called exactly once, perhaps before this returns; it must not raise.

        The errors are those of the coordinator; handlers spell them as their API's version does.
        """
        retry = ConcurrentRetry(self._clock, self._tasks)
        question = _Question(transactional_id, producer, partitions, verify_only, answer, retry)
        self._open[question] = None
        self._ask(question)

    def ask(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        *,
        verify_only: bool,
    ) -> asyncio.Future[Errors]:
        """As `enrol`, for coroutines. Done at once where a coordinator on this node has answered."""
        answered: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

        def answer(errors: Errors) -> None:
            if not answered.done():  # the caller was cancelled
                answered.set_result(errors)

        self.enrol(transactional_id, producer, partitions, verify_only=verify_only, answer=answer)
        return answered

    def stop(self) -> None:
        """Answers all that is open, and whatever is asked from now on: the producer looks for the leader."""
        self._stopped = True
        for queue in self._queues.values():
            queue.waiting.clear()
        self._fail(list(self._open), ErrorCode.network_exception)

    def _ask(self, question: _Question) -> None:
        if question not in self._open:
            return
        node = self._coordinator.coordinator_of(question.transactional_id)
        if self._stopped:
            self._finish(question, question.errors(ErrorCode.network_exception))
        elif node is None:
            self._finish(question, question.errors(ErrorCode.coordinator_not_available))
        elif node.node_id == self._node_id:
            self._ask_here(question)
        else:
            self._ask_node(node.node_id, question)

    def _answered(self, question: _Question, errors: Errors) -> None:
        concurrent = not question.verify_only and ErrorCode.concurrent_transactions in errors.values()
        if question in self._open and concurrent and question.retry.schedule(partial(self._ask, question)):
            return
        self._finish(question, errors)

    def _finish(self, question: _Question, errors: Errors) -> None:
        if question not in self._open:
            return
        del self._open[question]
        self._counters.failed_verifications += sum(code is not ErrorCode.none for code in errors.values())
        question.answer(errors)

    def _fail(self, questions: Iterable[_Question], code: ErrorCode) -> None:
        for each in questions:
            self._finish(each, each.errors(code))

    # A coordinator on this node

    def _ask_here(self, question: _Question) -> None:
        asked = tuple(question.partitions)

        def event(token: ReplyToken) -> Event:
            if question.verify_only:
                return VerifyPartitionsInTxn(token=token, producer=question.producer, partitions=asked)
            return AddPartitionsToTxn(
                token=token,
                producer=question.producer,
                partitions=question.partitions,
                transaction_version=KIP_890,
            )

        def answer(body: ReplyBody | ApiError) -> None:
            if isinstance(body, VerifyPartitionsReply):
                self._answered(question, dict(zip(asked, body.errors, strict=True)))
            elif isinstance(body, ErrorReply):
                self._answered(question, question.errors(body.error))
            elif isinstance(body, ApiError):
                self._answered(question, question.errors(body.code))
            else:
                raise TypeError(f"no reply to {question.transactional_id!r}: {body!r}")

        self._coordinator.submit(question.transactional_id, event, answer)

    # A coordinator on another node

    def _ask_node(self, node_id: int, question: _Question) -> None:
        queue = self._queues.setdefault(node_id, _NodeQueue())
        for other in list(queue.waiting):
            if other.transactional_id != question.transactional_id:
                continue
            if other.producer.epoch > question.producer.epoch:
                self._finish(question, question.errors(ErrorCode.invalid_producer_epoch))
                return
            if other.producer.epoch < question.producer.epoch:
                queue.waiting.remove(other)
                self._finish(other, other.errors(ErrorCode.invalid_producer_epoch))
        queue.waiting.append(question)
        if not queue.sending:
            queue.sending = True
            self._tasks.spawn(self._send_waiting(node_id, queue), name=f"enrolment at node {node_id}")

    async def _send_waiting(self, node_id: int, queue: _NodeQueue) -> None:
        while queue.waiting:
            questions = queue.take()
            try:
                reply = await self._send(node_id, questions)
                answers = [(each, _errors_in(reply, each)) for each in questions]
            except Exception as error:  # whatever it was: nobody may wait for ever
                unforeseen = None if isinstance(error, PeerLost) else error
                logger.warning("transactions are not verified: %s", error, exc_info=unforeseen)
                self._peers.drop(node_id, ENROLMENT)  # replies come in order: this one would delay the next
                questions += queue.waiting
                queue.waiting = []
                self._fail(questions, ErrorCode.network_exception)
                continue
            for question, errors in answers:
                self._answered(question, errors)
        queue.sending = False

    async def _send(self, node_id: int, questions: list[_Question]) -> Any:
        asked: dict[str, tuple[_Question, set[TopicPartition]]] = {}
        for each in questions:
            _, partitions = asked.setdefault(each.transactional_id, (each, set()))
            partitions |= each.partitions
        transactions = [
            {
                "transactional_id": transactional_id,
                "producer_id": first.producer.producer_id,
                "producer_epoch": first.producer.epoch,
                "verify_only": first.verify_only,
                "topics": _by_topic(partitions),
            }
            for transactional_id, (first, partitions) in asked.items()
        ]
        return await self._peers.request(
            node_id,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            _ADD_PARTITIONS_VERSION,
            {"transactions": transactions},
            ANSWER_TIMEOUT_MS,
            purpose=ENROLMENT,
        )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [{"name": name, "partitions": indexes} for name, indexes in topics.items()]


def _errors_in(reply: Any, question: _Question) -> Errors:
    if reply.error_code is not ErrorCode.none:
        # A producer must not hear of the rights of a node, as in Kafka.
        denied = reply.error_code is ErrorCode.cluster_authorization_failed
        return question.errors(ErrorCode.invalid_txn_state if denied else reply.error_code)
    found = {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for result in reply.results_by_transaction
        if result.transactional_id == question.transactional_id
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    return {name: found.get(name, ErrorCode.network_exception) for name in question.partitions}
