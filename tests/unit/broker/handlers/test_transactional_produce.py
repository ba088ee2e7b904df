# SPDX-License-Identifier: Apache-2.0
"""Produce in transactions: who is asked before the first batch, what a marker in between does, the codes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.broker.network.connection import KafkaConnection
from headrace.broker.network.request_tasks import RequestTasks
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.validation import record_validation
from headrace.machines.transactions.events import Producer
from headrace.machines.transactions.versions import KIP_890
from headrace.testing.simworld import WorkProfile
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import PRODUCE, SimBroker, on_a_node
from tests.harness.transactions.node_transactions import (
    ID,
    NEW,
    OLD,
    HeldAnswers,
    HeldQuestions,
    TransactionalProducer,
    pipelined,
    result_of,
)

NONE = ErrorCode.none
NO_OFFSET = -1
VERIFICATION = "transaction.partition.verification.enable"
UNVERIFIED = {VERIFICATION: "false"}


async def started(node: SimBroker, partitions: int = 1, **configs: str) -> TransactionalProducer:
    await node.create(partitions=partitions, **configs)
    return await TransactionalProducer(node).init()


# Verification, for clients that add partitions themselves


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.invalid_txn_state),
        (OLD, ErrorCode.invalid_txn_state),
        (10, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable),
    ],
)
def test_a_batch_of_a_partition_that_was_not_added_is_refused(version: int, code: ErrorCode) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node, partitions=2)
        await producer.add(1)
        assert await producer.produce(b"v", version=version) == (code, NO_OFFSET)
        assert node.partition().log_end_offset == 0
        assert node.broker.metrics.transactions.failed_verifications == 1

    on_a_node(scenario)


def test_only_the_first_batch_of_a_transaction_asks_the_coordinator() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        answers = HeldAnswers(node)
        answers.holds = False
        await producer.add()
        assert [await producer.produce(b"v") for _ in range(3)] == [(NONE, 0), (NONE, 1), (NONE, 2)]
        assert answers.asked == 1
        await producer.end()
        await producer.completed()
        assert await producer.produce(b"late") == (ErrorCode.invalid_txn_state, NO_OFFSET)
        await producer.add()
        assert await producer.produce(b"v", sequence=3) == (NONE, 4)
        assert answers.asked == 3

    on_a_node(scenario)


def test_partitions_of_one_request_are_verified_by_one_question() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node, partitions=3)
        answers = HeldAnswers(node)
        answers.holds = False
        await producer.add(0, 2)
        batches = {index: producer.batch(b"v", index=index) for index in range(3)}
        connection = await node.connect()
        reply = await connection.call(PRODUCE, producer.request(batches), version=OLD)
        codes = [result_of(reply, place)[0] for place in range(3)]
        assert codes == [NONE, ErrorCode.invalid_txn_state, NONE]
        assert answers.asked == 1

    on_a_node(scenario)


@pytest.mark.parametrize(("version", "tasks"), [(OLD, 0), (NEW, 1)])
def test_only_a_question_that_takes_time_costs_a_task(
    version: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator on this node verifies at once; one that adds the partition writes that down first."""
    started_for: list[KafkaConnection] = []
    start = RequestTasks.start

    def counted(self: RequestTasks, connection: KafkaConnection, request: Coroutine[Any, Any, None]) -> None:
        started_for.append(connection)
        start(self, connection, request)

    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        if version == OLD:
            await producer.add()
        connection = await node.connect()
        monkeypatch.setattr(RequestTasks, "start", counted)
        reply = await connection.call(PRODUCE, producer.fields(b"v"), version=version)
        monkeypatch.undo()
        assert result_of(reply) == (NONE, 0)
        assert len(started_for) == tasks

    on_a_node(scenario)


def test_a_request_with_transactions_of_two_producers_is_refused() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node, partitions=2)
        await producer.add(0, 1)
        batches = {0: producer.batch(b"v"), 1: producer.batch(b"v", index=1, producer_id=4711)}
        connection = await node.connect()
        reply = await connection.call(PRODUCE, producer.request(batches), version=OLD)
        refused = (ErrorCode.invalid_producer_id_mapping, NO_OFFSET)
        assert [result_of(reply, place) for place in range(2)] == [refused, refused]

    on_a_node(scenario)


