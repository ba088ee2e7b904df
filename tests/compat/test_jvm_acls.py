# SPDX-License-Identifier: Apache-2.0
"""ACLs beside Apache Kafka: its tool with our node, our command with its broker, equal answers of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from headrace.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.client.bootstrap import parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.tools.acls import create_acls
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.wire.api_key import ApiKey
from tests.compat.cli_runner import Cli
from tests.compat.java_tool import JavaTool
from tests.compat.reply_summary import summary
from tests.harness.live.node import NodeProcess

pytestmark = pytest.mark.compat_jvm

# Clients do not log in, so both know them as User:ANONYMOUS.
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
ME = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("acls"), settings=SETTINGS).start() as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def theirs(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    prepared = kafka_engine.prepare(tmp_path_factory.mktemp("kafka-acls"), SETTINGS)
    with prepared.launch() as node:
        yield node.bootstrap


def test_kafkas_own_tool_adds_lists_and_removes_acls(kafka_engine: KafkaEngine, ours: str) -> None:
    java = JavaTool(kafka_engine, ours)
    consumer = ["--allow-principal", "User:bo", "--consumer", "--topic", "orders", "--group", "billing"]
    java("acls", "--add", *consumer)
    java("acls", "--add", "--deny-principal", "User:eve", "--operation", "All", "--topic", "or",
         "--resource-pattern-type", "prefixed", "--deny-host", "10.0.0.1")  # fmt: skip
    listed = java("acls", "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "principal=User:bo, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "principal=User:eve, host=10.0.0.1, operation=ALL, permissionType=DENY" in listed
    java("acls", "--remove", *consumer, "--force")
    left = java("acls", "--list")
    assert "User:bo" not in left
    assert "User:eve" in left
    java("acls", "--remove", "--topic", "or", "--resource-pattern-type", "prefixed", "--force")


def test_our_command_works_with_apache_kafka(theirs: str) -> None:
    cli = Cli(theirs)
    cli("acls", "add", "-p", "User:ana", "-o", "read", "-o", "write", "-t", "eu-", "--prefixed").ok()
    rows = cli("acls", "list", "--principal", "User:ana").ok().rows
    assert rows[1:] == [
        ["topic", "eu-", "prefixed", "User:ana", "*", "read", "allow"],
        ["topic", "eu-", "prefixed", "User:ana", "*", "write", "allow"],
    ]
    assert cli("acls", "remove", "-p", "User:ana", "-o", "write", "--yes").ok().out == "Removed 1 ACLs.\n"
    assert len(cli("acls", "list", "--topic", "eu-1", "--pattern", "match", "--json").ok().document) == 1
    cli("acls", "remove", "-p", "User:ana", "--yes").ok()


# Equal answers

OPEN, READ_ONLY, CLOSED, GHOST = "open", "read-only", "closed", "closed-ghost"
TOPICS = (OPEN, READ_ONLY, CLOSED, GHOST)
OPEN_GROUP, CLOSED_GROUP = "open-group", "closed-group"
GROUPS = (OPEN_GROUP, CLOSED_GROUP)
_NAMED = [{"name": name} for name in TOPICS]
_ONE_PARTITION = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
_COMMIT = {
    "partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": "",
}  # fmt: skip
_MEMBER = {"group_instance_id": None, "member_id": ""}

REQUESTS: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "metadata of all": (
        ApiKey.METADATA,
        12,
        {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True},
    ),
    "metadata by name": (
        ApiKey.METADATA,
        12,
        {
            "topics": [{"topic_id": None, "name": name} for name in TOPICS],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": True,
        },
    ),
    "describe topic partitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": _NAMED, "response_partition_limit": 100, "cursor": None},
    ),
    "list offsets": (
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": name,
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                }
                for name in TOPICS
            ],
        },
    ),
    "delete records": (
        ApiKey.DELETE_RECORDS,
        2,
        {
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in TOPICS
            ],
            "timeout": 5000,
        },
    ),
    "create partitions": (
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": name, "count": 3, "assignments": None} for name in TOPICS],
            "timeout": 5000,
            "validate_only": True,
        },
    ),
    "create topics": (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in (CLOSED, GHOST)
            ],
            "timeout": 5000,
            "validate_only": True,
        },
    ),
    "describe configs": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
                for name in TOPICS
            ],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    "alter configs": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {"resource_type": 2, "resource_name": name, "configs": []} for name in (READ_ONLY, CLOSED)
            ],
            "validate_only": True,
        },
    ),
    "describe producers": (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": _ONE_PARTITION}),
    "find coordinator": (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": GROUPS}),
    "describe groups": (
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": GROUPS, "include_authorized_operations": True},
    ),
    "delete groups": (ApiKey.DELETE_GROUPS, 2, {"groups_names": [CLOSED_GROUP]}),
    "commit": (
        ApiKey.OFFSET_COMMIT,
        8,
        {
            **_MEMBER,
            "group_id": OPEN_GROUP,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": name, "partitions": [_COMMIT]} for name in TOPICS],
        },
    ),
    "commit to a closed group": (
        ApiKey.OFFSET_COMMIT,
        8,
        {
            **_MEMBER,
            "group_id": CLOSED_GROUP,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": OPEN, "partitions": [_COMMIT]}],
        },
    ),
    "fetch offsets": (
        ApiKey.OFFSET_FETCH,
        8,
        {
            "groups": [{"group_id": group, "topics": _ONE_PARTITION} for group in GROUPS],
            "require_stable": False,
        },
    ),
    "fetch all offsets": (
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": OPEN_GROUP, "topics": None}], "require_stable": False},
    ),
    "delete offsets": (
        ApiKey.OFFSET_DELETE,
        0,
        {
            "group_id": OPEN_GROUP,
            "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in (CLOSED, GHOST)],
        },
    ),
    "delete offsets of a closed group": (
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": CLOSED_GROUP, "topics": []},
    ),
    "heartbeat": (
        ApiKey.HEARTBEAT,
        4,
        {"group_id": CLOSED_GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None},
    ),
    "consumer group heartbeat": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        {
            "group_id": "new",
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": 10_000,
            "subscribed_topic_names": [OPEN, CLOSED],
            "server_assignor": None,
            "topic_partitions": [],
        },
    ),
    "delete topics": (
        ApiKey.DELETE_TOPICS,
        6,
        {
            "topics": [{"name": name, "topic_id": None} for name in (READ_ONLY, CLOSED, GHOST)],
            "timeout": 5000,
        },
    ),
}


_ANY_ACL = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_NEW_ACL = {
    "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": ME, "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
_NEW_TOPIC = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

WITHOUT_THE_CLUSTER: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "topics with operations on the cluster": (
        ApiKey.METADATA,
        9,
        {
            "topics": [{"name": name} for name in (OPEN, GHOST, "new-topic")],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
    ),
    "describe cluster": (
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    "describe log dirs": (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    "describe log dirs, old": (ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": None}),
    "elect leaders": (
        ApiKey.ELECT_LEADERS,
        2,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": OPEN, "partitions": [0]}],
            "timeout": 5000,
        },
    ),
    "alter reassignments": (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 5000, "topics": []}),
    "list reassignments": (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 5000, "topics": None}),
    "describe ACLs": (ApiKey.DESCRIBE_ACLS, 3, _ANY_ACL),
    "create ACLs": (ApiKey.CREATE_ACLS, 3, {"creations": [_NEW_ACL]}),
    "delete ACLs": (ApiKey.DELETE_ACLS, 3, {"filters": [_ANY_ACL]}),
    "unregister": (ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 9}),
    "configs of a node": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    "alter configs of a node": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [{"resource_type": 4, "resource_name": "1", "configs": []}], "validate_only": True},
    ),
    "list groups": (ApiKey.LIST_GROUPS, 3, {}),
    "create topics by themselves": (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [{"name": name, **_NEW_TOPIC} for name in (GHOST, READ_ONLY, "new-topic")],
            "timeout": 5000,
            "validate_only": True,
        },
    ),
    "delete topics by themselves": (
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": name, "topic_id": None} for name in (OPEN, GHOST)], "timeout": 5000},
    ),
}
"""Sent when the sender has lost every operation on the cluster but ClusterAction, which Kafka needs."""


def _acl(name: str, operation: Operation, permission: Permission, *, prefixed: bool = False) -> AclBinding:
    kind = ResourceType.GROUP if name.endswith("group") else ResourceType.TOPIC
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, pattern, ME, "*", operation, permission)


async def until_denied(call: Callable[..., Awaitable[Any]], title: str) -> None:
    """Apache Kafka acknowledges ACLs before its nodes know them."""
    key, version, fields = (REQUESTS | WITHOUT_THE_CLUSTER)[title]
    for _ in range(100):
        reply = repr(summary(await call(key, fields, version=version)))
        if "'error_code': 30" in reply or "'error_code': 31" in reply:
            return
        await asyncio.sleep(0.1)  # it says nothing when they do
    raise AssertionError(f"{title} is not denied")


async def answers(bootstrap: str) -> dict[str, Any]:
    (address,) = parse_bootstrap(bootstrap)
    connection = await Connection.open(address.host, address.port)
    call: Callable[..., Awaitable[Any]] = connection.call
    topics = [{"name": name, **_NEW_TOPIC} for name in (OPEN, READ_ONLY, CLOSED)]
    await call(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 10_000, "validate_only": False}, version=7)
    for _ in range(100):
        found = await call(
            ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [OPEN_GROUP]}, version=4
        )
        key, version, fields = REQUESTS["commit"]
        committed = await call(key, fields, version=version)
        if not found.coordinators[0].error_code and committed.topics[0].partitions[0].error_code == 0:
            break
        await asyncio.sleep(0.2)  # the coordinator is being created
    await asyncio.to_thread(
        create_acls,
        bootstrap,
        [
            _acl(CLOSED, Operation.ALL, Permission.DENY, prefixed=True),
            _acl(READ_ONLY, Operation.READ, Permission.ALLOW),
            _acl(CLOSED_GROUP, Operation.ALL, Permission.DENY),
        ],
    )
    await until_denied(call, "describe groups")
    found = {
        title: summary(await call(key, fields, version=version))
        for title, (key, version, fields) in REQUESTS.items()
    }
    own = AclBinding(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, ME, "*", Operation.CLUSTER_ACTION,
        Permission.ALLOW,
    )  # fmt: skip
    await asyncio.to_thread(create_acls, bootstrap, [own])
    await until_denied(call, "describe log dirs")
    for title, (key, version, fields) in WITHOUT_THE_CLUSTER.items():
        found[title] = summary(await call(key, fields, version=version))
    await connection.close()
    return found


@pytest.fixture(scope="module")
def both(ours: str, theirs: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return asyncio.run(answers(ours)), asyncio.run(answers(theirs))


@pytest.mark.parametrize("title", [*REQUESTS, *WITHOUT_THE_CLUSTER])
def test_a_request_is_authorized_as_by_apache_kafka(
    both: tuple[dict[str, Any], dict[str, Any]], title: str
) -> None:
    ours, theirs = both
    assert ours[title] == theirs[title]
