# SPDX-License-Identifier: Apache-2.0
"""Clients beyond their quotas on a whole node: throttle times in replies, muted connections (KIP-219)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.quotas.loop_time import LoopTime
from headrace.client_quotas import DEFAULT, QuotaEntity
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import (
    FETCH,
    FETCH_VERSION,
    LONG_MS,
    PRODUCE,
    SimBroker,
    fetch_fields,
    on_a_node,
)
from tests.harness.broker.three_nodes import SimTrio, on_three_nodes
from tests.harness.simulation.clients import SimConnection

ME = QuotaEntity("ANONYMOUS", "test")


async def limit(node: SimBroker, entity: QuotaEntity, **quotas: float) -> None:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    operations = [{"key": key, "value": value, "remove": False} for key, value in quotas.items()]
    connection = await node.connect()
    entries = [{"entity": parts, "ops": operations}]
    reply = await connection.call(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
    assert reply.entries[0].error_code is ErrorCode.none
    connection.abort()


def throttle_s(reply: Any) -> float:
    return float(reply.throttle_time.total_seconds())


async def timed(node: SimBroker, reply: asyncio.Future[Any]) -> tuple[Any, float]:
    """The reply and the seconds it took."""
    began = node.clients.clock.monotonic()
    return await reply, node.clients.clock.monotonic() - began


def produce(connection: SimConnection, node: SimBroker, size: int, **more: Any) -> asyncio.Future[Any]:
    return connection.send(PRODUCE, node.produce_fields(b"x" * size, **more), version=8)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_beyond_the_quota_is_answered_at_once_and_the_next_one_waits(acks: int) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await limit(node, ME, producer_byte_rate=1_000)
        connection = await node.connect()
        reply, took = await timed(node, produce(connection, node, 15_000, acks=acks))
        assert 5 < throttle_s(reply) < 5.3
        assert took < 1
        reply, took = await timed(node, produce(connection, node, 10, acks=acks))
        assert 4 < took < 5.5
        assert node.broker.metrics.throttles["producer_byte_rate"][0] == 2

    on_a_node(scenario)


def test_produces_that_are_appended_together_count_and_carry_the_throttle_time() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        connection = await node.connect()
        for _ in range(3):  # begins a run
            await produce(connection, node, 1_000)
        await limit(node, ME, producer_byte_rate=1_000)
        replies = [produce(connection, node, 1_000) for _ in range(30)]
        done = [await reply for reply in replies]
        assert sum(throttle_s(reply) for reply in done) > 10
        assert [each.responses[0].partition_responses[0].base_offset for each in done] == list(range(3, 33))

    on_a_node(scenario)


def test_a_produce_without_acknowledgement_mutes_the_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await limit(node, ME, producer_byte_rate=1_000)
        connection = await node.connect()
        connection.send_without_reply(PRODUCE, node.produce_fields(b"x" * 15_000, acks=0), version=8)
        _, took = await timed(node, connection.send(ApiKey.METADATA, {"topics": []}))
        assert took > 4

    on_a_node(scenario)


def test_another_client_is_not_throttled() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await limit(node, QuotaEntity("ANONYMOUS", "other"), producer_byte_rate=1)
        connection = await node.connect()
        for _ in range(3):
            reply, took = await timed(node, produce(connection, node, 100_000))
            assert throttle_s(reply) == 0
            assert took < 1

    on_a_node(scenario)


def fetch(connection: SimConnection, offset: int = 0, **options: Any) -> asyncio.Future[Any]:
    return connection.send(FETCH, fetch_fields(offset, **options), version=FETCH_VERSION)


def test_a_fetch_beyond_the_quota_is_empty_and_the_next_one_gets_the_records() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        for _ in range(4):
            await node.produce(b"x" * 4_000)
        await limit(node, ME, consumer_byte_rate=1_000)
        connection = await node.connect()
        reply = await fetch(connection)
        records = reply.responses[0].partitions[0].records
        assert 8_000 < len(records) < 10_000  # as much as the windows allow
        assert throttle_s(reply) == 0
        reply, took = await timed(node, fetch(connection, 2))
        assert reply.responses == ()
        assert throttle_s(reply) > 5
        assert took < 1
        for _ in range(3):
            reply, took = await timed(node, fetch(connection, 2))
            if reply.responses:
                break
        assert took > 1
        assert reply.responses[0].partitions[0].records

    on_a_node(scenario)


def test_a_throttled_fetch_leaves_the_session_as_it_is() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"x" * 9_000)
        await limit(node, ME, consumer_byte_rate=1_000)
        connection = await node.connect()
        opened = await fetch(connection, session_epoch=0)
        assert opened.session_id
        await node.produce(b"y" * 9_000)
        again = {"session_id": opened.session_id, "session_epoch": 1}
        fields = fetch_fields(1, **again)
        reply = await connection.call(FETCH, fields, version=FETCH_VERSION, timeout_ms=LONG_MS)
        assert throttle_s(reply) > 0
        assert reply.error_code is ErrorCode.none
        assert reply.session_id == opened.session_id
        for epoch in range(2, 6):
            fields = {**fetch_fields(1, session_id=opened.session_id, session_epoch=epoch), "topics": []}
            reply = await connection.call(FETCH, fields, version=FETCH_VERSION, timeout_ms=LONG_MS)
            assert reply.error_code is ErrorCode.none
            if reply.responses:
                break
        assert reply.responses[0].partitions[0].records

    on_a_node(scenario)


def test_time_of_the_event_loop_throttles_every_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the simulation no time passes in a step, so the time that a request took is given."""
    monkeypatch.setattr(LoopTime, "taken", lambda self, owner, now: 0.05)

    async def scenario(node: SimBroker) -> None:
        await node.create()
        await limit(node, QuotaEntity(client_id=DEFAULT), request_percentage=1)
        for api_key, fields in (
            (ApiKey.METADATA, {"topics": []}),
            (ApiKey.HEARTBEAT, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
            (ApiKey.API_VERSIONS, {"client_software_name": "a", "client_software_version": "1"}),
            (ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}),
        ):
            connection = await node.connect()
            throttles = [throttle_s(await connection.call(api_key, fields)) for _ in range(6)]
            assert 0 < max(throttles) <= 1, api_key
            connection.abort()
        assert node.broker.metrics.throttles["request_percentage"][0] > 5

    on_a_node(scenario)


