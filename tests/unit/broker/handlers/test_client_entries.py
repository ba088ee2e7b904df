# SPDX-License-Identifier: Apache-2.0
"""DescribeConfigs of a node tells its clients when they are asked for, as the console reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.broker.network import client_list
from headrace.broker.network.client_list import PIECE_BYTES
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.console.views.admin.connected_clients import ConnectedClient, read_clients
from headrace.principal import node, user
from headrace.types import CLIENTS
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    SimBroker,
    fetch_fields,
    on_a_node,
)
from tests.harness.simulation.clients import SimConnection, open_connection

HOSTILE = '\u202egnp\x00\x1b[2J"}]\U0001f600'
LONG_MS = 100_000


async def described(broker: SimBroker, *keys: str, name: str = "1") -> Any:
    asked = [{"resource_type": 4, "resource_name": name, "configuration_keys": list(keys) or None}]
    fields = {"resources": asked, "include_synonyms": False, "include_documentation": False}
    return (await broker._once(ApiKey.DESCRIBE_CONFIGS, fields)).results[0]


async def pieces(broker: SimBroker) -> list[str]:
    return [config.value for config in (await described(broker, CLIENTS)).configs]


async def told(broker: SimBroker, client_id: str = "app") -> ConnectedClient:
    (found,) = [each for each in read_clients(await pieces(broker))[0] if each.client_id == client_id]
    return found


async def connected(broker: SimBroker, client_id: str = "app") -> SimConnection:
    return await open_connection(broker.clients, "127.0.0.1", 9092, client_id)


def test_a_client_is_told_with_its_software_and_its_requests() -> None:
    async def scenario(broker: SimBroker) -> None:
        assert await broker.create() == 0
        connection = await connected(broker)
        for _ in range(3):
            await connection.call(PRODUCE, broker.produce_fields(b"x"), version=8, timeout_ms=LONG_MS)
        await connection.call(FETCH, fetch_fields(0), version=FETCH_VERSION, timeout_ms=LONG_MS)
        client = await told(broker)
        assert client.requests == {"ApiVersions": 1, "Produce": 3, "Fetch": 1}
        assert (client.principal, client.listener) == ("User:ANONYMOUS", "PLAINTEXT")
        assert client.software is not None
        assert client.version is not None
        assert client.host
        assert client.port is not None
        assert client.since_ms is not None
        assert 0 <= broker.world.clock.wall_ms() - client.since_ms < 60_000
        assert client.last_error is None
        connection.abort()

    on_a_node(scenario)


def test_requests_that_are_handled_together_or_like_the_last_are_all_counted() -> None:
    async def scenario(broker: SimBroker) -> None:
        assert await broker.create() == 0
        connection = await connected(broker)
        fields = broker.produce_fields(b"x")
        await connection.call(PRODUCE, fields, version=8, timeout_ms=LONG_MS)
        await asyncio.gather(*(connection.send(PRODUCE, fields, version=8) for _ in range(50)))
        heartbeat = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
        for _ in range(4):
            await connection.call(ApiKey.HEARTBEAT, heartbeat, timeout_ms=LONG_MS)
        client = await told(broker)
        assert client.requests == {"ApiVersions": 1, "Produce": 51, "Heartbeat": 4}
        assert client.last_error is not None
        assert client.last_error["api"] == "Heartbeat"
        connection.abort()

    on_a_node(scenario)


def test_the_last_error_is_told_with_its_api_and_time() -> None:
    async def scenario(broker: SimBroker) -> None:
        connection = await connected(broker)
        await connection.call(PRODUCE, broker.produce_fields(b"x"), version=8, timeout_ms=LONG_MS)
        error = (await told(broker)).last_error
        assert error is not None
        assert (error["api"], error["error"]) == ("Produce", "UNKNOWN_TOPIC_OR_PARTITION")
        await connection.call(FETCH, fetch_fields(0), version=FETCH_VERSION, timeout_ms=LONG_MS)
        later = (await told(broker)).last_error
        assert later is not None
        assert later["api"] == "Fetch"
        assert later["at"] >= error["at"]
        connection.abort()

    on_a_node(scenario)


def test_the_steps_of_joining_a_group_are_no_errors() -> None:
    async def scenario(broker: SimBroker) -> None:
        connection = await connected(broker)
        join = {
            "group_id": "g",
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }
        find = {"key_type": 0, "coordinator_keys": ["g"]}
        await connection.call(ApiKey.FIND_COORDINATOR, find, timeout_ms=LONG_MS)  # makes the groups' topic
        await asyncio.sleep(5)
        before = (await told(broker)).last_error
        reply = await connection.call(ApiKey.JOIN_GROUP, join, timeout_ms=LONG_MS)
        assert reply.error_code == ErrorCode.member_id_required
        after = await told(broker)
        assert after.last_error == before
        assert after.requests["JoinGroup"] == 1
        connection.abort()

    on_a_node(scenario)


def test_nobody_else_sees_them() -> None:
    async def scenario(broker: SimBroker) -> None:
        whole = await described(broker)
        assert not [config.name for config in whole.configs if config.name.startswith(CLIENTS)]
        (entry,) = (await described(broker, CLIENTS)).configs
        assert (entry.name, entry.read_only) == (f"{CLIENTS}.0", True)
        assert not (await described(broker, CLIENTS, name="")).configs
        other = await described(broker, CLIENTS, name="2")
        assert (other.error_code, list(other.configs)) == (ErrorCode.invalid_request, [])

    on_a_node(scenario)


def test_who_may_not_describe_configs_of_the_cluster_is_told_nothing() -> None:
    async def scenario(broker: SimBroker) -> None:
        connection = await connected(broker)
        asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": [CLIENTS]}
        fields = {"resources": [asked], "include_synonyms": False, "include_documentation": False}
        (result,) = (await connection.call(ApiKey.DESCRIBE_CONFIGS, fields)).results
        assert (result.error_code, list(result.configs)) == (ErrorCode.cluster_authorization_failed, [])
        (activity,) = [
            each.activity for each in broker.broker.connections.open if each.activity.client_id == "app"
        ]
        assert activity.error_api == ApiKey.DESCRIBE_CONFIGS
        assert activity.error == ErrorCode.cluster_authorization_failed
        connection.abort()

    on_a_node(scenario, settings={"authorizer.class.name": STANDARD_AUTHORIZER})


def test_nodes_and_clients_without_a_login_are_left_out() -> None:
    async def scenario(broker: SimBroker) -> None:
        opened = [await connected(broker, name) for name in ("node", "login", "ana")]
        by_id = {each.activity.client_id: each for each in broker.broker.connections.open}
        by_id["node"].principal = node(2)
        by_id["login"].needs_login = True
        by_id["ana"].principal = user("ana")
        clients, more = read_clients(await pieces(broker))
        assert [each.principal for each in clients if each.client_id in by_id] == ["User:ana"]
        assert more == 0
        for each in opened:
            each.abort()

    on_a_node(scenario)


def test_what_a_client_says_is_cut_and_escaped() -> None:
    async def scenario(broker: SimBroker) -> None:
        connection = await connected(broker, HOSTILE + "\U0001f600" * 5000)
        texts = await pieces(broker)
        assert all(text.isascii() and text.isprintable() and len(text) <= PIECE_BYTES for text in texts)
        (found,) = [each for each in read_clients(texts)[0] if (each.client_id or "").startswith(HOSTILE)]
        assert found.client_id is not None
        assert len(found.client_id) == 255
        connection.abort()

    on_a_node(scenario)


def check_pieces(texts: Sequence[str], listed: int, more: int) -> list[ConnectedClient]:
    assert all(len(text) <= PIECE_BYTES + 100 for text in texts)
    assert {json.loads(text)["more"] for text in texts} == {more}
    clients, _ = read_clients(texts)
    assert len(clients) == listed
    return clients


def test_of_many_clients_the_busiest_are_told_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_list, "MOST_CLIENTS", 140)

    async def scenario(broker: SimBroker) -> None:
        count = 150
        opened = [await connected(broker, f"app-{number}") for number in range(count)]
        for connection in broker.broker.connections.open:
            if connection.activity.client_id in {"app-0", f"app-{count - 1}"}:
                connection.activity.requests[FETCH] = 1000
        texts = await pieces(broker)
        assert len(texts) > 1
        clients = check_pieces(texts, 140, 11)  # the one that asks is a client as well
        assert {clients[0].client_id, clients[1].client_id} == {"app-0", f"app-{count - 1}"}
        for each in opened:
            each.abort()

    on_a_node(scenario)


def test_all_pieces_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_list, "MOST_BYTES", 40_000)

    async def scenario(broker: SimBroker) -> None:
        opened = [await connected(broker, f"{number:02}" + "\U0001f600" * 253) for number in range(20)]
        texts = await pieces(broker)
        clients, more = read_clients(texts)
        assert sum(map(len, texts)) < 42_000
        assert clients
        assert len(clients) + more == 21
        for each in opened:
            each.abort()

    on_a_node(scenario)
