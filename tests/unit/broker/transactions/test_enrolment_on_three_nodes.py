# SPDX-License-Identifier: Apache-2.0
"""Leaders that ask a transaction coordinator on another node, over the connections between nodes."""

from __future__ import annotations

import pytest

from headrace.broker.transactions.coordinator import TRANSACTIONS_TOPIC
from headrace.broker.transactions.enrolment import ANSWER_TIMEOUT_MS
from headrace.machines.transactions.versions import KIP_890
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import TOPIC
from tests.harness.broker.three_nodes import SimMember, SimTrio, on_three_nodes
from tests.harness.transactions.node_transactions import NEW, OLD, HeldAnswers, TransactionalProducer

NONE, NO_OFFSET = ErrorCode.none, -1
SETTINGS = {"transaction.state.log.num.partitions": "6"}


async def led_elsewhere(trio: SimTrio) -> tuple[TransactionalProducer, SimMember]:
    """A producer for the leader of the topic, and another node that coordinates its transactional id."""
    leader = trio.members[1]
    await trio.create(1, 2, 3)
    await leader.broker.transactions.ensure_topic()
    await trio.until(lambda: all(TRANSACTIONS_TOPIC in each.broker.cluster.view.topics for each in trio.up))
    for number in range(100):
        name = f"tx-{number}"
        node = leader.broker.transactions.coordinator_of(name)
        if node is not None and node.node_id != leader.node_id:
            break
    else:
        raise AssertionError("no transactional id is coordinated elsewhere")
    coordinator = trio.members[node.node_id]
    producer = TransactionalProducer(leader, name, coordinator=coordinator)
    return await producer.init(), coordinator


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_is_verified_or_added_at_its_coordinator(version: int) -> None:
    async def scenario(trio: SimTrio) -> None:
        producer, coordinator = await led_elsewhere(trio)
        if version == OLD:
            refused = await producer.produce(b"v", sequence=0)
            assert refused == (ErrorCode.invalid_txn_state, NO_OFFSET)
            await producer.add()
        for offset in range(3):
            assert await producer.produce(b"v", version=version) == (NONE, offset)
        known = await coordinator.broker.transactions.transactional_id(producer.transactional_id)
        assert known is not None
        assert known.metadata is not None
        assert known.metadata.partitions == {TopicPartition(TOPIC, 0)}
        await producer.end(version=KIP_890 if version == NEW else 0)
        await producer.completed()
        assert trio.leader.log_end == 4

    on_three_nodes(scenario, settings=SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_coordinator_that_died_is_out_of_reach_until_another_takes_over(version: int) -> None:
    async def scenario(trio: SimTrio) -> None:
        producer, coordinator = await led_elsewhere(trio)
        await producer.add()
        await coordinator.kill()
        began = trio.clients.clock.monotonic()
        assert await producer.produce(b"v", sequence=0, version=version) in (
            (ErrorCode.not_enough_replicas, NO_OFFSET),
            (NONE, 0),
        )
        assert trio.clients.clock.monotonic() - began < ANSWER_TIMEOUT_MS / 1000 + 1
        deadline = trio.clients.clock.monotonic() + 60
        while (await producer.produce(b"v", sequence=0, version=version)) != (NONE, 0):
            assert trio.clients.clock.monotonic() < deadline
            await trio.clients.tasks.sleep(0.1)

    on_three_nodes(scenario, settings=SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_coordinator_that_does_not_answer_is_waited_for_no_longer_than_the_limit(version: int) -> None:
    async def scenario(trio: SimTrio) -> None:
        producer, coordinator = await led_elsewhere(trio)
        await producer.add()
        answers = HeldAnswers.of_requests(coordinator)
        began = trio.clients.clock.monotonic()
        refused = await producer.produce(b"v", sequence=0, version=version)
        assert refused == (ErrorCode.not_enough_replicas, NO_OFFSET)
        waited_s = trio.clients.clock.monotonic() - began
        assert 0 <= waited_s - ANSWER_TIMEOUT_MS / 1000 < 0.5
        answers.holds = False
        assert await producer.produce(b"v", sequence=0, version=version) == (NONE, 0)

    on_three_nodes(scenario, settings=SETTINGS)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_batch_for_a_leader_whose_epoch_is_not_on_disk_is_verified_when_it_is(version: int) -> None:
    async def scenario(trio: SimTrio) -> None:
        producer, _ = await led_elsewhere(trio)
        await producer.add()
        partition = trio.leader.partition()
        partition.become_leader(partition.role, partition.leader_epoch)
        assert not partition.takes_writes
        trio.clients.tasks.call_later(0.5, partition.open_for_writes)
        began = trio.clients.clock.monotonic()
        assert await producer.produce(b"v", version=version) == (NONE, 0)
        assert trio.clients.clock.monotonic() - began >= 0.5

    on_three_nodes(scenario, settings=SETTINGS)
