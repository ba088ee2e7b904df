"""Variables of the drawn images: the container file changes its image line and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.config import load_config
from headrace.errors import ConfigError

DRAWN_COMPOSE = Path(__file__).with_name("drawn-compose.yaml")
IMAGE = {"KAFKA_LOG_DIRS": "/var/lib/kafka/data", "HEADRACE_LISTENERS_ALLOW_ANONYMOUS": "true"}
"""What the Dockerfile itself sets (tests/docs holds the two together)."""


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


def test_what_the_drawn_file_sets_without_effect_is_said_once_per_reason():
    notes = _load(_drawn_environment()).notes
    assert any("KAFKA_ZOOKEEPER_CONNECT: name the ensemble in" in note for note in notes)
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
