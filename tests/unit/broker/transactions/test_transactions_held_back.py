# SPDX-License-Identifier: Apache-2.0
"""At level 0 of transaction.version no transaction begins or grows; what is open can be ended."""

from __future__ import annotations

from typing import Any

from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import ALTER, TOPIC, SimBroker, on_a_node

BROKER, TRANSACTION = 4, 1
SETTING = "headrace.transaction.version"
ID = "copier"


async def ask(node: SimBroker, api_key: ApiKey, version: int, **fields: Any) -> Any:
    connection = await node.connect()
    try:
        return await connection.call(api_key, fields, version=version)
    finally:
        connection.abort()


async def hold(node: SimBroker, level: str) -> None:
    config = {"name": SETTING, "config_operation": 0, "value": level}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [config]}
    reply = await ask(node, ApiKey(ALTER), 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code is ErrorCode.none
    while node.broker.cluster.view.transaction_version != int(level):
        await node.clients.tasks.sleep(0.01)


async def coordinator(node: SimBroker) -> Any:
    reply = await ask(node, ApiKey.FIND_COORDINATOR, 6, key_type=TRANSACTION, coordinator_keys=[ID])
    return reply.coordinators[0]


async def new_producer(node: SimBroker) -> dict[str, int]:
    fields: dict[str, Any] = {"transactional_id": ID, "transaction_timeout": 60_000}
    fields |= {"producer_id": -1, "producer_epoch": -1}
    while True:
        reply = await ask(node, ApiKey.INIT_PRODUCER_ID, 5, **fields)
        if reply.error_code is ErrorCode.none:
            return {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}
        await node.clients.tasks.sleep(0.1)  # while its partition is being loaded


async def add(node: SimBroker, producer: dict[str, int], partition: int) -> ErrorCode:
    topics = [{"name": TOPIC, "partitions": [partition]}]
    fields = {"v3_and_below_transactional_id": ID, "v3_and_below_topics": topics}
    fields |= {f"v3_and_below_{name}": value for name, value in producer.items()}
    reply = await ask(node, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
    (result,) = reply.results_by_topic_v3_and_below
    (of_partition,) = result.results_by_partition
    return ErrorCode(of_partition.partition_error_code)


async def end(node: SimBroker, producer: dict[str, int]) -> ErrorCode:
    reply = await ask(node, ApiKey.END_TXN, 4, transactional_id=ID, committed=True, **producer)
    return ErrorCode(reply.error_code)


def test_no_coordinator_of_transactions_is_found_until_the_level_rises() -> None:
    async def scenario(node: SimBroker) -> None:
        await hold(node, "0")
        refused = await coordinator(node)
        assert refused.error_code is ErrorCode.coordinator_not_available
        assert SETTING in refused.error_message
        assert "__transaction_state" not in node.broker.cluster.view.topics
        await hold(node, "1")
        assert (await coordinator(node)).error_code is ErrorCode.none

    on_a_node(scenario)


def test_an_open_transaction_does_not_grow_and_can_be_ended() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        assert (await coordinator(node)).error_code is ErrorCode.none
        producer = await new_producer(node)
        assert await add(node, producer, 0) is ErrorCode.none
        await hold(node, "0")
        assert await add(node, producer, 1) is ErrorCode.coordinator_not_available
        assert await end(node, producer) is ErrorCode.none
        assert await add(node, producer, 0) is ErrorCode.coordinator_not_available

    on_a_node(scenario)