def test_a_fenced_producer_and_an_unknown_one_are_refused_by_their_coordinator() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        old = producer.producer
        await producer.init()
        await producer.add()
        fields = producer.fields(b"v", producer_epoch=old.epoch, sequence=0)
        for version in (OLD, NEW):
            refused = await producer.send(fields, version=version)
            assert refused == (ErrorCode.invalid_producer_epoch, NO_OFFSET)
        unknown = await producer.produce(b"v", producer_id=4711, sequence=0)
        assert unknown == (ErrorCode.invalid_producer_id_mapping, NO_OFFSET)

    on_a_node(scenario)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_without_a_coordinator_the_producer_is_told_to_retry(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        producer = TransactionalProducer(node)
        producer.producer = Producer(7, 0)
        refused = await producer.produce(b"v", version=version)
        assert refused == (ErrorCode.not_enough_replicas, NO_OFFSET)

    on_a_node(scenario)


def test_verification_can_be_switched_off_for_old_clients_only() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        answers = HeldAnswers(node)
        answers.holds = False
        assert await producer.produce(b"v") == (NONE, 0)
        assert answers.asked == 0
        other = await TransactionalProducer(node, "other").init()
        assert await other.produce(b"v", version=NEW) == (NONE, 1)
        assert answers.asked == 1

    on_a_node(scenario, settings=UNVERIFIED)


def test_verification_can_be_switched_while_the_node_runs() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        assert await node.alter_nodes(VERIFICATION, "false") == 0
        assert await producer.produce(b"v") == (NONE, 0)
        assert await node.alter_nodes(VERIFICATION, "true") == 0
        other = await TransactionalProducer(node, "other").init()
        refused = await other.produce(b"v", version=11)
        assert refused == (ErrorCode.transaction_abortable, NO_OFFSET)

    on_a_node(scenario)


# Addition, from Produce 12 on


def test_the_leader_adds_its_partition_and_each_transaction_has_a_new_epoch() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        for number in range(3):
            epoch = producer.producer.epoch
            first = await producer.produce(b"a", version=NEW)
            assert first == (NONE, 3 * number), "CONCURRENT_TRANSACTIONS is retried by the leader"
            assert (await producer.produce(b"b", version=NEW))[0] is NONE
            known = await node.broker.transactions.transactional_id(ID)
            assert known is not None
            assert known.metadata is not None
            assert known.metadata.partitions == {TopicPartition("t", 0)}
            await producer.end(version=KIP_890)
            assert producer.producer.epoch == epoch + 1

    on_a_node(scenario)


def test_a_transaction_of_version_2_begins_with_sequence_0() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        refused = await producer.produce(b"v", sequence=1, version=NEW)
        assert refused == (ErrorCode.out_of_order_sequence_number, NO_OFFSET)
        assert await producer.produce(b"v", version=NEW) == (NONE, 0)

    on_a_node(scenario)


def test_concurrent_transactions_are_told_when_the_markers_take_long() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.produce(b"v", version=NEW)
        old = producer.producer
        node.simulation.machine("node").work = WorkProfile(least_ms=400, most_ms=400, slow_probability=0)
        await producer.end(version=KIP_890)
        began = node.clients.clock.monotonic()
        refused = await producer.produce(b"v", version=NEW)
        assert refused == (ErrorCode.concurrent_transactions, NO_OFFSET)
        assert 0.1 <= node.clients.clock.monotonic() - began < 0.2
        late = await producer.produce(b"late", producer_epoch=old.epoch, sequence=1)
        assert late[0] in (ErrorCode.not_enough_replicas, ErrorCode.invalid_producer_epoch)

    on_a_node(scenario)


# The guard


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_between_question_and_append_refuses_the_late_batch(committed: bool) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        answers = HeldAnswers(node)
        connection = await node.connect()
        (reply,) = pipelined(connection, [producer.fields(b"late")], OLD)
        await answers.wait_for(1)
        await producer.end(committed=committed)
        while node.partition().log_end_offset < 1:
            await node.clients.tasks.sleep(0.01)
        answers.deliver()
        assert result_of(await reply) == (ErrorCode.invalid_txn_state, NO_OFFSET)
        assert node.partition().log_end_offset == 1, "the marker only"

    on_a_node(scenario)


def test_the_next_transaction_may_begin_before_the_marker_of_the_last() -> None:
    """The marker drops the guard while the coordinator is asked, which is then asked again."""

    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.produce(b"v", version=NEW)
        questions = HeldQuestions(node)
        connection = await node.connect()
        next_epoch = producer.producer.epoch + 1
        fields = producer.fields(b"next", producer_epoch=next_epoch, sequence=0)
        (reply,) = pipelined(connection, [fields], NEW)
        await questions.wait_for_one()
        await producer.end(version=KIP_890)
        assert producer.producer.epoch == next_epoch
        await producer.completed()
        questions.let_through()
        assert result_of(await reply) == (NONE, 2)

    on_a_node(scenario)


def test_a_marker_between_question_and_append_fences_the_late_batch_of_version_2() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        answers = HeldAnswers(node)
        connection = await node.connect()
        (reply,) = pipelined(connection, [producer.fields(b"late")], NEW)
        await answers.wait_for(1)
        await producer.end(version=KIP_890)
        await producer.completed()
        answers.holds = False
        answers.deliver()
        assert result_of(await reply) == (ErrorCode.invalid_producer_epoch, NO_OFFSET)
        assert node.partition().log_end_offset == 1, "the marker only"

    on_a_node(scenario)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_batches_behind_one_that_waits_for_the_coordinator_keep_their_order(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        answers = HeldAnswers(node)
        connection = await node.connect()
        requests = [producer.fields(b"%d" % number) for number in range(5)]
        replies = pipelined(connection, requests, version)
        await answers.wait_for(1)
        assert node.partition().log_end_offset == 0
        answers.deliver()
        assert [result_of(await reply) for reply in replies] == [(NONE, n) for n in range(5)]
        assert answers.asked == 1
        await producer.end()
        assert (await node.values())[:5] == [b"0", b"1", b"2", b"3", b"4"]

    on_a_node(scenario)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_batch_on_another_connection_does_not_overtake_one_that_waits(version: int) -> None:
    """Its producer lost the first connection; both batches wait for the coordinator."""

    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        answers = HeldAnswers(node)
        first = pipelined(await node.connect(), [producer.fields(b"first")], version)[0]
        await answers.wait_for(1)
        second = pipelined(await node.connect(), [producer.fields(b"second")], version)[0]
        await answers.wait_for(2)
        answers.deliver(1)
        assert result_of(await second) == (ErrorCode.out_of_order_sequence_number, NO_OFFSET)
        answers.deliver()
        assert result_of(await first) == (NONE, 0)
        assert await producer.produce(b"second", sequence=1, version=version) == (NONE, 1)

    on_a_node(scenario)


def test_a_stop_of_the_node_answers_a_request_that_waits_for_the_coordinator() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        answers = HeldAnswers(node)
        (reply,) = pipelined(await node.connect(), [producer.fields(b"v")])
        await answers.wait_for(1)
        await node.stop()
        assert result_of(await reply) == (ErrorCode.not_enough_replicas, NO_OFFSET)

    on_a_node(scenario)


# What requests may carry


def test_a_batch_of_a_transaction_needs_a_transactional_id_also_in_an_open_one() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        refused = (ErrorCode.transactional_id_authorization_failed, NO_OFFSET)
        for _ in range(2):
            fields = producer.fields(b"v", sequence=producer.sequences.get(0, 0))
            assert await producer.send({**fields, "transactional_id": None}) == refused
            assert (await producer.produce(b"v"))[0] is NONE

    on_a_node(scenario)


def test_a_transactional_id_does_not_make_a_transaction_of_plain_batches() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        assert await producer.produce(b"v", is_transactional=False) == (NONE, 0)
        await producer.add()
        assert await producer.produce(b"v") == (NONE, 1)
        refused = await producer.produce(b"v", is_transactional=False)
        assert refused == (ErrorCode.invalid_txn_state, NO_OFFSET)

    on_a_node(scenario)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_acknowledgement_by_the_leader_alone_is_allowed(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add()
        assert await producer.produce(b"v", acks=1, version=version) == (NONE, 0)
        assert await producer.produce(b"v", acks=1, version=version) == (NONE, 1)

    on_a_node(scenario)


def test_a_batch_without_acknowledgement_is_verified_and_a_refusal_closes_the_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node, partitions=2)
        await producer.add()
        connection = await node.connect()
        connection.send_without_reply(PRODUCE, producer.fields(b"v", acks=0), version=OLD)
        while node.partition().log_end_offset < 1:
            await node.clients.tasks.sleep(0.01)
        assert connection.is_open
        connection.send_without_reply(PRODUCE, producer.fields(b"v", acks=0, index=1), version=OLD)
        await connection.ended()
        assert node.partition(index=1).log_end_offset == 0

    on_a_node(scenario)


# Requests appended together


def test_requests_of_a_run_do_not_begin_a_transaction_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like requests on one connection, behind the end of their transaction and within a run of plain ones."""
    offered: list[int] = []
    append_run = Partition.append_run

    def watched(partition: Partition, view: memoryview, frames: list[object], on_ack: object) -> object:
        offered.append(len(frames))
        return append_run(partition, view, frames, on_ack)  # type: ignore[arg-type]

    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        connection = await node.connect()
        await producer.add()
        open_ones = pipelined(connection, [producer.fields(b"v") for _ in range(8)])
        assert [result_of(await reply) for reply in open_ones] == [(NONE, n) for n in range(8)]
        await producer.end()
        await producer.completed()
        late = pipelined(connection, [producer.fields(b"v") for _ in range(80)])
        codes = {result_of(await reply)[0] for reply in late}
        assert codes == {ErrorCode.invalid_txn_state}
        assert node.partition().log_end_offset == 9, "a marker behind eight records"
        plain = [producer.fields(b"v", is_transactional=False, sequence=8 + n) for n in range(100)]
        plain += [producer.fields(b"v", sequence=108 + n) for n in range(5)]
        codes_of_run = [result_of(await reply)[0] for reply in pipelined(connection, plain)]
        assert codes_of_run == [NONE] * 100 + [ErrorCode.invalid_txn_state] * 5
        assert offered

    monkeypatch.setattr(Partition, "append_run", watched)
    on_a_node(scenario)


# With what else a batch waits for


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_batch_that_the_worker_validates_is_verified_behind_it(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_validation, "AT_ONCE", record_validation.ONE_BY_ONE)

    async def scenario(node: SimBroker) -> None:
        producer = await started(node, cleanup_policy="compact")
        many = [b"v%d" % number for number in range(2000)]
        if version == OLD:
            refused = await producer.produce(*many, sequence=0)
            assert refused == (ErrorCode.invalid_txn_state, NO_OFFSET)
            await producer.add()
        assert await producer.produce(*many, version=version) == (NONE, 0)
        assert await producer.produce(*many, version=version) == (NONE, 2000)

    on_a_node(scenario)
