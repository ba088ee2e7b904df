# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's kafka-configs, unmodified, makes users; Java clients log in as them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool
from tests.harness.live.secured_node import SecuredNode

pytestmark = pytest.mark.compat_jvm

USER = ("--entity-type", "users", "--entity-name")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    settings = {"connections.max.reauth.ms": "2000"}
    with SecuredNode(tmp_path_factory.mktemp("users"), settings) as node:
        yield node


def client_file(path: Path, mechanism: str, user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
    return str(path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_of_kafka_configs_logs_in_until_deleted(
    kafka_engine: KafkaEngine, node: SecuredNode, mechanism: str, tmp_path: Path
) -> None:
    java, secured = JavaTool(kafka_engine, node.open), JavaTool(kafka_engine, node.secure)
    user = f"ann-{mechanism}"
    java("configs", "--alter", "--add-config", f"{mechanism}=[iterations=8192,password=s3cret]", *USER, user)
    login = ("--command-config", client_file(tmp_path / "right", mechanism, user, "s3cret"))
    secured("topics", *login, "--create", "--topic", f"t-{mechanism}")
    assert f"t-{mechanism}" in secured("topics", *login, "--list")
    wrong = ("--command-config", client_file(tmp_path / "wrong", mechanism, user, "wrong"))
    assert "SaslAuthenticationException" in secured.refused("topics", *wrong, "--list")
    java("configs", "--alter", "--delete-config", mechanism, *USER, user)
    assert "SaslAuthenticationException" in secured.refused("topics", *login, "--list")


def test_a_java_producer_logs_in_again_during_its_sessions(
    kafka_engine: KafkaEngine, node: SecuredNode, tmp_path: Path
) -> None:
    node.set_password("bob", "s3cret")
    secured = JavaTool(kafka_engine, node.secure)
    file = client_file(tmp_path / "bob", "SCRAM-SHA-512", "bob", "s3cret")
    secured("topics", "--command-config", file, "--create", "--topic", "long")
    printed = secured(
        "producer-perf-test", "--topic", "long", "--num-records", "60", "--record-size", "10",
        "--throughput", "10", "--command-config", file,
    )  # fmt: skip
    assert "60 records sent" in printed
