# SPDX-License-Identifier: Apache-2.0
"""TxnOffsetCommit on a whole node: offsets that pend until the marker, fencing, verification, error codes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.machines.transactions.events import Producer
from headrace.machines.transactions.versions import KIP_890
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import TOPIC, SimBroker, on_a_node
from tests.harness.transactions.node_transactions import (
    ID,
    HeldAnswers,
    HeldQuestions,
    TransactionalProducer,
)

GROUP = "g"
NONE = ErrorCode.none
VERSIONS = range(6)
FIRST_WITH_MEMBERS, FIRST_THAT_ADDS = 3, 5
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


async def started(node: SimBroker, partitions: int = 2) -> TransactionalProducer:
    await node.create(partitions=partitions)
    await node.broker.groups.ensure_topic()
    return await TransactionalProducer(node).init()


def group_partition(node: SimBroker) -> int:
    return node.broker.groups.partition_of(GROUP)


async def added(producer: TransactionalProducer) -> None:
    """As AddOffsetsToTxn does it."""
    await producer.add(group_partition(producer.node), topic=OFFSETS_TOPIC)


def commit_fields(
    producer: TransactionalProducer,
    offsets: dict[tuple[str, int], int],
    version: int,
    *,
    metadata: str = "",
    **options: Any,
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in offsets.items():
        partition = {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        if version >= 2:
            partition["committed_leader_epoch"] = -1
        topics.setdefault(topic, []).append(partition)
    fields = {
        "transactional_id": producer.transactional_id,
        "group_id": GROUP,
        "producer_id": producer.producer.producer_id,
        "producer_epoch": producer.producer.epoch,
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
    }
    if version >= FIRST_WITH_MEMBERS:
        fields |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return {**fields, **options}


def codes_in(reply: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in reply.topics for each in topic.partitions]


async def commit(
    producer: TransactionalProducer,
    offsets: dict[tuple[str, int], int] | None = None,
    version: int = 3,
    **options: Any,
) -> list[ErrorCode]:
    fields = commit_fields(producer, offsets or {(TOPIC, 0): 5}, version, **options)
    return codes_in(await call(producer.node, ApiKey.TXN_OFFSET_COMMIT, fields, version))


async def call(node: SimBroker, api_key: int, fields: dict[str, Any], version: int) -> Any:
    connection = await node.connect()
    try:
        return await connection.call(api_key, fields, version=version, timeout_ms=100_000)
    finally:
        connection.abort()


async def committed(node: SimBroker, *, stable: bool = False) -> int | ErrorCode:
    """The offset of the topic's first partition, -1 when there is none."""
    fields = {
        "group_id": GROUP,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        "require_stable": stable,
    }
    reply = await call(node, ApiKey.OFFSET_FETCH, fields, 7)
    (found,) = reply.topics[0].partitions
    code = ErrorCode(found.error_code)
    return int(found.committed_offset) if code is NONE else code


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_pend_until_the_marker(version: int, commits: bool) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        if version < FIRST_THAT_ADDS:
            await added(producer)
        assert await commit(producer, version=version) == [NONE]
        assert await committed(node) == -1
        assert await committed(node, stable=True) is ErrorCode.unstable_offset_commit
        await producer.end(committed=commits, version=KIP_890 if version >= FIRST_THAT_ADDS else 0)
        await producer.completed()
        assert await committed(node, stable=True) == (5 if commits else -1)

    on_a_node(scenario)


def test_the_groups_coordinator_adds_its_partition_and_asks_once() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        answers = HeldAnswers(node)
        answers.holds = False
        for offset in (5, 6):
            assert await commit(producer, {(TOPIC, 0): offset}, version=5) == [NONE]
        assert answers.asked == 1
        known = await node.broker.transactions.transactional_id(ID)
        assert known is not None
        assert known.metadata is not None
        assert known.metadata.partitions == {TopicPartition(OFFSETS_TOPIC, group_partition(node))}
        await producer.end(version=KIP_890)
        await producer.completed()
        assert await committed(node) == 6

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.invalid_txn_state),
        (3, ErrorCode.invalid_txn_state),
        (4, ErrorCode.transaction_abortable),
    ],
)
def test_a_group_that_was_not_added_to_the_transaction_is_refused(version: int, code: ErrorCode) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await producer.add(0)
        assert await commit(producer, version=version) == [code]
        assert node.partition(OFFSETS_TOPIC, group_partition(node)).log_end_offset == 0

    on_a_node(scenario)


def test_verification_can_be_switched_off_for_old_clients_only() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        answers = HeldAnswers(node)
        answers.holds = False
        assert await commit(producer, version=3) == [NONE]
        assert answers.asked == 0
        other = await TransactionalProducer(node, "other").init()
        assert await commit(other, version=5) == [NONE]
        assert answers.asked == 1

    on_a_node(scenario, settings=UNVERIFIED)


def test_a_marker_between_question_and_append_refuses_late_offsets() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await added(producer)
        answers = HeldAnswers(node)
        late = asyncio.ensure_future(commit(producer, version=3))
        await answers.wait_for(1)
        await producer.end()
        await producer.completed()
        answers.deliver()
        assert await late == [ErrorCode.invalid_txn_state]
        assert await committed(node, stable=True) == -1

    on_a_node(scenario)


