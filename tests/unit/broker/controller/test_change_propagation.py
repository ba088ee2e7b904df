# SPDX-License-Identifier: Apache-2.0
"""Answers to changes of the cluster wait for the other nodes: known everywhere, or the limit is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.controller.change_propagation import LIMIT_MS
from headrace.broker.replication.peers import NotServed
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import TOPIC
from tests.harness.broker.three_nodes import NODES, SimMember, SimTrio, on_three_nodes
from tests.harness.simulation.clients import log_in_as_node

LIMIT_S = LIMIT_MS / 1000
LONG_SESSION = {"broker.session.timeout.ms": "60000"}
BEHIND_S = 1.5
"""How long after a commit a slow node reads it."""


async def slow_down(trio: SimTrio, node_id: int, delay_s: float = BEHIND_S) -> None:
    """Its view follows the store late, whoever asks for it."""
    member = trio.members[node_id]
    store = member.broker.cluster._store
    read = store.changes

    async def changes(*arguments: Any) -> Any:
        found = await read(*arguments)
        await member.world.tasks.sleep(delay_s)
        return found

    store.changes = changes  # type: ignore[method-assign]
    await create(trio, 1, f"before-{node_id}")  # ends the read that began before


async def timed(trio: SimTrio, waiting: Awaitable[Any]) -> tuple[float, Any]:
    started = trio.clients.clock.monotonic()
    answer = await waiting
    return trio.clients.clock.monotonic() - started, answer


def creation(name: str, *replicas: int, timeout: int = 30_000, **fields: Any) -> dict[str, Any]:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": list(replicas or NODES)}],
        "configs": [],
    }
    return {"topics": [topic], "timeout": timeout, "validate_only": False, **fields}


async def create(trio: SimTrio, node_id: int, name: str, *replicas: int, **fields: Any) -> float:
    """How long the answer took."""
    asked = trio.members[node_id].ask(ApiKey.CREATE_TOPICS, creation(name, *replicas, **fields), 7)
    took, reply = await timed(trio, asked)
    assert reply.topics[0].error_code is ErrorCode.none
    return took


def knows(member: SimMember, name: str) -> bool:
    return name in member.broker.cluster.view.topics


def test_a_topic_is_known_to_every_node_when_its_creation_is_answered() -> None:
    async def scenario(trio: SimTrio) -> None:
        await slow_down(trio, 2, 0.3)
        await slow_down(trio, 3)
        for node_id in NODES:
            name = f"by-{node_id}"
            await create(trio, node_id, name)
            for member in trio.up:
                assert knows(member, name)
                assert member.broker.partitions.get(name, 0) is not None

    on_three_nodes(scenario)


def test_settings_partitions_and_deletions_are_known_to_every_node_when_they_are_answered() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await slow_down(trio, 3)
        assert await trio.members[2].alter("retention.ms", "12345") == 0
        assert [m.broker.cluster.view.topics[TOPIC].configs["retention.ms"] for m in trio.up] == ["12345"] * 3
        more = {"topics": [{"name": TOPIC, "count": 3, "assignments": None}], "timeout": 30_000}
        await trio.members[2].ask(ApiKey.CREATE_PARTITIONS, {**more, "validate_only": False})
        assert [len(m.broker.cluster.view.topics[TOPIC].partitions) for m in trio.up] == [3] * 3
        assert await trio.members[1].delete() == 0
        assert not any(knows(member, TOPIC) for member in trio.up)

    on_three_nodes(scenario)


def test_a_topic_created_on_demand_is_known_to_every_node() -> None:
    async def scenario(trio: SimTrio) -> None:
        await slow_down(trio, 3)
        for node_id in (1, 2):
            name = f"wanted-{node_id}"
            fields = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": True}
            reply = await trio.members[node_id].ask(ApiKey.METADATA, fields, 12)
            assert reply.topics[0].error_code is ErrorCode.none
            assert all(knows(member, name) for member in trio.up)

    on_three_nodes(scenario, settings={"auto.create.topics.enable": "true"})


def test_the_timeout_of_the_request_ends_the_wait_earlier() -> None:
    async def scenario(trio: SimTrio) -> None:
        await slow_down(trio, 3)
        assert await create(trio, 1, "soon", timeout=200) < 0.5
        assert not knows(trio.members[3], "soon")
        assert await create(trio, 2, "at-once", timeout=0) < 0.2
        assert not knows(trio.members[3], "at-once")
        took, _ = await timed(
            trio, trio.members[1].ask(ApiKey.CREATE_TOPICS, creation("never", validate_only=True), 7)
        )
        assert took < 0.2

    on_three_nodes(scenario)


def cut_off(trio: SimTrio, node_id: int, act: Callable[[str, str], None]) -> None:
    for other in NODES:
        if other != node_id:
            act(f"node{node_id}", f"node{other}")
            act(f"node{other}", f"node{node_id}")


def test_a_node_that_does_not_respond_delays_one_answer_of_each_node() -> None:
    async def scenario(trio: SimTrio) -> None:
        network = trio.simulation.network
        await create(trio, 1, "first")
        cut_off(trio, 3, network.cut)
        assert LIMIT_S - 0.1 < await create(trio, 1, "second", 1, 2) < LIMIT_S + 0.5
        for number in range(5):
            assert await create(trio, 1, f"quick-{number}", 1, 2) < 0.5
        cut_off(trio, 3, network.mend)
        await slow_down(trio, 3)
        await trio.clients.tasks.sleep(30)
        await create(trio, 1, "noticed", 1, 2)
        await trio.clients.tasks.sleep(30)
        await create(trio, 1, "waited-for", 1, 2)
        assert knows(trio.members[3], "waited-for")

    on_three_nodes(scenario, settings=LONG_SESSION)


def test_a_killed_node_delays_no_answer_beyond_its_session() -> None:
    async def scenario(trio: SimTrio) -> None:
        await create(trio, 1, "first")
        await trio.members[3].kill()
        for number in range(5):
            assert await create(trio, 1, f"beside-{number}", 1, 2) < LIMIT_S + 0.5
        assert 3 not in trio.members[1].broker.cluster.view.nodes

    on_three_nodes(scenario)


def test_a_node_of_an_earlier_release_is_not_waited_for() -> None:
    async def scenario(trio: SimTrio) -> None:
        await slow_down(trio, 3)
        peers = trio.members[1].broker.propagation._peers
        request = peers.request

        async def refused(node_id: int, api_key: int, *rest: Any, **options: Any) -> Any:
            if (node_id, api_key) == (3, ApiKey.BROKER_HEARTBEAT):
                raise NotServed("node 3 does not serve API 63", sent=False)
            return await request(node_id, api_key, *rest, **options)

        peers.request = refused  # type: ignore[method-assign]
        assert await create(trio, 1, "mixed") < 0.5
        assert knows(trio.members[2], "mixed")

    on_three_nodes(scenario)


def test_only_the_present_registration_of_a_node_confirms() -> None:
    async def scenario(trio: SimTrio) -> None:
        member = trio.members[2]
        epoch = member.broker.cluster.node_epoch
        assert epoch is not None
        fields = {"current_metadata_offset": 1, "want_fence": False, "want_shut_down": False}
        connection = await member.connect()
        await log_in_as_node(connection, 1, member.broker.cluster)
        for broker_id, broker_epoch, code in (
            (2, epoch, ErrorCode.none),
            (2, epoch - 1, ErrorCode.stale_broker_epoch),
            (3, epoch, ErrorCode.stale_broker_epoch),
        ):
            asked = {"broker_id": broker_id, "broker_epoch": broker_epoch, **fields}
            reply = await connection.call(ApiKey.BROKER_HEARTBEAT, asked)
            assert (reply.error_code, reply.is_caught_up) == (code, code is ErrorCode.none)
        ahead = {"broker_id": 2, "broker_epoch": epoch, **fields, "current_metadata_offset": 1 << 40}
        took, reply = await timed(trio, connection.call(ApiKey.BROKER_HEARTBEAT, ahead))
        assert not reply.is_caught_up
        assert LIMIT_S <= took < LIMIT_S + 0.5

    on_three_nodes(scenario)
