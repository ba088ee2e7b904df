# SPDX-License-Identifier: Apache-2.0
"""The group APIs as clients see them, in every version, on a simulated node."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.group_client import GroupClient
from tests.harness.broker.simulated_node import SimBroker, on_a_node

QUICK = {"group.initial.rebalance.delay.ms": "0"}
NONE = ErrorCode.none
UNKNOWN_TOPIC, UNKNOWN_ID = ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id
NOT_FOUND = ErrorCode.group_id_not_found


def topic_id(node: SimBroker, name: str = "t") -> uuid.UUID:
    return node.broker.cluster.view.topics[name].topic_id


async def fetch(client: GroupClient, version: int, topics: Any) -> Any:
    """The part of the reply that is about the group."""
    if version < 8:
        fields = {"group_id": client.group, "topics": topics, "require_stable": False}
        return await client.call("offset_fetch", version, **fields)
    group: dict[str, Any] = {"group_id": client.group, "topics": topics}
    if version >= 9:
        group |= {"member_id": None, "member_epoch": -1}
    reply = await client.call("offset_fetch", version, groups=[group], require_stable=False)
    return reply.groups[0]


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_in_every_version(version: int):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        client = await GroupClient.of(node)
        codes = await client.commit(7, [0, 1, 2, -1], version=version, topic_id=topic_id(node))
        assert codes == {0: NONE, 1: NONE, 2: UNKNOWN_TOPIC, -1: UNKNOWN_TOPIC}
        unknown = await client.commit(7, topic="nobody", version=version, topic_id=uuid.UUID(int=9))
        assert unknown == {0: UNKNOWN_ID if version >= 10 else UNKNOWN_TOPIC}
        client.generation = 3
        stranger = await client.commit(8, version=version, topic_id=topic_id(node))
        assert stranger != {0: NONE}
        assert await client.committed() == {0: 7, 1: 7}

    on_a_node(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetches_in_every_version(version: int):
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        client = await GroupClient.of(node)
        await client.commit(7)
        label = {"topic_id": topic_id(node)} if version >= 10 else {"name": "t"}
        other = {"topic_id": uuid.UUID(int=9)} if version >= 10 else {"name": "nobody"}
        asked = [{**each, "partition_indexes": [1, 0]} for each in (label, other)]
        found, unknown = (await fetch(client, version, asked)).topics
        offsets = [(each.partition_index, each.committed_offset) for each in found.partitions]
        assert offsets == [(1, -1), (0, 7)]
        assert {each.committed_offset for each in unknown.partitions} == {-1}
        assert {each.error_code for each in unknown.partitions} == {UNKNOWN_ID if version >= 10 else NONE}
        if version >= 2:
            (everything,) = (await fetch(client, version, None)).topics
            assert [each.partition_index for each in everything.partitions] == [0]

    on_a_node(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_a_fetch_that_is_refused_as_a_whole(version: int):
    async def scenario(node: SimBroker) -> None:
        client = GroupClient(await node.connect())  # nobody coordinates yet
        label = {"topic_id": uuid.UUID(int=9)} if version >= 10 else {"name": "t"}
        reply = await fetch(client, version, [{**label, "partition_indexes": [0]}])
        if version >= 2:
            assert (reply.error_code, reply.topics) == (ErrorCode.not_coordinator, ())
        else:
            assert reply.topics[0].partitions[0].error_code is ErrorCode.not_coordinator

    on_a_node(scenario)


def test_offsets_are_deleted_unless_their_topic_is_read():
    async def scenario(node: SimBroker) -> None:
        await node.create("t")
        await node.create("u")
        client = await GroupClient.of(node)
        await client.commit(1, topic="t")
        await client.commit(1, topic="u")
        await client.join()
        await client.sync()

        async def delete(group: str, *names: str) -> Any:
            topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in names]
            return await client.call("offset_delete", group_id=group, topics=topics)

        reply = await delete("g", "t", "u", "nobody")
        codes = [each.partitions[0].error_code for each in reply.topics]
        assert codes == [ErrorCode.group_subscribed_to_topic, NONE, UNKNOWN_TOPIC]
        assert (await client.committed("t"), await client.committed("u")) == ({0: 1}, {})
        assert (await delete("other", "t")).error_code is NOT_FOUND

    on_a_node(scenario, settings=QUICK)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(version: int):
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.join()
        await client.sync({client.member_id: b"mine"})
        modern = await GroupClient.of(node, "modern")
        modern.member_id = "m"
        await modern.beat(0, subscribed_topic_names=["t"])
        asked = {"groups": ["g", "nobody", "modern"], "include_authorized_operations": True}
        reply = await client.call("describe_groups", version, **asked)
        found, nobody, other = reply.groups
        assert (found.error_code, found.group_state, found.protocol_data) == (NONE, "Stable", "range")
        (member,) = found.members
        assert (member.client_id, member.member_assignment) == ("test", b"mine")
        assert member.client_host.startswith("/")
        for missing in (nobody, other):
            assert missing.group_state == "Dead"
            assert missing.error_code is (NOT_FOUND if version >= 6 else NONE)
        if version >= 3:
            assert found.authorized_operations == 0b1101_0100_1000

    on_a_node(scenario, settings=QUICK)


def test_consumer_groups_are_described():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.join()
        await client.sync()
        modern = await GroupClient.of(node, "modern")
        modern.member_id = "m"
        await modern.beat(0, subscribed_topic_names=["t"])
        asked = {"group_ids": ["modern", "g", "nobody"], "include_authorized_operations": False}
        reply = await client.call("consumer_group_describe", **asked)
        found, classic, nobody = reply.groups
        assert (found.error_code, found.group_state, found.assignor_name) == (NONE, "Stable", "uniform")
        (member,) = found.members
        assert member.assignment.topic_partitions[0].topic_id == topic_id(node)
        assert (classic.error_code, nobody.error_code) == (NOT_FOUND, NOT_FOUND)
        assert "not a consumer group" in classic.error_message
        assert found.authorized_operations == -(2**31)
        asked["include_authorized_operations"] = True
        reply = await client.call("consumer_group_describe", **asked)
        found, _, nobody = reply.groups
        assert found.authorized_operations > 0
        assert nobody.authorized_operations == -(2**31)

    on_a_node(scenario, settings=QUICK)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(version: int):
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await (await GroupClient.of(node, "offsets only")).commit(1)
        client = await GroupClient.of(node)
        await client.join()
        await client.sync()
        modern = await GroupClient.of(node, "modern")
        modern.member_id = "m"
        await modern.beat(0, subscribed_topic_names=["t"])

        async def listed(states: list[str], types: list[str]) -> dict[str, str]:
            reply = await client.call("list_groups", version, states_filter=states, types_filter=types)
            return {each.group_id: each.protocol_type for each in reply.groups}

        everyone = {"g": "consumer", "modern": "consumer", "offsets only": ""}
        assert await listed([], []) == everyone
        if version >= 4:
            assert (await listed(["empty"], [])).keys() == {"offsets only"}
            assert (await listed(["STABLE", "Dead"], [])).keys() == {"g", "modern"}
        if version >= 5:
            assert (await listed([], ["Consumer"])).keys() == {"modern"}
            assert (await listed(["Stable"], ["classic"])).keys() == {"g"}

    on_a_node(scenario, settings=QUICK)


@pytest.mark.parametrize("version", range(3))
def test_only_groups_without_members_are_deleted(version: int):
    async def scenario(node: SimBroker) -> None:
        await node.create()
        client = await GroupClient.of(node)
        await client.join()
        await client.sync()
        empty = await GroupClient.of(node, "empty")
        await empty.commit(1)
        names = ["empty", "g", "nobody", *(f"many-{number}" for number in range(250))]
        reply = await client.call("delete_groups", version, groups_names=names)
        codes = [each.error_code for each in reply.results]
        assert codes[:3] == [NONE, ErrorCode.non_empty_group, NOT_FOUND]
        assert [each.group_id for each in reply.results] == names
        assert await empty.committed() == {}

    on_a_node(scenario, settings=QUICK)


def test_large_requests_take_the_long_way_to_the_same_answers():
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2000)
        client = await GroupClient.of(node)
        await client.join()
        assert (await client.sync({client.member_id: b"x" * 100_000})).assignment == b"x" * 100_000
        codes = await client.commit(5, range(2001))
        assert codes == {**dict.fromkeys(range(2000), NONE), 2000: UNKNOWN_TOPIC}
        assert len(await client.committed()) == 2000
        refused = await client.commit(5, range(2001), topic="nobody")
        assert set(refused.values()) == {UNKNOWN_TOPIC}
        modern = await GroupClient.of(node, "modern")
        modern.member_id = "m"
        reply = await modern.beat(0, subscribed_topic_names=["t", *(f"no-{n}" for n in range(5000))])
        assert reply.error_code is NONE

    on_a_node(scenario, settings=QUICK)


def test_an_assignment_that_no_batch_can_hold_is_refused_and_the_group_goes_on():
    async def scenario(node: SimBroker) -> None:
        client = await GroupClient.of(node)
        await client.join()
        refused = await client.sync({client.member_id: b"x" * (2 << 20)})
        assert refused.error_code is ErrorCode.unknown_server_error
        await asyncio.sleep(2)
        client.member_id = ""
        await client.join()
        assert (await client.sync({client.member_id: b"small"})).assignment == b"small"

    on_a_node(scenario, settings=QUICK)
