# SPDX-License-Identifier: Apache-2.0
"""The loader: precedence, origin, and errors that lead to the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import NODE_SETTINGS, default_data_directory, load_config
from headrace.config.node_config import DEFAULT
from headrace.errors import ConfigError


def _file(tmp_path, text):
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def test_without_anything_a_node_just_works():
    config = load_config(None, {}, None)
    (listener,) = config.listeners
    assert (listener.host, listener.port) == ("127.0.0.1", 9092)
    assert config.data_directory == default_data_directory()
    assert config.notes == ()
    assert set(config) == set(NODE_SETTINGS)


def test_flags_beat_environment_beats_file_beats_default(tmp_path):
    file = _file(tmp_path, "num.partitions=2\nnode.id=2\nlog.retention.hours=2\n")
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_NODE_ID": "3"}
    config = load_config(file, {"num.partitions": "4"}, environment)
    assert [
        config[name] for name in ("num.partitions", "node.id", "log.retention.hours", "log.roll.hours")
    ] == [
        4,
        3,
        2,
        168,
    ]
    assert config.origin("num.partitions").kind == "flag"
    assert str(config.origin("node.id")) == "variable KAFKA_NODE_ID"
    assert str(config.origin("log.retention.hours")) == f"{file}:3"
    assert config.origin("log.roll.hours") == DEFAULT
    assert set(config.explicit) == {"num.partitions", "node.id", "log.retention.hours"}


def test_the_environment_is_read_only_when_it_is_given():
    assert load_config(None, {}, None)["num.partitions"] == 1


def test_an_unknown_key_names_file_line_key_and_the_nearest_valid_key(tmp_path):
    file = _file(tmp_path, "# my node\nnum.partition=3\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {}, None)
    assert str(caught.value) == f"{file}:2: unknown setting num.partition; did you mean num.partitions?"


def test_a_key_that_resembles_nothing_points_to_the_list(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown setting xyzzy; docs/configuration\.md lists them all"):
        load_config(_file(tmp_path, "xyzzy=3"), {}, None)


def test_a_bad_value_names_file_line_and_key(tmp_path):
    file = _file(tmp_path, "node.id=1\n\nlog.segment.bytes=1g\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {}, None)
    expected = f"{file}:3: Invalid value 1g for configuration log.segment.bytes: Not a number of type INT"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("log.flush.interval.messages=1", "the flush policy is headrace.flush.default"),
        ("zookeeper.connect=zk:2181", "name the ensemble in headrace.coordination"),
        ("security.inter.broker.protocol=SSL", "nodes find each other through headrace.coordination"),
        ("remote.log.storage.system.enable=true", "there is no tiered storage"),
        ("transaction.two.phase.commit.enable=true", r"two-phase commit \(KIP-939\) is not served"),
        ("ssl.keystore.password=k", "that of its key is ssl.key.password"),
        ("ssl.cipher.suites=X", "TLS is OpenSSL's"),
        ("sasl.kerberos.service.name=kafka", "Kerberos is not served: use SCRAM"),
        ("sasl.enabled.mechanisms=GSSAPI", "Kerberos is not served"),
        ("listener.name.a.plain.sasl.jaas.config=x", "headrace users add"),
        ("delegation.token.master.key=x", "delegation tokens are not served"),
        ("retention.ms=1", "is a setting of topics; the default for all of them is log.retention.ms"),
    ],
)
def test_a_kafka_setting_that_decides_about_data_or_access_is_refused_with_advice(tmp_path, line, advice):
    with pytest.raises(ConfigError, match=advice):
        load_config(_file(tmp_path, line), {}, None)


def test_an_alias_sets_the_same_setting(tmp_path):
    config = load_config(_file(tmp_path, "broker.id=7\nlog.dir=/data\n"), {}, None)
    assert (config["node.id"], config.data_directory) == (7, Path("/data"))


def test_an_alias_and_its_setting_may_not_contradict_each_other(tmp_path):
    file = _file(tmp_path, "broker.id=7\nnode.id=8\n")
    with pytest.raises(ConfigError, match=rf"{file}:2: node.id says '8', but {file}:1 says '7'; keep one"):
        load_config(file, {}, None)


def test_several_data_directories_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="2 directories given; a node keeps its data in one"):
        load_config(_file(tmp_path, "log.dirs=/a,/b"), {}, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message.max.bytes=200000000", "may not exceed socket.request.max.bytes"),
        ("headrace.request.memory.bytes=2000000", "socket.request.max.bytes .* may not exceed"),
        ("log.cleaner.max.compaction.lag.ms=5\nlog.cleaner.min.compaction.lag.ms=6", "may not exceed"),
        ("log.retention.ms=0", r"must be -1 \(for ever\) or at least 1"),
        ("headrace.metrics.port=70000", "no more than 65535"),
        ("headrace.coordination=zookeeper", "must be sqlite, sqlite:DIRECTORY or zk://"),
        ("headrace.coordination=sqlite:", "names no directory"),
        ("headrace.coordination=zk://h1:2181,/x", "is not HOST:PORT"),
        ("broker.session.timeout.ms=5", "at least 100"),
    ],
)
def test_values_that_cannot_work_are_refused_with_their_place(tmp_path, text, message):
    file = _file(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file, {}, None)
    assert str(caught.value).startswith(f"{file}:")


def test_directories_follow_from_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = load_config(None, {"log.dirs": "~/data"}, None)
    assert config.data_directory == tmp_path / "data"
    assert config.coordination_directory == tmp_path / "data" / "coordination"
    monkeypatch.chdir(tmp_path)
    assert load_config(None, {"log.dirs": "data"}, None).data_directory == tmp_path / "data"
    config = load_config(None, {"headrace.coordination": "sqlite:/var/lib/c"}, None)
    assert config.coordination_directory == Path("/var/lib/c")


def test_values_are_printed_as_kafkas_tools_print_them():
    config = load_config(None, {}, None)
    assert config.text("auto.create.topics.enable") == "true"
    assert config.text("log.cleanup.policy") == "delete"
    assert config.text("log.retention.ms") is None
    assert config.text("log.cleaner.min.cleanable.ratio") == "0.5"


DELAY = "group.initial.rebalance.delay.ms"


@pytest.mark.parametrize(
    ("given", "delay_ms"),
    [
        ({}, 0),
        ({"headrace.coordination": "sqlite"}, 0),
        ({"headrace.coordination": "sqlite:/shared"}, 3000),
        ({"headrace.coordination": "zk://h1:2181/headrace"}, 3000),
        ({DELAY: "3000"}, 3000),
        ({"headrace.coordination": "sqlite:/shared", DELAY: "0"}, 0),
    ],
)
def test_new_groups_wait_for_members_only_in_a_cluster(given, delay_ms):
    config = load_config(None, given, None)
    assert config[DELAY] == delay_ms
    assert config.alone == ("/" not in given.get("headrace.coordination", ""))
