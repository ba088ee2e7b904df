# SPDX-License-Identifier: Apache-2.0
"""Requests about transactions, through the dispatcher: denied, partly denied and allowed."""

from __future__ import annotations

import pytest

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.machines.transactions.events import Producer
from headrace.principal import node as node_principal
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.acl_node import MINE, THEIRS, AclNode, with_acls
from tests.harness.transactions.sim_producer import (
    ONE_PARTITION,
    add,
    add_for,
    add_offsets,
    addition,
    describe,
    end,
    find_coordinator,
    init,
    listed,
    marker,
    new_producer,
    write_markers,
)

ID, OTHER = "id", "other"
NOBODY = Producer(999_999, 0)
MY_PARTITION, THEIR_PARTITION = TopicPartition(MINE, 0), TopicPartition(THEIRS, 0)
CLUSTER, GROUP, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
DENIED = ErrorCode.transactional_id_authorization_failed
CLUSTER_DENIED, TOPIC_DENIED = ErrorCode.cluster_authorization_failed, ErrorCode.topic_authorization_failed
MAPPING = ErrorCode.invalid_producer_id_mapping


def test_coordinators_are_found_for_ids_that_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        assert await find_coordinator(node.ana, ID) is DENIED
        reply = await node.ana.call(ApiKey.FIND_COORDINATOR, 1, key=ID, key_type=1)
        assert reply.error_code is DENIED
        await node.allow(Operation.WRITE, TRANSACTIONAL_ID, ID)
        assert await find_coordinator(node.ana, ID) is ErrorCode.none
        assert await find_coordinator(node.ana, OTHER) is DENIED

    with_acls(scenario, settings=ONE_PARTITION)


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_producer_needs_its_id(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        await find_coordinator(node.admin, ID)
        await node.allow(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
        await node.allow(Operation.DESCRIBE, TRANSACTIONAL_ID, ID)
        assert (await init(node.ana, ID, version=version))[0] is DENIED
        assert (await end(node.ana, ID, NOBODY, version=version))[0] is DENIED
        await node.allow(Operation.WRITE, TRANSACTIONAL_ID, ID)
        assert (await init(node.ana, ID, version=version))[0] is ErrorCode.none
        assert (await end(node.ana, ID, NOBODY, version=version))[0] is MAPPING
        assert (await init(node.ana, OTHER, version=version))[0] is DENIED

    with_acls(scenario, settings=ONE_PARTITION)


@pytest.mark.parametrize("version", range(4))
def test_partitions_need_the_id_and_every_topic(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        producer = await new_producer(node.admin, ID)

        async def codes(*names: str) -> dict[TopicPartition, ErrorCode]:
            return await add(node.ana, ID, producer, {name: [0] for name in names}, version=version)

        assert await codes(MINE, THEIRS) == {MY_PARTITION: DENIED, THEIR_PARTITION: DENIED}
        await node.allow(Operation.WRITE, TRANSACTIONAL_ID, ID)
        assert await codes(MINE) == {MY_PARTITION: TOPIC_DENIED}
        await node.allow(Operation.WRITE)
        assert await codes(MINE, THEIRS, "ghost") == {
            MY_PARTITION: ErrorCode.operation_not_attempted,
            THEIR_PARTITION: TOPIC_DENIED,
            TopicPartition("ghost", 0): TOPIC_DENIED,
        }
        (found,) = await describe(node.admin, ID)
        assert found.transaction_state == "Empty"
        assert await codes(MINE) == {MY_PARTITION: ErrorCode.none}

    with_acls(scenario, settings=ONE_PARTITION)


@pytest.mark.parametrize("version", [4, 5])
def test_versions_of_nodes_need_the_cluster_and_nothing_else(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        producer = await new_producer(node.admin, ID)
        asked = addition(ID, producer, {THEIRS: [0]})
        await node.allow(Operation.ALL, name="*")
        await node.allow(Operation.ALL, TRANSACTIONAL_ID, "*")
        reply = await node.ana.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[asked])
        assert (reply.error_code, reply.results_by_transaction) == (CLUSTER_DENIED, ())
        await node.remove_all()
        await node.allow(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        assert await add_for(node.ana, asked, version=version) == {ID: {THEIR_PARTITION: ErrorCode.none}}

    with_acls(scenario, settings=ONE_PARTITION)


def test_nodes_need_no_acls() -> None:
    async def scenario(node: AclNode) -> None:
        producer = await new_producer(node.admin, ID)
        peer = await node.client(node_principal("2"))
        added = await add_for(peer, addition(ID, producer, {MINE: [0]}))
        assert added == {ID: {MY_PARTITION: ErrorCode.none}}
        ((_, codes),) = await write_markers(peer, marker(producer, {MINE: [0]}))
        assert codes == {MY_PARTITION: ErrorCode.none}

    with_acls(scenario, settings=ONE_PARTITION)


@pytest.mark.parametrize("version", range(5))
def test_offsets_need_the_id_and_the_group(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        await find_coordinator(node.admin, ID)

        async def code(group: str = "g") -> ErrorCode:
            return await add_offsets(node.ana, ID, NOBODY, group, version=version)

        await node.allow(Operation.READ, GROUP, "g")
        assert await code() is DENIED
        await node.allow(Operation.WRITE, TRANSACTIONAL_ID, ID)
        assert await code() is MAPPING
        assert await code("another") is ErrorCode.group_authorization_failed

    with_acls(scenario, settings=ONE_PARTITION)


@pytest.mark.parametrize("operation", [Operation.CLUSTER_ACTION, Operation.ALTER])
@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_for_nodes_and_for_who_may_alter_the_cluster(version: int, operation: Operation) -> None:
    """KIP-1037."""

    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.ALL, name="*")
        markers = (
            marker(Producer(7, 0), {MINE: [0], THEIRS: [0]}),
            marker(Producer(8, 0), {MINE: [0]}),
            marker(Producer(7, 0), {"ghost": [0]}),
        )
        ghost = TopicPartition("ghost", 0)
        assert await write_markers(node.ana, *markers, version=version) == [
            (7, dict.fromkeys((MY_PARTITION, THEIR_PARTITION, ghost), CLUSTER_DENIED)),
            (8, {MY_PARTITION: CLUSTER_DENIED}),
        ]
        assert node.node.partition(MINE).log_end_offset == 0
        await node.allow(operation, CLUSTER, CLUSTER_NAME)
        ((_, codes), _) = await write_markers(node.ana, *markers, version=version)
        assert codes[MY_PARTITION] is ErrorCode.none

    with_acls(scenario, settings=ONE_PARTITION)


def test_transactions_are_described_without_hidden_ids_and_topics() -> None:
    async def scenario(node: AclNode) -> None:
        producer = await new_producer(node.admin, ID)
        await add(node.admin, ID, producer, {MINE: [0], THEIRS: [0]})
        await new_producer(node.admin, OTHER)
        hidden = {ID: DENIED, OTHER: DENIED, "unknown": DENIED}
        found = await describe(node.ana, ID, OTHER, "unknown")
        assert {each.transactional_id: each.error_code for each in found} == hidden
        await node.allow(Operation.DESCRIBE, TRANSACTIONAL_ID, ID)
        await node.allow(Operation.DESCRIBE)
        mine, other = await describe(node.ana, ID, OTHER)
        assert [topic.topic for topic in mine.topics] == [MINE]
        assert (mine.producer_id, mine.transaction_state) == (producer.producer_id, "Ongoing")
        assert (other.error_code, other.producer_id, other.topics) == (DENIED, 0, ())

    with_acls(scenario, settings=ONE_PARTITION)


def test_only_transactional_ids_that_may_be_described_are_listed() -> None:
    async def scenario(node: AclNode) -> None:
        for name in (ID, OTHER):
            await new_producer(node.admin, name)

        async def names() -> list[str]:
            reply = await listed(node.ana, transactional_id_pattern=".*")
            assert reply.error_code is ErrorCode.none
            return [each.transactional_id for each in reply.transaction_states]

        await node.allow(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
        assert await names() == []
        await node.allow(Operation.DESCRIBE, TRANSACTIONAL_ID, OTHER)
        assert await names() == [OTHER]
        refused = await listed(node.ana, transactional_id_pattern="(")
        assert refused.error_code is ErrorCode.invalid_regular_expression

    with_acls(scenario, settings=ONE_PARTITION)
