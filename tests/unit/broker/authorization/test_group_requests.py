# SPDX-License-Identifier: Apache-2.0
"""Requests about groups, through the dispatcher: denied, partly denied and allowed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.api_key import ApiKey
from tests.harness.broker.acl_node import MINE, THEIRS, AclNode, with_acls

DENIED, TOPIC_DENIED, TRANSACTIONAL_ID_DENIED, CLUSTER_DENIED = 30, 29, 53, 31
GROUP, CLUSTER = ResourceType.GROUP, ResourceType.CLUSTER
G, OTHER = "g", "other"
ONE_NODE = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}


async def commit(client: Any, group: str, *topics: str) -> dict[str, int]:
    partition = {
        "partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": "",
    }  # fmt: skip
    reply = await client.call(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": name, "partitions": [partition]} for name in topics],
    )
    return {topic.name: int(topic.partitions[0].error_code) for topic in reply.topics}


async def ready(node: AclNode) -> None:
    """Both groups have an offset in both topics."""
    reply = await node.admin.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[G, OTHER])
    assert [found.error_code for found in reply.coordinators] == [0, 0]
    for group in (G, OTHER):
        assert await commit(node.admin, group, MINE, THEIRS) == {MINE: 0, THEIRS: 0}


def test_coordinators_are_found_for_groups_that_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        async def codes(key_type: int) -> dict[str, int]:
            reply = await node.ana.call(
                ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[G, OTHER]
            )
            return {found.key: int(found.error_code) for found in reply.coordinators}

        assert await codes(0) == {G: DENIED, OTHER: DENIED}
        assert (await node.ana.call(ApiKey.FIND_COORDINATOR, 1, key=G, key_type=0)).error_code == DENIED
        await node.allow(Operation.READ, GROUP, G)
        assert await codes(0) == {G: 0, OTHER: DENIED}
        assert await codes(1) == {G: TRANSACTIONAL_ID_DENIED, OTHER: TRANSACTIONAL_ID_DENIED}

    with_acls(scenario, settings=ONE_NODE)


MEMBER = {"group_id": G, "member_id": "m", "group_instance_id": None}


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (
            ApiKey.JOIN_GROUP,
            5,
            {
                **MEMBER,
                "session_timeout": 10_000,
                "rebalance_timeout": 10_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            },
        ),
        (ApiKey.HEARTBEAT, 4, {**MEMBER, "generation_id": 1}),
        (ApiKey.SYNC_GROUP, 3, {**MEMBER, "generation_id": 1, "assignments": []}),
        (ApiKey.LEAVE_GROUP, 3, {"group_id": G, "members": [{"member_id": "m", "group_instance_id": None}]}),
    ],
)
def test_members_need_to_read_the_group(api: ApiKey, version: int, fields: dict[str, Any]) -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        assert (await node.ana.call(api, version, **fields)).error_code == DENIED
        await node.allow(Operation.DESCRIBE, GROUP, G)
        assert (await node.ana.call(api, version, **fields)).error_code == DENIED
        await node.allow(Operation.READ, GROUP, G)
        assert (await node.ana.call(api, version, **fields)).error_code != DENIED
        await node.remove_all()
        assert (await node.ana.call(api, version, **fields)).error_code == DENIED, "a repeated request too"

    with_acls(scenario, settings=ONE_NODE)


def test_a_heartbeat_names_only_topics_that_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)

        async def heartbeat(names: list[str] | None) -> int:
            reply = await node.ana.call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                0,
                group_id="new",
                member_id="m",
                member_epoch=0,
                instance_id=None,
                rack_id=None,
                rebalance_timeout=10_000,
                subscribed_topic_names=names,
                server_assignor=None,
                topic_partitions=[],
            )
            return int(reply.error_code)

        assert await heartbeat([MINE]) == DENIED
        await node.allow(Operation.READ, GROUP, "new")
        assert await heartbeat([MINE]) == TOPIC_DENIED
        await node.allow(Operation.DESCRIBE)
        assert await heartbeat([MINE, THEIRS]) == TOPIC_DENIED
        assert await heartbeat([MINE]) == 0

    with_acls(scenario, settings=ONE_NODE)


def test_a_regular_expression_matches_only_topics_that_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        await node.allow(Operation.READ, GROUP, "new")
        await node.allow(Operation.READ)

        async def heartbeat(epoch: int, regex: str | None) -> Any:
            return await node.ana.call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="new", member_id="m", member_epoch=epoch,
                instance_id=None, rack_id=None, rebalance_timeout=10_000 if regex else -1,
                subscribed_topic_names=None, subscribed_topic_regex=regex, server_assignor=None,
                topic_partitions=[] if regex else None,
            )  # fmt: skip

        reply = await heartbeat(0, ".*")
        while not reply.assignment or not reply.assignment.topic_partitions:
            assert reply.error_code == 0
            await node.node.clients.tasks.sleep(0.1)
            reply = await heartbeat(reply.member_epoch, None)
        assigned = [topic.topic_id for topic in reply.assignment.topic_partitions]
        assert assigned == [node.topic_id(MINE)]

    with_acls(scenario, settings=ONE_NODE)


def test_offsets_are_committed_to_topics_that_may_be_read() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        ana = node.ana
        assert await commit(ana, G, MINE) == {MINE: DENIED}
        await node.allow(Operation.READ, GROUP, G)
        assert await commit(ana, G, MINE) == {MINE: TOPIC_DENIED}
        await node.allow(Operation.READ)
        for _ in range(3):  # later ones are recognised by their bytes
            assert await commit(ana, G, MINE) == {MINE: 0}
        expected = {MINE: 0, THEIRS: TOPIC_DENIED, "ghost": TOPIC_DENIED}
        assert await commit(ana, G, MINE, THEIRS, "ghost") == expected
        assert await commit(ana, G, MINE) == {MINE: 0}
        await node.remove_all()
        await node.allow(Operation.READ, GROUP, G)
        assert await commit(ana, G, MINE) == {MINE: TOPIC_DENIED}

    with_acls(scenario, settings=ONE_NODE)


@pytest.mark.parametrize("version", [1, 5, 7])
def test_offsets_are_fetched_of_topics_that_may_be_described(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        topics = [{"name": name, "partition_indexes": [0]} for name in (MINE, THEIRS)]

        async def fetched(asked: Any) -> Any:
            fields = {"group_id": G, "topics": asked}
            if version >= 7:
                fields["require_stable"] = False
            return await node.ana.call(ApiKey.OFFSET_FETCH, version, **fields)

        def codes(reply: Any) -> dict[str, int]:
            return {topic.name: int(topic.partitions[0].error_code) for topic in reply.topics}

        reply = await fetched(topics)
        refused = codes(reply)[MINE] if version < 2 else reply.error_code
        assert refused == DENIED
        await node.allow(Operation.DESCRIBE, GROUP, G)
        assert codes(await fetched(topics)) == {MINE: TOPIC_DENIED, THEIRS: TOPIC_DENIED}
        await node.allow(Operation.DESCRIBE)
        assert codes(await fetched(topics)) == {MINE: 0, THEIRS: TOPIC_DENIED}
        if version >= 2:
            assert codes(await fetched(None)) == {MINE: 0}

    with_acls(scenario, settings=ONE_NODE)


@pytest.mark.parametrize("version", [8, 10])
def test_offsets_of_several_groups_are_authorized_by_group_and_topic(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        ids = {name: node.topic_id(name) for name in (MINE, THEIRS)}
        named = [{"topic_id": ids[name]} if version >= 10 else {"name": name} for name in ids]
        topics = [{**name, "partition_indexes": [0]} for name in named]

        def request(asked: Any) -> list[dict[str, Any]]:
            member = {} if version < 9 else {"member_id": None, "member_epoch": -1}
            return [{"group_id": group, "topics": asked, **member} for group in (G, OTHER)]

        async def codes(asked: Any) -> dict[str, tuple[int, list[int]]]:
            reply = await node.ana.call(
                ApiKey.OFFSET_FETCH, version, groups=request(asked), require_stable=False
            )
            return {
                group.group_id: (
                    int(group.error_code),
                    [int(topic.partitions[0].error_code) for topic in group.topics],
                )
                for group in reply.groups
            }

        await node.allow(Operation.DESCRIBE, GROUP, G)
        await node.allow(Operation.READ)
        assert await codes(topics) == {G: (0, [0, TOPIC_DENIED]), OTHER: (DENIED, [])}
        assert await codes(None) == {G: (0, [0]), OTHER: (DENIED, [])}

    with_acls(scenario, settings=ONE_NODE)


def test_groups_are_described_with_what_the_sender_may_do() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        await node.allow(Operation.READ, GROUP, G)
        reply = await node.ana.call(
            ApiKey.DESCRIBE_GROUPS, 5, groups=[G, OTHER], include_authorized_operations=True
        )
        found = {group.group_id: (group.error_code, group.authorized_operations) for group in reply.groups}
        allowed = 1 << Operation.READ | 1 << Operation.DESCRIBE
        assert found == {G: (0, allowed), OTHER: (DENIED, -(2**31))}
        reply = await node.ana.call(
            ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=[G, OTHER], include_authorized_operations=True
        )
        assert {group.group_id: group.error_code for group in reply.groups} == {G: 69, OTHER: DENIED}

    with_acls(scenario, settings=ONE_NODE)


def test_a_consumer_group_is_not_described_with_topics_that_are_hidden() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)
        joined = await node.admin.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, group_id="new", member_id="m", member_epoch=0,
            instance_id=None, rack_id=None, rebalance_timeout=10_000, subscribed_topic_names=[MINE, THEIRS],
            server_assignor=None, topic_partitions=[],
        )  # fmt: skip
        assert joined.error_code == 0
        await node.allow(Operation.DESCRIBE, GROUP, "new")
        await node.allow(Operation.DESCRIBE)

        async def described() -> Any:
            reply = await node.ana.call(
                ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=["new"], include_authorized_operations=False
            )
            return reply.groups[0]

        group = await described()
        assert (group.error_code, group.members) == (TOPIC_DENIED, ())
        await node.allow(Operation.DESCRIBE, name=THEIRS)
        assert len((await described()).members) == 1

    with_acls(scenario, settings=ONE_NODE)


def test_only_groups_that_may_be_described_are_listed() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)

        async def listed() -> list[str]:
            return sorted(group.group_id for group in (await node.ana.call(ApiKey.LIST_GROUPS, 3)).groups)

        assert await listed() == []
        await node.allow(Operation.READ, GROUP, G)
        assert await listed() == [G]
        await node.allow(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
        assert await listed() == [G, OTHER]

    with_acls(scenario, settings=ONE_NODE)


def test_groups_and_offsets_are_deleted_by_who_may_delete_them() -> None:
    async def scenario(node: AclNode) -> None:
        await ready(node)

        async def offsets_deleted() -> Any:
            topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (MINE, THEIRS)]
            return await node.ana.call(ApiKey.OFFSET_DELETE, 0, group_id=G, topics=topics)

        assert (await offsets_deleted()).error_code == DENIED
        await node.allow(Operation.DELETE, GROUP, G)
        await node.allow(Operation.READ)
        reply = await offsets_deleted()
        found = {topic.name: int(topic.partitions[0].error_code) for topic in reply.topics}
        assert (reply.error_code, found) == (0, {MINE: 0, THEIRS: TOPIC_DENIED})
        reply = await node.ana.call(ApiKey.DELETE_GROUPS, 2, groups_names=[G, OTHER])
        assert {result.group_id: int(result.error_code) for result in reply.results} == {G: 0, OTHER: DENIED}

    with_acls(scenario, settings=ONE_NODE)
