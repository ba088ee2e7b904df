# SPDX-License-Identifier: Apache-2.0
"""Requests about the cluster, configs and ACLs, through the dispatcher; and that no API is left out (T19)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.authorization.authorized_handlers import (
    IN_HANDLERS,
    UNRESTRICTED,
    deferred_guards,
    guards,
)
from headrace.broker.security.authorization import Denial
from headrace.principal import node as node_principal
from headrace.principal import user
from headrace.types import ClusterView
from headrace.wire.api_authorization import NEEDED, NOTHING
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import APIS
from tests.harness.broker.acl_node import ANA, ANY_ACL, MINE, THEIRS, AclNode, with_acls
from tests.harness.broker.simulated_node import SimBroker, on_a_node

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTIONAL_ID_DENIED = 29, 30, 31, 53
SECURITY_DISABLED = 54
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


def test_every_api_has_a_row_in_the_table_and_something_that_authorizes_it() -> None:
    """T19: a new API cannot be served without a decision who may use it."""
    assert set(NEEDED) == set(APIS)
    view = ClusterView(version=0, cluster_id="")
    guarded = {*guards(lambda: view), *deferred_guards()}
    assert guarded | IN_HANDLERS | UNRESTRICTED == set(APIS)
    assert not guarded & (IN_HANDLERS | UNRESTRICTED)
    assert {key for key, needed in NEEDED.items() if needed == NOTHING} == UNRESTRICTED | {60}


NO_TOPICS: dict[str, Any] = {"topics": []}
TIMED = {"timeout": 5000}


@pytest.mark.parametrize(
    ("api", "version", "fields", "operation"),
    [
        (ApiKey.DESCRIBE_ACLS, 3, ANY_ACL, Operation.DESCRIBE),
        (ApiKey.DESCRIBE_LOG_DIRS, 3, {"topics": None}, Operation.DESCRIBE),
        (
            ApiKey.ELECT_LEADERS,
            2,
            {"election_type": 0, "topic_partitions": [{"topic": MINE, "partitions": [0]}], **TIMED},
            Operation.ALTER,
        ),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {**NO_TOPICS, **TIMED}, Operation.ALTER),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, **TIMED}, Operation.DESCRIBE),
        (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 9}, Operation.ALTER),
    ],
)
def test_requests_that_need_the_cluster(api: ApiKey, version: int, fields: Any, operation: Operation) -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.ALL, name="*")
        await node.allow(Operation.ALL, ResourceType.GROUP, "*")
        assert (await node.ana.call(api, version, **fields)).error_code == CLUSTER_DENIED
        await node.allow(operation, CLUSTER, CLUSTER_NAME)
        assert (await node.ana.call(api, version, **fields)).error_code != CLUSTER_DENIED

    with_acls(scenario)


def test_the_error_is_in_each_entry_too() -> None:
    """As Apache Kafka answers."""

    async def scenario(node: AclNode) -> None:
        topics = [{"name": MINE, "partitions": [{"partition_index": 0, "replicas": None}]}]
        reply = await node.ana.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics, **TIMED)
        assert reply.error_code == CLUSTER_DENIED
        assert reply.responses[0].name == MINE
        assert reply.responses[0].partitions[0].error_code == CLUSTER_DENIED
        asked = [{"name": "bo"}, {"name": "bo"}]
        reply = await node.ana.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
        assert reply.error_code == CLUSTER_DENIED
        assert [(each.user, each.error_code) for each in reply.results] == [("bo", CLUSTER_DENIED)]
        reply = await node.ana.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        assert (reply.error_code, reply.results) == (CLUSTER_DENIED, ())

    with_acls(scenario)


def test_requests_of_nodes_need_the_login_of_a_node() -> None:
    """S3: ClusterAction alone does not make a user a node."""
    beat = {"current_metadata_offset": 0, "want_fence": False, "want_shut_down": False}

    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.ALL, CLUSTER, CLUSTER_NAME)
        reply = await node.ana.call(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=-7, topics=[])
        assert reply.error_code == CLUSTER_DENIED
        reply = await node.ana.call(ApiKey.BROKER_HEARTBEAT, 0, broker_id=1, broker_epoch=-7, **beat)
        assert reply.error_code == CLUSTER_DENIED

    with_acls(scenario)


def test_old_versions_without_an_error_for_all_are_answered_too() -> None:
    async def scenario(node: AclNode) -> None:
        reply = await node.ana.call(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=None)
        assert reply.results == ()
        partitions = [{"topic": MINE, "partitions": [0]}]
        reply = await node.ana.call(ApiKey.ELECT_LEADERS, 0, topic_partitions=partitions, **TIMED)
        assert reply.replica_election_results[0].partition_result[0].error_code == CLUSTER_DENIED

    with_acls(scenario)


def test_the_cluster_is_described_with_what_the_sender_may_do() -> None:
    async def scenario(node: AclNode) -> None:
        async def operations() -> int:
            reply = await node.ana.call(
                ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=1
            )
            return int(reply.cluster_authorized_operations)

        assert await operations() == 0
        await node.allow(Operation.ALTER, CLUSTER, CLUSTER_NAME)
        assert await operations() == 1 << Operation.ALTER | 1 << Operation.DESCRIBE

    with_acls(scenario)


def test_producer_ids_are_for_who_may_write_to_any_topic() -> None:
    async def scenario(node: AclNode) -> None:
        async def code(transactional_id: str | None = None) -> int:
            reply = await node.ana.call(
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=transactional_id,
                transaction_timeout=0,
                producer_id=-1,
                producer_epoch=-1,
            )
            return int(reply.error_code)

        assert await code() == CLUSTER_DENIED
        assert await code("t") == TRANSACTIONAL_ID_DENIED
        await node.allow(Operation.WRITE)
        assert await code() == 0
        await node.remove_all()
        await node.allow(Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
        assert await code() == 0

    with_acls(scenario)


def test_configs_are_authorized_by_their_resource() -> None:
    async def scenario(node: AclNode) -> None:
        resources = [(2, MINE), (2, THEIRS), (2, "ghost"), (4, "1"), (32, "g")]

        def codes(entries: Any) -> list[int]:
            found = {(each.resource_type, each.resource_name): int(each.error_code) for each in entries}
            return [found[resource] for resource in resources]

        async def described() -> list[int]:
            asked = [
                {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                for kind, name in resources
            ]
            shown = {"include_synonyms": False, "include_documentation": False}
            reply = await node.ana.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, **shown)
            return codes(reply.results)

        async def altered() -> list[int]:
            asked = [
                {"resource_type": kind, "resource_name": name, "configs": []} for kind, name in resources
            ]
            reply = await node.ana.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=True
            )
            return codes(reply.responses)

        denied = [TOPIC_DENIED] * 3 + [CLUSTER_DENIED, GROUP_DENIED]
        assert await described() == denied
        assert await altered() == denied
        await node.allow(Operation.ALTER_CONFIGS)
        await node.allow(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)
        await node.allow(Operation.ALTER_CONFIGS, ResourceType.GROUP, "g")
        assert await described() == [0, TOPIC_DENIED, TOPIC_DENIED, 0, 0]
        assert await altered() == [0, TOPIC_DENIED, TOPIC_DENIED, CLUSTER_DENIED, 0]

    with_acls(scenario)


def _creation(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": MINE,
        "resource_pattern_type": 3,
        "principal": ANA,
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }


def test_acls_are_changed_by_who_may_alter_the_cluster() -> None:
    async def scenario(node: AclNode) -> None:
        created = await node.ana.call(ApiKey.CREATE_ACLS, 3, creations=[_creation(), _creation()])
        assert [result.error_code for result in created.results] == [CLUSTER_DENIED] * 2
        deleted = await node.ana.call(ApiKey.DELETE_ACLS, 3, filters=[ANY_ACL])
        assert [result.error_code for result in deleted.filter_results] == [CLUSTER_DENIED]
        await node.allow(Operation.ALTER, CLUSTER, CLUSTER_NAME)
        created = await node.ana.call(ApiKey.CREATE_ACLS, 3, creations=[_creation(), _creation()])
        assert [result.error_code for result in created.results] == [0, 0]
        assert len(node.node.broker.cluster.view.acls) == 2

    with_acls(scenario)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 77}, "Invalid resourceType UNKNOWN (77)"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Resource name should not be empty"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "ana"}, "no colon is present"),
        ({"host": ""}, "Host should not be empty"),
        ({"principal": "User:" + "x" * 9000}, "at most 8192 are allowed"),
    ],
)
def test_a_wrong_acl_is_refused_and_does_not_affect_the_others(wrong: Any, message: str) -> None:
    async def scenario(node: AclNode) -> None:
        reply = await node.admin.call(
            ApiKey.CREATE_ACLS, 3, creations=[_creation(**wrong), _creation(operation=4)]
        )
        assert [result.error_code for result in reply.results] == [42, 0]
        assert message in reply.results[0].error_message
        assert [acl.operation for acl in node.node.broker.cluster.view.acls.values()] == [Operation.WRITE]

    with_acls(scenario)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_described_and_deleted_by_filters(version: int) -> None:
    async def scenario(node: AclNode) -> None:
        prefixed = _creation(resource_name="pre", resource_pattern_type=4)
        bindings = [_creation(), _creation(operation=4), prefixed]
        reply = await node.admin.call(ApiKey.CREATE_ACLS, version, creations=bindings)
        assert [result.error_code for result in reply.results] == [0, 0, 0]
        reply = await node.admin.call(ApiKey.DESCRIBE_ACLS, version, **ANY_ACL)
        found = {(each.resource_name, each.pattern_type): len(each.acls) for each in reply.resources}
        assert found == {(MINE, 3): 2, ("pre", 4): 1}
        matching = {**ANY_ACL, "resource_type_filter": 2, "resource_name_filter": "prefix"}
        filters = [{**matching, "pattern_type_filter": 2}, {**matching, "operation": 99}, matching]
        reply = await node.admin.call(ApiKey.DELETE_ACLS, version, filters=filters)
        results = [
            (each.error_code, [acl.resource_name for acl in each.matching_acls])
            for each in reply.filter_results
        ]
        assert results == [(0, ["pre"]), (42, []), (0, [])]
        reply = await node.admin.call(ApiKey.DESCRIBE_ACLS, version, **{**ANY_ACL, "operation": 4})
        assert [(each.resource_name, len(each.acls)) for each in reply.resources] == [(MINE, 1)]

    with_acls(scenario)


def test_acls_outlive_a_restart() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.READ)
        before = node.node.broker.cluster.view.acls
        await node.node.stop()
        await node.node.start()
        assert node.node.broker.cluster.view.acls == before

    with_acls(scenario)


def test_without_an_authorizer_there_are_no_acls() -> None:
    async def scenario(node: SimBroker) -> None:
        connection = await node.connect()
        described = await connection.call(ApiKey.DESCRIBE_ACLS, ANY_ACL, version=3)
        assert (described.error_code, described.resources) == (SECURITY_DISABLED, ())
        created = await connection.call(ApiKey.CREATE_ACLS, {"creations": [_creation()]}, version=3)
        assert created.results[0].error_code == SECURITY_DISABLED
        deleted = await connection.call(ApiKey.DELETE_ACLS, {"filters": [ANY_ACL]}, version=3)
        assert deleted.filter_results[0].error_code == SECURITY_DISABLED
        assert not node.broker.cluster.view.acls

    on_a_node(scenario)


def test_nodes_may_do_everything() -> None:
    async def scenario(node: AclNode) -> None:
        await node.allow(Operation.ALL, name="*", principal="User:*")
        await node.deny(Operation.ALL, CLUSTER, CLUSTER_NAME)
        peer = await node.client(node_principal(2))
        reply = await peer.call(ApiKey.ALTER_PARTITION, 3, broker_id=2, broker_epoch=-7, topics=[])
        assert reply.error_code == 77  # STALE_BROKER_EPOCH, from the handler
        named_so = await node.client(user("Node:2"))
        reply = await named_so.call(ApiKey.ALTER_PARTITION, 3, broker_id=1, broker_epoch=-7, topics=[])
        assert reply.error_code == CLUSTER_DENIED

    with_acls(scenario)


def test_denials_are_reported() -> None:
    async def scenario(node: AclNode) -> None:
        denials: list[Denial] = []
        assert node.node.broker.authorization is not None
        node.node.broker.authorization.on_denied = denials.append
        await node.ana.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        await node.ana.call(ApiKey.PRODUCE, 8, **node.node.produce_fields(b"x", name=MINE))
        await node.ana.call(ApiKey.LIST_GROUPS, 3)
        host = denials[0].host
        assert denials == [
            Denial(user("ana"), host, 42, Operation.DELETE, ResourceType.GROUP, "g"),
            Denial(user("ana"), host, 0, Operation.WRITE, ResourceType.TOPIC, MINE),
        ]

    with_acls(scenario)
