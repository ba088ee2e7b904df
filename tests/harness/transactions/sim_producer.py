# SPDX-License-Identifier: Apache-2.0
"""Requests of transactional producers to a node in the simulated world, each in any version; replies by code.

Read next: tests/harness/broker/simulated_node.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headrace.machines.transactions.events import Producer
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

TIMEOUT_MS = 60_000
TRANSACTION = 1
ONE_PARTITION = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}

Codes = dict[TopicPartition, ErrorCode]


class Calls(Protocol):
    """A connection to a node."""

    async def call(self, api_key: int, version: int, **fields: Any) -> Any: ...


async def find_coordinator(client: Calls, transactional_id: str) -> ErrorCode:
    reply = await client.call(
        ApiKey.FIND_COORDINATOR, 4, key_type=TRANSACTION, coordinator_keys=[transactional_id]
    )
    return ErrorCode(reply.coordinators[0].error_code)


async def init(
    client: Calls,
    transactional_id: str,
    *,
    version: int = 5,
    timeout_ms: int = TIMEOUT_MS,
    expected: Producer | None = None,
) -> tuple[ErrorCode, Producer]:
    fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms}
    if expected is not None:
        fields |= {"producer_id": expected.producer_id, "producer_epoch": expected.epoch}
    reply = await client.call(ApiKey.INIT_PRODUCER_ID, version, **fields)
    return reply.error_code, Producer(reply.producer_id, reply.producer_epoch)


async def new_producer(client: Calls, transactional_id: str) -> Producer:
    """Of an id that has its coordinator here, and nothing open."""
    assert await find_coordinator(client, transactional_id) is ErrorCode.none
    error, producer = await init(client, transactional_id)
    assert error is ErrorCode.none
    return producer


def named(topics: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": list(partitions)} for name, partitions in topics.items()]


async def add(
    client: Calls,
    transactional_id: str,
    producer: Producer,
    topics: Mapping[str, Sequence[int]],
    *,
    version: int = 3,
) -> Codes:
    """Versions of clients."""
    reply = await client.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=named(topics),
    )
    return codes_of(reply.results_by_topic_v3_and_below)


def addition(
    transactional_id: str,
    producer: Producer,
    topics: Mapping[str, Sequence[int]],
    *,
    verify_only: bool = False,
) -> dict[str, Any]:
    """One transaction of `add_for`."""
    return {
        **of(transactional_id, producer),
        "verify_only": verify_only,
        "topics": named(topics),
    }


async def add_for(client: Calls, *additions: Mapping[str, Any], version: int = 5) -> dict[str, Codes]:
    """Versions of nodes; by transactional id."""
    reply = await client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=list(additions))
    assert reply.error_code is ErrorCode.none
    return {each.transactional_id: codes_of(each.topic_results) for each in reply.results_by_transaction}


def codes_of(topics: Any) -> Codes:
    return {
        TopicPartition(topic.name, part.partition_index): part.partition_error_code
        for topic in topics
        for part in topic.results_by_partition
    }


async def add_offsets(
    client: Calls, transactional_id: str, producer: Producer, group: str, *, version: int = 4
) -> ErrorCode:
    fields = {**of(transactional_id, producer), "group_id": group}
    reply = await client.call(ApiKey.ADD_OFFSETS_TO_TXN, version, **fields)
    return ErrorCode(reply.error_code)


async def end(
    client: Calls, transactional_id: str, producer: Producer, *, committed: bool = True, version: int = 4
) -> tuple[ErrorCode, Producer]:
    """The producer that goes on: as asked for below version 5."""
    fields = {**of(transactional_id, producer), "committed": committed}
    reply = await client.call(ApiKey.END_TXN, version, **fields)
    if version < 5:
        return reply.error_code, producer
    return reply.error_code, Producer(reply.producer_id, reply.producer_epoch)


async def describe(client: Calls, *transactional_ids: str) -> list[Any]:
    reply = await client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=list(transactional_ids))
    return list(reply.transaction_states)


async def listed(client: Calls, *, version: int = 2, **filters: Any) -> Any:
    fields = {"state_filters": [], "producer_id_filters": [], **filters}
    return await client.call(ApiKey.LIST_TRANSACTIONS, version, **fields)


def marker(producer: Producer, topics: Mapping[str, Sequence[int]], **changes: Any) -> dict[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": name, "partition_indexes": list(each)} for name, each in topics.items()],
        "coordinator_epoch": 0,
        **changes,
    }


async def write_markers(
    client: Calls, *markers: Mapping[str, Any], version: int = 1
) -> list[tuple[int, Codes]]:
    """Producer id and codes, in the order of the reply."""
    reply = await client.call(ApiKey.WRITE_TXN_MARKERS, version, markers=list(markers))
    return [
        (
            result.producer_id,
            {
                TopicPartition(topic.name, part.partition_index): part.error_code
                for topic in result.topics
                for part in topic.partitions
            },
        )
        for result in reply.markers
    ]


def of(transactional_id: str, producer: Producer) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }
