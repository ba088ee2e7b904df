# SPDX-License-Identifier: Apache-2.0
"""Requests that name topics, through the dispatcher: denied, partly denied and allowed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.acls import CLUSTER_NAME, Operation, PatternType, ResourceType
from headrace.wire.api_key import ApiKey
from tests.harness.broker.acl_node import MINE, THEIRS, AclNode, with_acls
from tests.harness.broker.simulated_node import fetch_fields

DENIED = 29  # TOPIC_AUTHORIZATION_FAILED
UNKNOWN, UNKNOWN_ID = 3, 100
GHOST = "ghost"
CLUSTER = ResourceType.CLUSTER
TIMED = {"timeout": 5000}


def by_name(entries: Any, name_field: str = "name") -> dict[str, int]:
    """Error code of each topic, of its first partition where there are partitions."""
    found = {}
    for entry in entries:
        partitions = getattr(entry, "partitions", None)
        code = partitions[0].error_code if partitions else entry.error_code
        found[getattr(entry, name_field)] = int(code)
    return found


def _list_offsets(names: list[str]) -> dict[str, Any]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": [partition]} for name in names],
        "timeout": 5000,
    }


def _delete_records(names: list[str]) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "offset": 0}]
    return {"topics": [{"name": name, "partitions": partitions} for name in names], **TIMED}


def _end_of_epoch(names: list[str]) -> dict[str, Any]:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -2, "topics": [{"topic": name, "partitions": [partition]} for name in names]}


def _describe_producers(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name, "partition_indexes": [0]} for name in names]}


def _create_partitions(names: list[str]) -> dict[str, Any]:
    topics = [{"name": name, "count": 3, "assignments": None} for name in names]
    return {"topics": topics, "validate_only": True, **TIMED}


@pytest.mark.parametrize(
    ("api", "version", "fields", "operation", "answered", "name_field"),
    [
        (ApiKey.LIST_OFFSETS, 8, _list_offsets, Operation.DESCRIBE, "topics", "name"),
        (ApiKey.DELETE_RECORDS, 2, _delete_records, Operation.DELETE, "topics", "name"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, _end_of_epoch, Operation.DESCRIBE, "topics", "topic"),
        (ApiKey.DESCRIBE_PRODUCERS, 0, _describe_producers, Operation.READ, "topics", "name"),
        (ApiKey.CREATE_PARTITIONS, 3, _create_partitions, Operation.ALTER, "results", "name"),
    ],
)
def test_each_topic_is_authorized_by_itself(
    api: ApiKey, version: int, fields: Any, operation: Operation, answered: str, name_field: str
) -> None:
    async def scenario(node: AclNode) -> None:
        async def codes() -> dict[str, int]:
            reply = await node.ana.call(api, version, **fields([MINE, THEIRS, GHOST]))
            return by_name(getattr(reply, answered), name_field)

        assert await codes() == {MINE: DENIED, THEIRS: DENIED, GHOST: DENIED}, "also what does not exist"
        await node.allow(operation)
        assert await codes() == {MINE: 0, THEIRS: DENIED, GHOST: DENIED}
        await node.allow(operation, name="*")
        assert await codes() == {MINE: 0, THEIRS: 0, GHOST: UNKNOWN}
        await node.deny(operation, name=THEIRS)
        assert await codes() == {MINE: 0, THEIRS: DENIED, GHOST: UNKNOWN}

    with_acls(scenario)


def test_offsets_of_epochs_are_for_nodes_too() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        reply = await node.ana.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, **_end_of_epoch([MINE]))
        assert by_name(reply.topics, "topic") == {MINE: 0}

    with_acls(scenario)


def _new_topics(*names: str) -> dict[str, Any]:
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    return {"topics": topics, "validate_only": False, **TIMED}


def test_topics_are_created_by_permission_on_them_or_on_the_cluster() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.CREATE, name="ana-", pattern=PatternType.PREFIXED)
        reply = await node.ana.call(ApiKey.CREATE_TOPICS, 7, **_new_topics("ana-1", "bo-1", THEIRS))
        assert by_name(reply.topics) == {"ana-1": 0, "bo-1": DENIED, THEIRS: DENIED}
        (created,) = (topic for topic in reply.topics if topic.name == "ana-1")
        assert (created.topic_config_error_code, created.num_partitions) == (DENIED, -1)
        assert not created.configs
        await node.allow(Operation.CREATE, CLUSTER, CLUSTER_NAME)
        await node.allow(Operation.DESCRIBE_CONFIGS, name="bo-1")
        reply = await node.ana.call(ApiKey.CREATE_TOPICS, 7, **_new_topics("bo-1"))
        assert by_name(reply.topics) == {"bo-1": 0}
        assert (reply.topics[0].topic_config_error_code, reply.topics[0].num_partitions) == (0, 1)
        assert reply.topics[0].configs

    with_acls(scenario)


def _deletions(*targets: Any) -> dict[str, Any]:
    topics = [
        {"name": each, "topic_id": None} if isinstance(each, str) else {"name": None, "topic_id": each}
        for each in targets
    ]
    return {"topics": topics, **TIMED}


def test_a_deletion_tells_no_name_to_who_must_not_describe_it() -> None:
    async def scenario(node: AclNode) -> None:
        mine, theirs = node.topic_id(MINE), node.topic_id(THEIRS)
        reply = await node.ana.call(ApiKey.DELETE_TOPICS, 6, **_deletions(mine, THEIRS, GHOST))
        assert [(each.name, each.error_code) for each in reply.responses] == [
            (None, DENIED),
            (THEIRS, DENIED),
            (GHOST, DENIED),
        ]
        await node.allow(Operation.DESCRIBE, name="*")
        reply = await node.ana.call(ApiKey.DELETE_TOPICS, 6, **_deletions(mine, THEIRS, GHOST))
        found = {each.name: each.error_code for each in reply.responses}
        assert found == {MINE: DENIED, THEIRS: DENIED, GHOST: UNKNOWN}
        await node.allow(Operation.DELETE)
        reply = await node.ana.call(ApiKey.DELETE_TOPICS, 6, **_deletions(mine, theirs))
        assert {each.name: each.error_code for each in reply.responses} == {MINE: 0, THEIRS: DENIED}

    with_acls(scenario)


def test_whoever_may_delete_on_the_cluster_may_delete_every_topic() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.DELETE, CLUSTER, CLUSTER_NAME)
        reply = await node.ana.call(ApiKey.DELETE_TOPICS, 6, **_deletions(MINE, GHOST))
        assert {each.name: each.error_code for each in reply.responses} == {MINE: 0, GHOST: UNKNOWN}

    with_acls(scenario)


@pytest.mark.parametrize("version", [1, 5])
def test_a_deletion_by_name_of_old_versions(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.DELETE)
        reply = await node.ana.call(ApiKey.DELETE_TOPICS, version, topic_names=[MINE, THEIRS, GHOST], **TIMED)
        assert {each.name: each.error_code for each in reply.responses} == {
            MINE: 0,
            THEIRS: DENIED,
            GHOST: DENIED,
        }

    with_acls(scenario)


# Metadata


def _metadata(names: list[str] | None, *, create: bool = False, ids: tuple[Any, ...] = ()) -> dict[str, Any]:
    topics: Any = None if names is None else [{"topic_id": None, "name": name} for name in names]
    if ids:
        topics = [{"topic_id": topic_id, "name": None} for topic_id in ids]
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": True,
    }


def test_metadata_shows_only_what_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        async def names() -> list[str]:
            return sorted(topic.name for topic in (await node.ana.call(3, 12, **_metadata(None))).topics)

        await node.admin.call(3, 12, **_metadata(None))  # is in the cache
        assert await names() == []
        await node.allow(Operation.READ)
        assert await names() == [MINE]
        assert await names() == [MINE]
        everything = await node.admin.call(3, 12, **_metadata(None))
        assert len(everything.topics) == 2
        await node.remove_all()
        assert await names() == []

    with_acls(scenario)


def test_metadata_of_named_topics_does_not_tell_whether_they_exist() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.WRITE)
        reply = await node.ana.call(3, 12, **_metadata([MINE, THEIRS, GHOST], create=True))
        assert {topic.name: topic.error_code for topic in reply.topics} == {
            MINE: 0,
            THEIRS: DENIED,
            GHOST: DENIED,
        }
        assert [topic.topic_id for topic in reply.topics if topic.error_code] == [None, None]
        assert reply.topics[0].topic_authorized_operations == 1 << Operation.WRITE | 1 << Operation.DESCRIBE
        ids = node.topic_id(MINE), node.topic_id(THEIRS)
        reply = await node.ana.call(3, 12, **_metadata(None, ids=ids))
        assert [(topic.name, topic.error_code) for topic in reply.topics] == [(MINE, 0), (None, DENIED)]

    with_acls(scenario)


def test_metadata_creates_only_topics_that_the_sender_may_create() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.DESCRIBE, name="*")
        reply = await node.ana.call(3, 12, **_metadata([GHOST], create=True))
        assert reply.topics[0].error_code == DENIED
        assert GHOST not in node.node.broker.cluster.view.topics
        await node.allow(Operation.CREATE, name=GHOST)
        reply = await node.ana.call(3, 12, **_metadata([GHOST], create=True))
        assert reply.topics[0].error_code == 0

    with_acls(scenario, settings={"auto.create.topics.enable": "true"})


def test_described_topic_partitions_are_those_that_may_be_described() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.READ)
        fields = {"response_partition_limit": 100, "cursor": None}
        reply = await node.ana.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], **fields)
        assert [topic.name for topic in reply.topics] == [MINE]
        assert reply.topics[0].topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
        topics = [{"name": name} for name in (MINE, THEIRS, GHOST)]
        reply = await node.ana.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, **fields)
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in reply.topics}
        assert found == {MINE: (0, 1), THEIRS: (DENIED, 0), GHOST: (DENIED, 0)}

    with_acls(scenario)


# Produce and Fetch


def test_records_are_produced_only_where_writing_is_allowed() -> None:
    async def scenario(node: AclNode) -> None:
        async def produce(name: str) -> int:
            fields = node.node.produce_fields(b"x", name=name)
            reply = await node.ana.call(ApiKey.PRODUCE, 8, **fields)
            return int(reply.responses[0].partition_responses[0].error_code)

        assert [await produce(name) for name in (MINE, GHOST)] == [DENIED, DENIED]
        await node.allow(Operation.WRITE)
        assert [await produce(name) for name in (MINE, MINE, MINE, THEIRS)] == [0, 0, 0, DENIED]
        await node.deny(Operation.WRITE)
        assert await produce(MINE) == DENIED

    with_acls(scenario)


def test_a_run_of_like_requests_ends_when_the_acls_change() -> None:
    async def scenario(node: AclNode) -> None:
        async def produce() -> int:
            fields = node.node.produce_fields(b"x", name=MINE, acks=1)
            reply = await node.ana.call(ApiKey.PRODUCE, 8, **fields)
            return int(reply.responses[0].partition_responses[0].error_code)

        for _ in range(5):  # a frame that arrives in two pieces does not continue a run
            await node.allow(Operation.WRITE)
            assert [await produce() for _ in range(5)] == [0] * 5  # later ones skip the dispatcher
            await node.remove_all()
            assert [await produce() for _ in range(3)] == [DENIED] * 3
        assert node.node.partition(MINE).log_end_offset == 25

    with_acls(scenario)


def test_produce_by_topic_id_is_authorized_by_the_name_behind_it() -> None:
    async def scenario(node: AclNode) -> None:
        async def produce(name: str) -> int:
            fields = node.node.produce_fields(b"x")
            part = fields["topic_data"][0]["partition_data"]
            fields["topic_data"] = [{"topic_id": node.topic_id(name), "partition_data": part}]
            reply = await node.ana.call(ApiKey.PRODUCE, 13, **fields)
            return int(reply.responses[0].partition_responses[0].error_code)

        await node.allow(Operation.WRITE)
        assert [await produce(name) for name in (MINE, THEIRS)] == [0, DENIED]

    with_acls(scenario)


def test_a_transactional_batch_needs_permission_for_a_transactional_id() -> None:
    """S4: the request does not say that it is transactional, the batch does."""

    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.WRITE)
        fields = node.node.produce_fields(
            b"x", name=MINE, is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
        )
        reply = await node.ana.call(ApiKey.PRODUCE, 8, **fields)
        assert reply.responses[0].partition_responses[0].error_code == 53

    with_acls(scenario)


def test_an_idempotent_batch_needs_no_more_than_writing_to_the_topic() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.WRITE)
        assigned = await node.ana.call(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=0, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        assert assigned.error_code == 0
        fields = node.node.produce_fields(
            b"x", name=MINE, producer_id=assigned.producer_id, producer_epoch=0, base_sequence=0
        )
        reply = await node.ana.call(ApiKey.PRODUCE, 8, **fields)
        assert reply.responses[0].partition_responses[0].error_code == 0

    with_acls(scenario)


def test_records_are_fetched_only_where_reading_is_allowed() -> None:
    async def scenario(node: AclNode) -> None:
        places = [(MINE, 0, 0), (THEIRS, 0, 0), (GHOST, 0, 0)]

        async def codes() -> dict[str, int]:
            reply = await node.ana.call(ApiKey.FETCH, 11, **fetch_fields(partitions=places, max_wait_ms=0))
            return {topic.topic: int(topic.partitions[0].error_code) for topic in reply.responses}

        assert await codes() == {MINE: DENIED, THEIRS: DENIED, GHOST: DENIED}
        await node.allow(Operation.READ)
        assert await codes() == {MINE: 0, THEIRS: DENIED, GHOST: DENIED}

    with_acls(scenario)


def test_a_fetch_that_waits_is_authorized_again_when_there_are_records() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.READ)
        fields = fetch_fields(name=MINE, max_wait_ms=20_000)
        waiting = node.ana.connection.send(ApiKey.FETCH, fields, version=11)
        await node.admin.call(ApiKey.LIST_GROUPS, 0)  # the fetch has arrived by now
        await node.remove_all()
        assert not waiting.done()
        await node.admin.call(ApiKey.PRODUCE, 8, **node.node.produce_fields(b"secret", name=MINE))
        part = (await waiting).responses[0].partitions[0]
        assert (part.error_code, part.records or b"") == (DENIED, b"")

    with_acls(scenario)


def test_a_fetch_session_is_authorized_with_each_request() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.READ)
        first = await node.ana.call(
            ApiKey.FETCH, 11, **fetch_fields(name=MINE, session_epoch=0, max_wait_ms=0)
        )
        assert first.session_id
        assert first.responses[0].partitions[0].error_code == 0
        await node.remove_all()
        fields = fetch_fields(session_id=first.session_id, session_epoch=1, max_wait_ms=0)
        second = await node.ana.call(ApiKey.FETCH, 11, **{**fields, "topics": []})
        assert second.responses[0].partitions[0].error_code == DENIED

    with_acls(scenario)


@pytest.mark.parametrize("named", [MINE, GHOST])
def test_a_fetch_as_a_replica_needs_the_login_of_that_node(named: str) -> None:
    """S3: permission to read a topic is not enough."""

    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.ALL, name="*")
        fields = {**fetch_fields(name=named, max_wait_ms=0), "replica_id": 1}
        reply = await node.ana.call(ApiKey.FETCH, 11, **fields)
        assert reply.error_code == 31  # CLUSTER_AUTHORIZATION_FAILED
        assert reply.responses == ()

    with_acls(scenario)
