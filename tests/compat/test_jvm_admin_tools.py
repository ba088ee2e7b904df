# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's own admin tools, unmodified: topics, configs, offsets, delete-records, log-dirs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.compat.java_tool import JavaTool
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm


def fill(bootstrap: str, topic: str, count: int, *, timestamp_ms: int = 1_700_000_000_000) -> None:
    """Records with times a second apart in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"v%d" % number, partition=0, timestamp=timestamp_ms + 1000 * number)
    assert producer.flush(20) == 0


def node_id(bootstrap: str) -> str:
    (broker,) = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers
    return str(broker)


@pytest.mark.row("D3")
@pytest.mark.row("D18")
def test_topics_are_created_listed_described_altered_and_deleted(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=123456")
    assert topic in java("topics", "--list").splitlines()
    described = java("topics", "--describe", "--topic", topic)
    assert re.search(
        rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: 1", described
    )
    assert "retention.ms=123456" in described
    assert len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    java("topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in java("topics", "--describe", "--topic", topic)
    java("topics", "--delete", "--topic", topic)
    assert topic not in java("topics", "--list").splitlines()


@pytest.mark.row("D3")
def test_a_topic_without_a_number_of_partitions_gets_one(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic)
    assert "PartitionCount: 1" in java("topics", "--describe", "--topic", topic)


def test_topic_refusals_reach_the_java_user(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "2")
    assert "already exists" in java.refused("topics", "--create", "--topic", topic)
    assert "InvalidTopicException" in java.refused("topics", "--create", "--topic", "no spaces allowed")
    wrong_config = java.refused(
        "topics", "--create", "--topic", f"{topic}-2", "--config", "retention.ms=soon"
    )
    assert "retention.ms" in wrong_config
    fewer = java.refused("topics", "--alter", "--topic", topic, "--partitions", "1")
    assert "InvalidPartitionsException" in fewer
    too_many_replicas = ("--create", "--topic", f"{topic}-3", "--replication-factor", "3")
    assert "InvalidReplicationFactorException" in java.refused("topics", *too_many_replicas)
    missing = java.refused("topics", "--describe", "--topic", f"{topic}-missing")
    assert "does not exist" in missing


def test_offsets_are_found_by_position_and_by_time(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "2")
    fill(java.bootstrap, topic, 10)

    def offsets(time: str) -> list[str]:
        return java("get-offsets", "--topic", topic, "--time", time).split()

    assert offsets("latest") == [f"{topic}:0:10", f"{topic}:1:0"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("1700000003500")[0] == f"{topic}:0:4"
    assert offsets("max-timestamp")[0] == f"{topic}:0:9"


def test_topic_configs_are_changed_and_described(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    java("configs", *entity, "--alter", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = java("configs", *entity, "--describe")
    assert "retention.ms=1000 " in described
    assert "cleanup.policy=compact,delete " in described
    java("configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=1000" not in java("configs", *entity, "--describe")
    every_one = java("configs", *entity, "--describe", "--all")
    assert "retention.ms=604800000 " in every_one
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in every_one
    wrong = java.refused("configs", *entity, "--alter", "--add-config", "segment.bytes=-1")
    assert "segment.bytes" in wrong


def test_broker_configs_are_changed_and_described(java: JavaTool) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", node_id(java.bootstrap))
    java("configs", *entity, "--alter", "--add-config", "log.retention.ms=99999999")
    assert "log.retention.ms=99999999 " in java("configs", *entity, "--describe")
    java("configs", *entity, "--alter", "--delete-config", "log.retention.ms")
    assert "log.retention.ms=99999999" not in java("configs", *entity, "--describe")
    assert "log.segment.bytes=1073741824 " in java("configs", *entity, "--describe", "--all")
    defaults = ("--entity-type", "brokers", "--entity-default")
    java("configs", *defaults, "--alter", "--add-config", "log.retention.ms=88888888")
    assert "log.retention.ms=88888888 " in java("configs", *defaults, "--describe")
    java("configs", *defaults, "--alter", "--delete-config", "log.retention.ms")


def test_records_are_deleted_before_an_offset(java: JavaTool, topic: str, tmp_path: Path) -> None:
    java("topics", "--create", "--topic", topic)
    fill(java.bootstrap, topic, 10)
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]}
    offsets_file = tmp_path / "offsets.json"
    offsets_file.write_text(json.dumps(wanted))
    printed = java("delete-records", "--offset-json-file", str(offsets_file))
    assert f"partition: {topic}-0\tlow_watermark: 7" in printed
    assert java("get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:7"]
    wanted["partitions"][0]["offset"] = 11  # type: ignore[index]
    offsets_file.write_text(json.dumps(wanted))
    beyond = java.run("delete-records", "--offset-json-file", str(offsets_file))
    assert "OffsetOutOfRangeException" in beyond.output


def test_log_dirs_show_the_size_of_each_partition(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "2")
    fill(java.bootstrap, topic, 10)
    printed = java("log-dirs", "--describe", "--topic-list", topic)
    document = json.loads(printed.splitlines()[-1])
    (directory,) = document["brokers"][0]["logDirs"]
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sizes[f"{topic}-0"] > 10
    assert sizes[f"{topic}-1"] == 0
    assert directory["error"] is None


def test_the_java_client_finds_every_api_that_it_needs(java: JavaTool) -> None:
    printed = java("broker-api-versions")
    for served in (
        "Produce(0): 0 to 13 [usable: 13]",
        "Fetch(1): 4 to 18 [usable: 18]",
        "Metadata(3): 0 to 13",
    ):
        assert served in printed


def test_client_quotas_are_set_described_and_removed(java: JavaTool, topic: str) -> None:
    user = ("--entity-type", "users", "--entity-name", topic)
    client = ("--entity-type", "clients", "--entity-name", "app")
    java("configs", *user, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50")
    java("configs", *user, *client, "--alter", "--add-config", "consumer_byte_rate=2048")
    described = java.run("configs", *user, "--describe").output  # it also asks for SCRAM credentials
    assert f"Quota configs for user-principal '{topic}' are" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=50.0" in described
    assert "consumer_byte_rate=2048.0" in java("configs", *user, *client, "--describe")
    defaults = ("--entity-type", "users", "--entity-default")
    java("configs", *defaults, "--alter", "--add-config", "controller_mutation_rate=10")
    assert "controller_mutation_rate=10.0" in java.run("configs", *defaults, "--describe").output
    address = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    java("configs", *address, "--alter", "--add-config", "connection_creation_rate=5")
    assert "connection_creation_rate=5.0" in java("configs", *address, "--describe")
    for entity, name in (
        (user, "producer_byte_rate,request_percentage"),
        ((*user, *client), "consumer_byte_rate"),
        (defaults, "controller_mutation_rate"),
        (address, "connection_creation_rate"),
    ):
        java("configs", *entity, "--alter", "--delete-config", name)
        assert "_rate=" not in java.run("configs", *entity, "--describe").output


def test_the_transaction_version_is_described_and_follows_its_setting(java: JavaTool) -> None:
    def level() -> str:
        described = java("features", "describe")
        (line,) = [line for line in described.splitlines() if "transaction.version" in line]
        levels = r"SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: (\d)"
        found = re.search(levels, line)
        assert found, described
        return found[1]

    everywhere = ("--alter", "--entity-type", "brokers", "--entity-default")
    assert level() == "2"
    java("configs", *everywhere, "--add-config", "headrace.transaction.version=1")
    try:
        wait_until(lambda: level() == "1", "the level is held at 1")
    finally:
        java("configs", *everywhere, "--delete-config", "headrace.transaction.version")
    wait_until(lambda: level() == "2", "the level has risen")
