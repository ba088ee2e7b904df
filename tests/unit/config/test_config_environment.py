# SPDX-License-Identifier: Apache-2.0
"""Variables of the drawn images: the container file changes its image line and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.config import load_config
from headrace.config.coordination_address import SqliteAddress, ZooKeeperAddress
from headrace.errors import ConfigError

DRAWN_COMPOSE = Path(__file__).with_name("drawn-compose.yaml")
IMAGE = {"KAFKA_LOG_DIRS": "/var/lib/kafka/data", "HEADRACE_LISTENERS_ALLOW_ANONYMOUS": "true"}
"""What the Dockerfile itself sets (tests/docs holds the two together), and what its user has to add."""


def _drawn_environment():
    pairs = re.findall(r"^ +(KAFKA_[A-Z_]+): (.+)$", DRAWN_COMPOSE.read_text(), flags=re.MULTILINE)
    return {name: value.strip('"') for name, value in pairs}


def _load(environment):
    return load_config(None, {}, {**IMAGE, **environment})


@pytest.mark.row("D20")
def test_the_drawn_container_file_only_changes_its_image_line():
    config = _load(_drawn_environment())
    assert [(each.name, each.host, each.port) for each in config.listeners] == [
        ("PLAINTEXT", "0.0.0.0", 29092),
        ("PLAINTEXT_HOST", "0.0.0.0", 9092),
    ]
    assert [(each.advertised_host, each.advertised_port) for each in config.listeners] == [
        ("kafka", 29092),
        ("localhost", 9092),
    ]
    assert (config["node.id"], config["num.partitions"], config["log.retention.hours"]) == (1, 1, 168)
    assert config["auto.create.topics.enable"] is True
    assert str(config.data_directory) == "/var/lib/kafka/data"


def test_settings_without_effect_are_reported_once_per_reason():
    notes = _load(_drawn_environment()).notes
    assert not any("KAFKA_ZOOKEEPER_CONNECT" in note for note in notes), "it is not ignored"
    assert any("KAFKA_HEAP_OPTS: it is for the Java virtual machine" in note for note in notes)
    mentioned = re.findall(r"KAFKA_[A-Z_]+", " ".join(notes))
    assert sorted(mentioned) == sorted(set(mentioned))
    assert not any("not settings of Headrace" in note for note in notes)


def test_listeners_follow_the_advertised_ones_when_only_those_are_given():
    environment = _drawn_environment()
    del environment["KAFKA_LISTENERS"]
    assert _load(environment).listeners == _load(_drawn_environment()).listeners


def test_a_kraft_container_file_works_without_its_controller_listener():
    config = _load(
        {
            "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
            "KAFKA_NODE_ID": "3",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "3@kafka:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
    )
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert config["node.id"] == 3
    assert any("CLUSTER_ID" in note for note in config.notes)


def test_unknown_variables_are_listed_once_in_one_line():
    notes = _load({"KAFKA_NUM_PARTITION": "3", "HEADRACE_COLOUR": "blue"}).notes
    assert notes == ("ignored, not settings of Headrace: KAFKA_NUM_PARTITION, HEADRACE_COLOUR",)


def test_other_programs_variables_are_not_looked_at():
    assert _load({"PATH": "/bin", "HEADRACE_BOOTSTRAP": "x:1", "ZOOKEEPER_TICK_TIME": "1"}).notes == ()


def test_our_own_variables_reach_our_own_and_kafkas_keys_and_win():
    config = _load(
        {
            "HEADRACE_FLUSH_DEFAULT": "os",
            "HEADRACE_METRICS_PORT": "9404",
            "HEADRACE_NUM_PARTITIONS": "6",
            "KAFKA_NUM_PARTITIONS": "3",
        }
    )
    assert (config["headrace.flush.default"], config["headrace.metrics.port"], config["num.partitions"]) == (
        "os",
        9404,
        6,
    )


def test_a_bad_value_names_its_variable():
    with pytest.raises(
        ConfigError, match="variable KAFKA_NUM_PARTITIONS: Invalid value many for configuration num"
    ):
        _load({"KAFKA_NUM_PARTITIONS": "many"})


def test_outside_a_container_the_drawn_file_asks_for_consent():
    with pytest.raises(ConfigError, match="--allow-anonymous"):
        load_config(None, {}, _drawn_environment())


def test_broker_id_and_node_id_may_not_contradict_each_other():
    with pytest.raises(ConfigError, match="KAFKA_NODE_ID"):
        _load({"KAFKA_BROKER_ID": "1", "KAFKA_NODE_ID": "2"})
    assert _load({"KAFKA_BROKER_ID": "2", "KAFKA_NODE_ID": "2"})["node.id"] == 2


@pytest.mark.row("D20")
def test_the_drawn_zookeeper_is_the_coordination_store():
    assert _load(_drawn_environment()).coordination == ZooKeeperAddress(
        hosts="zookeeper:2181", root="/headrace"
    )


def test_a_chroot_of_zookeeper_holds_our_own_folder():
    """Apache Kafka's entries there (/kafka/controller, …) have the names of ours."""
    config = _load({"KAFKA_ZOOKEEPER_CONNECT": "zk1:2181,zk2:2182,zk3/kafka"})
    assert config.coordination == ZooKeeperAddress(hosts="zk1:2181,zk2:2182,zk3:2181", root="/kafka/headrace")


