# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's tools, unmodified, on a node with TLS, logins and ACLs: every protocol, mechanism and error.

The same for Python and Go: test_python_security.py, test_go_security.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine, ToolResult
from tests.harness.live.guarded_node import SCRAM, WAYS, GuardedNode, Reach, Way

pytestmark = pytest.mark.compat_jvm

LOGIN = Way("SASL_SSL", SCRAM[1])
# Apache Kafka's clients read tokens only from files that are allowed.
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
USERS = ("--entity-type", "users", "--entity-name", "zoe")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("guarded")) as node:
        yield node


class Tools:
    """Apache Kafka's tools with one login."""

    def __init__(self, engine: KafkaEngine, reach: Reach, folder: Path) -> None:
        self._engine = engine
        self._arguments = (
            "--bootstrap-server", reach.bootstrap, "--command-config", str(reach.java(folder)),
        )  # fmt: skip
        token = folder / "token"
        self._options = (f"{ALLOWED}.urls=file://{token}", f"{ALLOWED}.files={token}")

    def run(self, tool: str, *arguments: str, stdin: str = "") -> ToolResult:
        return self._engine.tool(tool, *self._arguments, *arguments, stdin=stdin, jvm_options=self._options)

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        result = self.run(tool, *arguments, stdin=stdin)
        assert result.returncode == 0, result.output
        return result.stdout

    def produce(self, topic: str) -> ToolResult:
        bounded = ("--command-property", "max.block.ms=15000")
        return self.run("console-producer", "--topic", topic, *bounded, stdin="value\n")

    def consume(self, topic: str, group: str) -> ToolResult:
        return self.run(
            "console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "1",
            "--timeout-ms", "15000",
        )  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_console_tools_produce_and_consume(
    kafka_engine: KafkaEngine, node: GuardedNode, way: Way, tmp_path: Path
) -> None:
    topic = f"ann-java-{way}".replace(" ", "-")
    node.create_topic(topic)
    tools = Tools(kafka_engine, node.reach(way), tmp_path)
    produced = tools.produce(topic)
    assert "ERROR" not in produced.output, produced.output
    consumed = tools.consume(topic, topic)
    assert consumed.stdout == "value\n", consumed.output


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_wrong_password_token_or_certificate_is_refused(
    kafka_engine: KafkaEngine, node: GuardedNode, way: Way, tmp_path: Path
) -> None:
    told = Tools(kafka_engine, node.reach(way, wrong=True), tmp_path).produce("ann-refused").output
    if way.mechanism == "OAUTHBEARER":
        assert "SaslAuthenticationException" in told
    elif way.mechanism:
        assert f"invalid credentials with SASL mechanism {way.mechanism}" in told
    else:
        assert "SslAuthenticationException" in told


def test_missing_acls_are_told_by_their_codes(
    kafka_engine: KafkaEngine, node: GuardedNode, tmp_path: Path
) -> None:
    for topic in ("else-java", "ann-group-java"):
        node.create_topic(topic)
    tools = Tools(kafka_engine, node.reach(LOGIN), tmp_path)
    assert "TopicAuthorizationException" in tools.produce("else-java").output
    assert "TopicAuthorizationException" in tools.consume("else-java", "ann-g").output
    assert "GroupAuthorizationException" in tools.consume("ann-group-java", "else").output
    refused = tools.run("acls", "--list").output
    assert "ClusterAuthorizationException" in refused
    refused = tools.run("configs", "--describe", *USERS).output
    assert "ClusterAuthorizationException" in refused


def test_acls_users_and_quotas_are_administered_by_a_super_user(
    kafka_engine: KafkaEngine, node: GuardedNode, tmp_path: Path
) -> None:
    admin = Tools(kafka_engine, node.reach(LOGIN, user="admin"), tmp_path)
    admin("topics", "--create", "--topic", "zoe-1", "--partitions", "1")
    password = "SCRAM-SHA-512=[iterations=8192,password=zoe-secret]"
    admin("configs", "--alter", "--add-config", password, *USERS)
    admin("configs", "--alter", "--add-config", "producer_byte_rate=1000000", *USERS)
    described = admin("configs", "--describe", *USERS)
    assert "producer_byte_rate=1000000" in described
    assert "SCRAM-SHA-512=iterations=8192" in described
    clients = ("--entity-type", "clients", "--entity-default")
    admin("configs", "--alter", "--add-config", "consumer_byte_rate=5000000", *clients)
    assert "consumer_byte_rate=5000000" in admin("configs", "--describe", *clients)
    allow = ("--allow-principal", "User:zoe", "--topic", "zoe-", "--resource-pattern-type", "prefixed")
    admin("acls", "--add", "--producer", *allow)
    assert "principal=User:zoe, host=*, operation=WRITE, permissionType=ALLOW" in admin("acls", "--list")
    admin("acls", "--remove", "--force", "--producer", *allow)
    assert "User:zoe" not in admin("acls", "--list")
    for name in ("SCRAM-SHA-512", "producer_byte_rate"):  # the tool takes one kind at a time
        admin("configs", "--alter", "--delete-config", name, *USERS)
    admin("configs", "--alter", "--delete-config", "consumer_byte_rate", *clients)
    assert "zoe" not in admin("configs", "--describe", "--entity-type", "users")
    assert "zoe-1" in admin("topics", "--list")
    assert "ann-" in admin("consumer-groups", "--list")
