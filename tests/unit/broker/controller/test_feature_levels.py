# SPDX-License-Identifier: Apache-2.0
"""The controller finalizes transaction.version while nodes of this and of an earlier release come and go."""

from __future__ import annotations

from typing import Any

from headrace.coordination import documents
from headrace.coordination.memory import MemoryStore
from headrace.coordination.store import Applied, Create, Delete, Session
from headrace.types import Endpoint, Node
from headrace.wire.api_key import ApiKey
from tests.harness.broker.simulated_node import HOST, SimBroker, on_a_node
from tests.harness.broker.three_nodes import NODES, SimTrio, on_three_nodes

STRANGER = 9
SETTING = "headrace.transaction.version"
ALTER_CONFIGS, BROKER = 44, 4
NOBODY_LISTENS = (Endpoint(listener="PLAINTEXT", host=HOST, port=1),)


async def level_told(member: SimBroker) -> tuple[int, int]:
    """Level and epoch that a client is told."""
    connection = await member.connect()
    fields = {"client_software_name": "test", "client_software_version": "1"}
    reply = await connection.call(ApiKey.API_VERSIONS, fields, version=4)
    connection.abort()
    levels = {each.name: each.max_version_level for each in reply.finalized_features}
    return levels.get("transaction.version", 0), reply.finalized_features_epoch


class EarlierRelease:
    """A node of a release before transactions: its registration, as that release writes it."""

    def __init__(self, trio: SimTrio, node_id: int) -> None:
        self._store = MemoryStore(trio.members[1].state, trio.clients)
        self._node_id = node_id
        self._session: Session

    async def register(self) -> None:
        node = Node(
            node_id=self._node_id,
            epoch=0,
            host_id="h",
            hostname="old",
            endpoints=NOBODY_LISTENS,
            logs_in=True,
        )
        self._session = await self._store.open_session(3_600_000)
        key = documents.node_key(self._node_id)
        create = Create(key, documents.encode_node(node, waits=True), owner=self._session.id)
        assert isinstance(await self._store.commit([create]), Applied)

    async def leave(self) -> None:
        await self._session.close()


def levels(trio: SimTrio) -> set[int]:
    return {member.broker.cluster.view.transaction_version for member in trio.up}


def finalized(trio: SimTrio) -> tuple[int, int]:
    features = trio.up[0].broker.cluster.view.finalized_features
    return features.levels.get("transaction.version", 0), features.epoch


async def alter(trio: SimTrio, value: str | None, node: str = "") -> None:
    change = {"name": SETTING, "config_operation": 1 if value is None else 0, "value": value}
    resource = {"resource_type": BROKER, "resource_name": node, "configs": [change]}
    fields: dict[str, Any] = {"resources": [resource], "validate_only": False}
    reply = await trio.up[0].ask(ALTER_CONFIGS, fields)
    assert int(reply.responses[0].error_code) == 0


def test_a_lone_node_is_at_level_2_from_its_first_answer_and_writes_that_once() -> None:
    async def scenario(member: SimBroker) -> None:
        assert await level_told(member) == (2, 0)
        await member.stop()
        await member.start()
        assert await level_told(member) == (2, 0)

    on_a_node(scenario)


def test_a_store_of_an_earlier_release_gets_level_2_when_its_node_starts() -> None:
    async def scenario(member: SimBroker) -> None:
        await member.create()
        await member.stop()
        store = MemoryStore(member.state, member.clients)
        present = (await store.view()).entries[documents.FEATURES]
        await store.commit([Delete(documents.FEATURES, present.version)])
        await member.start()
        assert await level_told(member) == (2, 0)

    on_a_node(scenario)


def test_three_nodes_are_at_level_2_from_their_first_answers() -> None:
    async def scenario(trio: SimTrio) -> None:
        assert [await level_told(member) for member in trio.up] == [(2, 0)] * 3

    on_three_nodes(scenario)


def test_a_node_of_an_earlier_release_ends_transactions_while_it_is_there() -> None:
    async def scenario(trio: SimTrio) -> None:
        earlier = EarlierRelease(trio, STRANGER)
        await earlier.register()
        await trio.until(lambda: levels(trio) == {0} and finalized(trio) == (0, 1))
        assert [await level_told(member) for member in trio.up] == [(0, 1)] * 3
        await earlier.leave()
        await trio.until(lambda: levels(trio) == {2})
        assert [await level_told(member) for member in trio.up] == [(2, 2)] * 3

    on_three_nodes(scenario)


def test_the_level_has_fallen_before_a_node_of_an_earlier_release_is_admitted() -> None:
    async def scenario(trio: SimTrio) -> None:
        seen: list[tuple[bool, int]] = []
        cluster = trio.members[1].broker.cluster
        cluster.subscribe(
            lambda old, new: seen.append(
                (STRANGER in new.nodes, new.finalized_features.levels["transaction.version"])
            )
        )
        await EarlierRelease(trio, STRANGER).register()
        await trio.until(lambda: STRANGER in {**cluster.view.nodes, **cluster.view.fenced})
        assert (True, 2) not in seen
        assert (True, 0) in seen

    on_three_nodes(scenario)


def test_a_stopped_node_of_an_earlier_release_that_holds_replicas_keeps_the_level_at_0() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        holder = NODES[-1]
        await trio.members[holder].stop()
        earlier = EarlierRelease(trio, holder)
        await earlier.register()
        await trio.until(lambda: finalized(trio) == (0, 1))
        await earlier.leave()
        await trio.until(lambda: holder not in trio.up[0].broker.cluster.view.registered)
        await trio.clients.tasks.sleep(5)  # rounds of the controller, which must not raise it
        assert (levels(trio), finalized(trio)) == ({0}, (0, 1))
        await trio.members[holder].start()
        await trio.until(lambda: levels(trio) == {2} and finalized(trio) == (2, 2))

    on_three_nodes(scenario)


def test_a_stopped_node_of_this_release_changes_nothing() -> None:
    async def scenario(trio: SimTrio) -> None:
        await trio.create()
        await trio.members[NODES[-1]].stop()
        await trio.clients.tasks.sleep(5)  # rounds of the controller, which must not lower it
        assert (levels(trio), finalized(trio)) == ({2}, (2, 0))

    on_three_nodes(scenario)


def test_the_level_is_held_by_a_setting_altered_for_all_nodes() -> None:
    async def scenario(trio: SimTrio) -> None:
        for value, level, epoch in (("1", 1, 1), ("0", 0, 2), ("2", 2, 3), ("1", 1, 4), (None, 2, 5)):
            await alter(trio, value)
            await trio.until(lambda level=level: levels(trio) == {level})  # type: ignore[misc]
            assert await level_told(trio.up[0]) == (level, epoch)

    on_three_nodes(scenario)


def test_the_lowest_setting_of_all_nodes_counts() -> None:
    async def scenario(trio: SimTrio) -> None:
        for node_id in NODES:  # also of those that are not the controller
            await alter(trio, "1", node=str(node_id))
            await trio.until(lambda: levels(trio) == {1})
            await alter(trio, None, node=str(node_id))
            await trio.until(lambda: levels(trio) == {2})

    on_three_nodes(scenario)


def test_the_level_is_held_by_the_setting_of_the_controller() -> None:
    async def scenario(trio: SimTrio) -> None:
        assert await level_told(trio.up[0]) == (1, 0)

    on_three_nodes(scenario, settings={SETTING: "1"})