def test_our_own_variable_wins_over_zookeepers():
    environment = {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181", "HEADRACE_COORDINATION": "zk://h1:2181/mine"}
    assert _load(environment).coordination == ZooKeeperAddress(hosts="h1:2181", root="/mine")


def test_an_empty_address_of_zookeeper_is_none():
    assert _load({"KAFKA_ZOOKEEPER_CONNECT": ""}).coordination == SqliteAddress()


def test_a_bad_address_of_zookeeper_names_its_variable():
    with pytest.raises(ConfigError, match=r"variable KAFKA_ZOOKEEPER_CONNECT: .*'zookeeper:port'"):
        _load({"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:port"})


THREE_VOTERS = "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093"
ADDRESSES = {
    "LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def _image(prefix, **variables):
    return {prefix + name: value for name, value in {**ADDRESSES, **variables}.items()}


APACHE = _image(
    "KAFKA_", NODE_ID="2", PROCESS_ROLES="broker,controller", CONTROLLER_QUORUM_VOTERS=THREE_VOTERS
)
CONFLUENT = {**APACHE, "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk"}
BITNAMI = {
    "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
    **_image(
        "KAFKA_CFG_", NODE_ID="2", PROCESS_ROLES="controller,broker", CONTROLLER_QUORUM_VOTERS=THREE_VOTERS
    ),
}
SEVERAL_NODES = {
    "Apache Kafka's image": (APACHE, "KAFKA_CONTROLLER_QUORUM_VOTERS names 3 nodes"),
    "Confluent's image": (CONFLUENT, "KAFKA_CONTROLLER_QUORUM_VOTERS names 3 nodes"),
    "Bitnami's image": (BITNAMI, "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS names 3 nodes"),
    "voters found by address": (
        {"KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "kafka-1:9093,kafka-2:9093"},
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS names 2 nodes",
    ),
    "a broker beside a controller": (
        _image("KAFKA_", NODE_ID="2", PROCESS_ROLES="broker", CONTROLLER_QUORUM_VOTERS="1@controller:9093"),
        "KAFKA_PROCESS_ROLES=broker leaves the controller to another node",
    ),
    "the voter is another node": (
        {"KAFKA_NODE_ID": "2", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093"},
        "KAFKA_CONTROLLER_QUORUM_VOTERS names node 1, and this one is 2",
    ),
    "three replicas of each topic": (
        {"KAFKA_DEFAULT_REPLICATION_FACTOR": "3"},
        "KAFKA_DEFAULT_REPLICATION_FACTOR=3 needs 3 nodes",
    ),
    "three replicas of the offsets": (
        {"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "3"},
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=3 needs 3 nodes",
    ),
    "two replicas in sync": (
        {"KAFKA_MIN_INSYNC_REPLICAS": "2"},
        "KAFKA_MIN_INSYNC_REPLICAS=2 needs 2 nodes",
    ),
}


@pytest.mark.parametrize(("environment", "reason"), SEVERAL_NODES.values(), ids=SEVERAL_NODES)
def test_one_of_several_nodes_without_a_shared_store_is_refused_in_one_line(environment, reason):
    with pytest.raises(ConfigError) as refused:
        _load(environment)
    message = str(refused.value)
    assert reason in message
    assert "HEADRACE_COORDINATION=zk://" in message
    assert "\n" not in message


@pytest.mark.parametrize("store", ["zk://h1:2181,h2:2181/headrace", "sqlite:/srv/cluster"])
@pytest.mark.parametrize(("environment", "reason"), SEVERAL_NODES.values(), ids=SEVERAL_NODES)
def test_with_a_shared_store_the_same_node_starts(environment, reason, store):
    assert _load({**environment, "HEADRACE_COORDINATION": store})["headrace.coordination"] == store
    assert load_config(None, {"headrace.coordination": store}, {**IMAGE, **environment}) is not None


def test_our_own_variable_takes_a_sign_of_several_nodes_back():
    assert _load({"KAFKA_MIN_INSYNC_REPLICAS": "2", "HEADRACE_MIN_INSYNC_REPLICAS": "1"}) is not None


def test_bitnamis_variables_are_settings():
    one = {**BITNAMI, "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "2@kafka:9093", "KAFKA_CFG_NUM_PARTITIONS": "4"}
    config = _load(one)
    assert (config["node.id"], config["num.partitions"]) == (2, 4)
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert not any("not settings of Headrace" in note for note in config.notes)


@pytest.mark.parametrize("store", [{}, {"HEADRACE_COORDINATION": "zk://h1:2181"}])
def test_a_container_for_a_controller_alone_is_refused(store):
    environment = _image("KAFKA_", PROCESS_ROLES="controller", LISTENERS="CONTROLLER://:9093")
    with pytest.raises(ConfigError, match=r"KAFKA_PROCESS_ROLES=controller: .* remove this container"):
        _load({**environment, **store})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_SASL_JAAS_CONFIG", "org.apache.kafka…ScramLoginModule required;"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512_SASL_JAAS_CONFIG", "…"),
        ("KAFKA_SECURITY_INTER_BROKER_PROTOCOL", "SASL_SSL"),
        ("KAFKA_CFG_SASL_JAAS_CONFIG", "…"),
        ("KAFKA_CLIENT_USERS", "alice"),
        ("KAFKA_TLS_CLIENT_AUTH", "required"),
        ("KAFKA_OPTS", "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/jaas.conf"),
    ],
)
def test_variables_that_ask_for_access_control_stop_the_node(name, value):
    """Ignored, they would leave a node that serves everybody where its operator wanted a login."""
    with pytest.raises(ConfigError) as refused:
        _load({name: value})
    complaint = str(refused.value)
    assert name in complaint
    assert "would serve everybody" in complaint
    assert "emove" in complaint
    assert value not in complaint, "a secret may be in it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_SECURITY_INTER_BROKER_PROTOCOL", "PLAINTEXT"),
        ("KAFKA_OPTS", "-Xmx1g"),
    ],
)
def test_variables_that_ask_for_no_access_control_are_ignored(name, value):
    assert any(name in note for note in _load({name: value}).notes)


def test_all_variables_that_ask_for_access_control_are_named_at_once():
    with pytest.raises(ConfigError, match="KAFKA_CLIENT_USERS, KAFKA_SASL_JAAS_CONFIG"):
        _load({"KAFKA_SASL_JAAS_CONFIG": "…", "KAFKA_CLIENT_USERS": "alice"})
