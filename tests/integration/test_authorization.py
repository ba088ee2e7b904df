# SPDX-License-Identifier: Apache-2.0
"""ACLs on a live node with confluent-kafka and the command line; clients are User:ANONYMOUS here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from tests.harness.live.node import NodeProcess

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ME = "User:ANONYMOUS"
ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path, settings=SETTINGS).start() as process:
        yield process


def acl(operation: AclOperation, permission: AclPermissionType, name: str = "closed") -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, ResourcePatternType.LITERAL, ME, "*", operation, permission)


def admin_of(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def created(admin: AdminClient, *acls: AclBinding) -> None:
    for done in admin.create_acls(list(acls)).values():
        done.result(10)


def deleted(admin: AdminClient, wanted: AclBindingFilter = ANY) -> list[AclBinding]:
    return [each for done in admin.delete_acls([wanted]).values() for each in done.result(10)]


def produced(node: NodeProcess, topic: str) -> Any:
    """The error of one record, or None."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 10_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(15)
    (error,) = errors
    return error


def test_an_admin_client_creates_describes_and_deletes_acls(node: NodeProcess) -> None:
    admin = admin_of(node)
    write = acl(AclOperation.WRITE, AclPermissionType.ALLOW)
    prefixed = AclBinding(
        ResourceType.GROUP, "team-", ResourcePatternType.PREFIXED, "User:ana", "10.0.0.1",
        AclOperation.READ, AclPermissionType.DENY,
    )  # fmt: skip
    created(admin, write, prefixed)
    created(admin, write)
    assert set(admin.describe_acls(ANY).result(10)) == {write, prefixed}
    of_groups = AclBindingFilter(
        ResourceType.GROUP, "team-1", ResourcePatternType.MATCH, None, None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    assert admin.describe_acls(of_groups).result(10) == [prefixed]
    assert deleted(admin, of_groups) == [prefixed]
    assert admin.describe_acls(ANY).result(10) == [write]
    node.stop()
    node.start()
    assert admin_of(node).describe_acls(ANY).result(10) == [write]


def test_a_producer_and_a_consumer_are_stopped_by_a_denial(node: NodeProcess) -> None:
    admin = admin_of(node)
    for done in admin.create_topics([NewTopic("closed", 1), NewTopic("open", 1)]).values():
        done.result(10)
    assert produced(node, "closed") is None
    created(
        admin,
        acl(AclOperation.WRITE, AclPermissionType.DENY),
        acl(AclOperation.READ, AclPermissionType.DENY),
        acl(AclOperation.DESCRIBE, AclPermissionType.ALLOW),
    )
    assert produced(node, "closed").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(node, "open") is None
    consumer = Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["closed"])
    message = consumer.poll(20)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(deleted(admin)) == 3
    assert produced(node, "closed") is None
    message = consumer.poll(20)
    while message is not None and message.error() is not None:  # refused before the deletion
        message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


def test_nothing_is_allowed_without_acls_unless_it_is_configured(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    with NodeProcess(tmp_path, settings=settings).start() as node:
        admin = admin_of(node)
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([NewTopic("t", 1)])["t"].result(10)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaException) as refused:
            created(admin, acl(AclOperation.WRITE, AclPermissionType.ALLOW))
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert not admin.list_topics(timeout=10).topics


def headrace(node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.main", "acls", *arguments, "--bootstrap", node.bootstrap]
    nothing = subprocess.DEVNULL
    return subprocess.run(command, check=False, capture_output=True, text=True, stdin=nothing, timeout=60)


def test_the_command_line_adds_lists_and_removes_acls(node: NodeProcess) -> None:
    added = headrace(
        node, "add", "--principal", "User:ana", "--operation", "read", "--operation", "describe-configs",
        "--topic", "eu-", "--prefixed",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    listed = headrace(node, "list").stdout.splitlines()
    assert listed[0].split("\t")[0] == "RESOURCE"
    assert [line.split("\t")[1:] for line in listed[1:]] == [
        ["eu-", "prefixed", "User:ana", "*", "read", "allow"],
        ["eu-", "prefixed", "User:ana", "*", "describe-configs", "allow"],
    ]
    matching = headrace(node, "list", "--topic", "eu-west", "--pattern", "match", "--json")
    assert [each["operation"] for each in json.loads(matching.stdout)] == ["read", "describe-configs"]
    unconfirmed = headrace(node, "remove", "--principal", "User:ana", "--operation", "read")
    assert unconfirmed.returncode == 1
    assert "confirmation needed: remove 1 ACL" in unconfirmed.stderr
    assert "User:ana is allowed read on names that begin with topic 'eu-'" in unconfirmed.stderr
    removed = headrace(node, "remove", "--principal", "User:ana", "--operation", "read", "--yes")
    assert removed.stdout == "Removed 1 ACLs.\n"
    assert headrace(node, "remove").returncode == 2, "names nothing"
    wrong = headrace(node, "add", "--principal", "ana", "--operation", "read", "--topic", "t")
    assert wrong.returncode == 2
    assert "try User:ana" in wrong.stderr
    wrong = headrace(node, "add", "--principal", "User:a", "--operation", "write", "--group", "g")
    assert "'write' cannot be done to a group" in wrong.stderr