def test_the_next_transaction_may_commit_before_the_marker_of_the_last() -> None:
    """The marker drops the guard while the coordinator is asked, which is then asked again."""

    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        assert await commit(producer, version=5) == [NONE]
        questions = HeldQuestions(node)
        last = producer.producer
        producer.producer = Producer(last.producer_id, last.epoch + 1)
        coming = asyncio.ensure_future(commit(producer, version=5))
        await questions.wait_for_one()
        producer.producer = last
        await producer.end(version=KIP_890)
        await producer.completed()
        questions.let_through()
        assert await coming == [NONE]

    on_a_node(scenario)


def test_a_fenced_producer_is_refused_also_in_a_transaction_that_is_open_here() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        old = producer.producer
        await added(producer)
        assert await commit(producer) == [NONE]
        await producer.init()
        await producer.completed()
        stale = {"producer_epoch": old.epoch}
        for version in (3, 5):
            assert await commit(producer, version=version, **stale) == [ErrorCode.invalid_producer_epoch]
        assert await commit(producer, producer_id=-1) == [ErrorCode.invalid_producer_id_mapping]
        assert await commit(producer, producer_id=4711) == [ErrorCode.invalid_producer_id_mapping]

    on_a_node(scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.coordinator_not_available),
        (2, ErrorCode.coordinator_load_in_progress),
        (5, ErrorCode.coordinator_load_in_progress),
    ],
)
def test_without_a_transaction_coordinator_the_producer_is_told_to_retry(
    version: int, code: ErrorCode
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.broker.groups.ensure_topic()
        producer = TransactionalProducer(node)
        assert await commit(producer, version=version, producer_id=7, producer_epoch=0) == [code]

    on_a_node(scenario)


def test_a_node_that_does_not_coordinate_the_group_says_so() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        producer = await TransactionalProducer(node).init()
        assert await commit(producer) == [ErrorCode.not_coordinator]

    on_a_node(scenario)


def test_each_partition_has_its_own_error() -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node, partitions=1)
        await added(producer)
        unknown = ErrorCode.unknown_topic_or_partition
        offsets = {(TOPIC, 0): 5, (TOPIC, 1): 6, ("none", 0): 7}
        assert await commit(producer, offsets) == [NONE, unknown, unknown]
        assert await commit(producer, {("none", 0): 7}) == [unknown]
        too_large = await commit(producer, metadata="m" * 5000)
        assert too_large == [ErrorCode.offset_metadata_too_large]
        assert await commit(producer, group_id="") == [ErrorCode.invalid_group_id]
        await producer.end()
        await producer.completed()
        assert await committed(node) == 5

    on_a_node(scenario)


# Fencing by generation (KIP-447)


async def joined_classic(node: SimBroker) -> tuple[str, int]:
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": "static",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    reply = await call(node, ApiKey.JOIN_GROUP, fields, 5)
    assert reply.error_code is NONE
    member_id, generation = reply.member_id, reply.generation_id
    sync = {
        "group_id": GROUP,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": "static",
        "assignments": [{"member_id": member_id, "assignment": b""}],
    }
    reply = await call(node, ApiKey.SYNC_GROUP, sync, 3)
    assert reply.error_code is NONE
    return member_id, generation


async def joined_consumer(node: SimBroker) -> tuple[str, int]:
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "member",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [TOPIC],
        "server_assignor": None,
        "topic_partitions": [],
    }
    reply = await call(node, ApiKey.CONSUMER_GROUP_HEARTBEAT, fields, 0)
    assert reply.error_code is NONE
    return str(reply.member_id), int(reply.member_epoch)


@pytest.mark.parametrize("version", [3, 5])
def test_a_member_of_an_older_generation_is_fenced_in_a_classic_group(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await added(producer)
        member_id, generation = await joined_classic(node)
        known = {"member_id": member_id, "generation_id": generation, "group_instance_id": "static"}
        for changed, code in (
            ({"generation_id": generation - 1}, ErrorCode.illegal_generation),
            ({"generation_id": generation + 1}, ErrorCode.illegal_generation),
            ({"member_id": "other", "group_instance_id": None}, ErrorCode.unknown_member_id),
            ({"member_id": "other"}, ErrorCode.fenced_instance_id),
            ({}, NONE),
        ):
            assert await commit(producer, version=version, **{**known, **changed}) == [code]
        assert await commit(producer, version=2) == [NONE], "older producers name no member"

    on_a_node(scenario)


@pytest.mark.parametrize("version", [3, 5])
def test_a_member_of_an_older_epoch_is_fenced_in_a_consumer_group(version: int) -> None:
    async def scenario(node: SimBroker) -> None:
        producer = await started(node)
        await added(producer)
        member_id, epoch = await joined_consumer(node)
        for told, code in (
            ((member_id, epoch + 1), ErrorCode.illegal_generation),
            (("other", epoch), ErrorCode.unknown_member_id),
            ((member_id, epoch), NONE),
            (("", -1), NONE),
        ):
            member = {"member_id": told[0], "generation_id": told[1]}
            assert await commit(producer, version=version, **member) == [code]

    on_a_node(scenario)