def test_an_exhausted_quota_of_changes_mutes_the_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        await limit(node, ME, controller_mutation_rate=1)
        topic = {"name": "t", "num_partitions": 14, "replication_factor": 1, "assignments": [], "configs": []}
        connection = await node.connect()
        fields = {"topics": [topic], "timeout": 5000, "validate_only": False}
        reply, took = await timed(node, connection.send(ApiKey.CREATE_TOPICS, fields))
        assert 2 < throttle_s(reply) <= 3
        assert took < 1
        _, took = await timed(node, connection.send(ApiKey.METADATA, {"topics": []}))
        assert 2 < took < 3.5
        assert node.broker.metrics.throttles["controller_mutation_rate"][0] == 1

    on_a_node(scenario)


def test_connections_of_an_address_beyond_its_quota_are_closed_after_a_wait() -> None:
    async def scenario(node: SimBroker) -> None:
        await limit(node, QuotaEntity(ip=DEFAULT), connection_creation_rate=1)
        outcomes = await asyncio.gather(*(node.connect() for _ in range(14)), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, BaseException)]
        assert 0 < len(refused) < 14
        assert node.broker.metrics.throttles["connection_creation_rate"][0] >= len(refused)

    on_a_node(scenario)


def test_connections_beyond_the_rate_of_the_node_are_served_later() -> None:
    async def scenario(node: SimBroker) -> None:
        began = node.clients.clock.monotonic()
        await asyncio.gather(*(node.connect() for _ in range(60)))
        assert 0.5 < node.clients.clock.monotonic() - began < 5
        assert node.broker.metrics.throttles["max.connection.creation.rate"][0] > 5

    on_a_node(scenario, settings={"max.connection.creation.rate": "5"})


def test_other_nodes_forward_changes_and_mute_for_the_controllers_throttle_time() -> None:
    async def scenario(trio: SimTrio) -> None:
        controller_id = trio.members[1].broker.cluster.view.controller_id
        other = next(member for node_id, member in trio.members.items() if node_id != controller_id)
        await limit(other, ME, controller_mutation_rate=1)
        for member in trio.members.values():  # acknowledged, so all nodes know it
            assert member.broker.throttles.active
        topic = {"name": "q", "num_partitions": 14, "replication_factor": 3, "assignments": [], "configs": []}
        connection = await other.connect()
        fields = {"topics": [topic], "timeout": 5000, "validate_only": False}
        reply = await connection.call(ApiKey.CREATE_TOPICS, fields, timeout_ms=LONG_MS)
        assert reply.topics[0].error_code is ErrorCode.none
        assert 1 < throttle_s(reply) <= 3
        _, took = await timed(other, connection.send(ApiKey.METADATA, {"topics": []}))
        assert 0.5 < took < 3.5

    on_three_nodes(scenario)


def test_followers_fetch_whatever_the_quotas_of_clients() -> None:
    async def scenario(trio: SimTrio) -> None:
        first = trio.members[1]
        await limit(first, QuotaEntity(DEFAULT), consumer_byte_rate=1, producer_byte_rate=100_000_000)
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": []}
        fields = {"topics": [topic], "timeout": 5000, "validate_only": False}
        await first.ask(ApiKey.CREATE_TOPICS, fields)
        leader = first.broker.cluster.view.topics["t"].partitions[0].leader
        for _ in range(5):
            code, _ = await trio.members[leader].produce(b"x" * 10_000)  # acks=all waits for the followers
            assert code == 0
        throttled = [member.broker.metrics.throttles for member in trio.members.values()]
        assert not any("consumer_byte_rate" in each for each in throttled)

    on_three_nodes(scenario)
