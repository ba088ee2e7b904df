# SPDX-License-Identifier: Apache-2.0
"""A transactional producer of a simulated node: its coordinator is asked directly, Produce by its bytes.

`HeldAnswers` keeps the coordinator's answers to leaders until a test wants them delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.broker.coordinators.machine_driver import Answer
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.errors import ApiError
from headrace.machines.machine import Event, ReplyBody, ReplyToken
from headrace.machines.transactions.events import (
    AddPartitionsToTxn,
    EndTxn,
    ErrorReply,
    InitProducerId,
    Producer,
    ProducerReply,
)
from headrace.machines.transactions.transitions import IDLE
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.types import Node, TopicPartition
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.broker.simulated_node import PRODUCE, TOPIC, SimBroker
from tests.harness.simulation.clients import SimConnection

ID = "tx"
OLD, NEW = 8, 12
"""Versions of Produce before and after leaders add their partitions."""


class TransactionalProducer:
    def __init__(
        self, node: SimBroker, transactional_id: str = ID, *, coordinator: SimBroker | None = None
    ) -> None:
        """`node`: where it produces; it may be changed. `coordinator`: another node, which coordinates."""
        self.node = node
        self.coordinating = coordinator
        self.transactional_id = transactional_id
        self.producer = Producer(-1, -1)
        self.sequences: dict[int, int] = {}

    @property
    def coordinator(self) -> TransactionCoordinator:
        return (self.coordinating or self.node).broker.transactions

    async def init(self) -> TransactionalProducer:
        await self.coordinator.ensure_topic()
        reply = await self._ask(lambda token: InitProducerId(token=token, timeout_ms=60_000))
        assert isinstance(reply, ProducerReply)
        assert reply.error is ErrorCode.none
        self._continue_as(reply.producer)
        return self

    def _continue_as(self, producer: Producer) -> None:
        if producer != self.producer:
            self.sequences = {}
        self.producer = producer

    async def add(self, *indexes: int, topic: str = TOPIC) -> None:
        """As AddPartitionsToTxn of a client before KIP-890."""
        names = frozenset(TopicPartition(topic, index) for index in indexes or (0,))
        reply = await self._ask(
            lambda token: AddPartitionsToTxn(
                token=token, producer=self.producer, partitions=names, transaction_version=BEFORE_KIP_890
            )
        )
        assert reply == ErrorReply()

    async def end(self, *, committed: bool = True, version: int = BEFORE_KIP_890) -> None:
        reply = await self._ask(
            lambda token: EndTxn(
                token=token, producer=self.producer, committed=committed, transaction_version=version
            )
        )
        assert isinstance(reply, ProducerReply)
        assert reply.error is ErrorCode.none
        if version >= KIP_890:
            self._continue_as(reply.producer)

    async def completed(self) -> None:
        """Until all markers of the transaction that was ended are written."""
        while True:
            known = await self.coordinator.transactional_id(self.transactional_id)
            if known is not None and known.metadata is not None and known.metadata.state in IDLE:
                return
            await self.node.clients.tasks.sleep(0.01)

    async def _ask(self, event: Callable[[ReplyToken], Event]) -> ReplyBody:
        """Asks until the coordinator is loaded and the markers before are written."""
        while True:
            try:
                reply = await self.coordinator.ask(self.transactional_id, event)
            except ApiError as error:
                if error.code is not ErrorCode.coordinator_load_in_progress:
                    raise
            else:
                if getattr(reply, "error", None) is not ErrorCode.concurrent_transactions:
                    return reply
            await self.node.clients.tasks.sleep(0.01)

    def batch(self, *values: bytes, index: int = 0, sequence: int | None = None, **fields: Any) -> bytes:
        """The next of the partition, unless a sequence is given."""
        if sequence is None:
            sequence = self.sequences.get(index, 0)
            self.sequences[index] = sequence + len(values)
        now_ms = self.node.clients.clock.wall_ms()
        records = [Record(place, now_ms, b"key", value) for place, value in enumerate(values)]
        wanted = {
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        }
        return bytes(build_batch(records, **{**wanted, **fields}))

    def fields(self, *values: bytes, acks: int = -1, **batch: Any) -> dict[str, Any]:
        index = batch.get("index", 0)
        return self.request({index: self.batch(*values, **batch)}, acks=acks)

    def request(self, batches: dict[int, bytes], *, acks: int = -1) -> dict[str, Any]:
        data = [{"index": index, "records": batch} for index, batch in batches.items()]
        topic_data = [{"name": TOPIC, "partition_data": data}]
        return {
            "transactional_id": self.transactional_id,
            "acks": acks,
            "timeout": 5000,
            "topic_data": topic_data,
        }

    async def produce(self, *values: bytes, version: int = OLD, **batch: Any) -> tuple[ErrorCode, int]:
        """(error code, offset) of one batch."""
        return await self.send(self.fields(*values, **batch), version=version)

    async def send(self, fields: dict[str, Any], *, version: int = OLD) -> tuple[ErrorCode, int]:
        connection = await self.node.connect()
        try:
            return result_of(await connection.call(PRODUCE, fields, version=version, timeout_ms=100_000))
        finally:
            connection.abort()


def result_of(reply: Any, place: int = 0) -> tuple[ErrorCode, int]:
    result = reply.responses[0].partition_responses[place]
    return ErrorCode(result.error_code), int(result.base_offset)


class HeldAnswers:
    """Between the enrolment of a node and its coordinator, or between that and what it keeps."""

    def __init__(self, node: SimBroker) -> None:
        self._real: Any = node.broker.transactions
        self._node = node
        self._answers: list[tuple[Answer, ReplyBody | ApiError]] = []
        self.asked = 0
        self.holds = True
        node.broker.enrolment._coordinator = self

    @classmethod
    def of_requests(cls, node: SimBroker) -> HeldAnswers:
        """Of all that is asked of the node's coordinator, also by other nodes."""
        held = cls(node)
        coordinator = node.broker.transactions
        held._real = coordinator._topic
        coordinator.submit = held.submit  # type: ignore[method-assign]
        node.broker.enrolment._coordinator = coordinator
        return held

    def coordinator_of(self, transactional_id: str) -> Node | None:
        found: Node | None = self._real.coordinator_of(transactional_id)
        return found

    def submit(
        self, transactional_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer
    ) -> None:
        self.asked += 1

        def answered(body: ReplyBody | ApiError) -> None:
            if self.holds:
                self._answers.append((answer, body))
            else:
                answer(body)

        self._real.submit(transactional_id, make_event, answered)

    async def wait_for(self, count: int) -> None:
        """Until so many answers are held."""
        for _ in range(2000):
            if len(self._answers) >= count:
                return
            await self._node.clients.tasks.sleep(0.005)
        raise AssertionError(f"{len(self._answers)} answers of {count}")

    def deliver(self, place: int = 0) -> None:
        answer, body = self._answers.pop(place)
        answer(body)


class HeldQuestions:
    """On their way from the enrolment of a node to its coordinator."""

    def __init__(self, node: SimBroker) -> None:
        self._real = node.broker.transactions
        self._node = node
        self._held: list[Callable[[], None]] | None = []
        node.broker.enrolment._coordinator = self

    def coordinator_of(self, transactional_id: str) -> Node | None:
        return self._real.coordinator_of(transactional_id)

    def submit(
        self, transactional_id: str, make_event: Callable[[ReplyToken], Event], answer: Answer
    ) -> None:
        if self._held is None:
            self._real.submit(transactional_id, make_event, answer)
        else:
            self._held.append(lambda: self._real.submit(transactional_id, make_event, answer))

    async def wait_for_one(self) -> None:
        while not self._held:
            await self._node.clients.tasks.sleep(0.005)

    def let_through(self) -> None:
        """Those that are held, and all from now on."""
        held, self._held = self._held or [], None
        for ask in held:
            ask()


def pipelined(connection: SimConnection, requests: list[dict[str, Any]], version: int = OLD) -> list[Any]:
    """The futures of their replies."""
    return [connection.send(PRODUCE, fields, version=version) for fields in requests]
