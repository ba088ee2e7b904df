# SPDX-License-Identifier: Apache-2.0
"""The server.properties of a single-node Apache Kafka starts a node, with warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import load_config
from headrace.errors import ConfigError

KRAFT = """\
process.roles=broker,controller
node.id=1
{quorum}
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
STATIC, DYNAMIC = (
    "controller.quorum.voters=1@localhost:9093",
    "controller.quorum.bootstrap.servers=localhost:9093",
)
ANONYMOUS = {"listeners.allow.anonymous": "true"}


def _file(tmp_path: Path, *, quorum: str = DYNAMIC, more: str = "") -> Path:
    path = tmp_path / "server.properties"
    path.write_text(KRAFT.format(quorum=quorum) + more)
    return path


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC])
def test_a_kraft_file_is_taken_with_one_warning_per_reason(tmp_path: Path, quorum: str) -> None:
    file = _file(tmp_path, quorum=quorum)
    config = load_config(file, ANONYMOUS, None)
    (listener,) = config.listeners
    assert (listener.name, listener.port, listener.advertised_host) == ("PLAINTEXT", 9092, "localhost")
    assert config["log.dirs"] == ("/tmp/kraft-combined-logs",)
    assert config.inter_broker_listener == "PLAINTEXT"
    quorum_name = quorum.partition("=")[0]
    assert [note.partition(": ")[2].rpartition(": ")[0] for note in config.notes] == [
        f"ignored process.roles, {quorum_name}, controller.listener.names, listener CONTROLLER",
        (
            "ignored num.network.threads, num.io.threads, socket.send.buffer.bytes, "
            "socket.receive.buffer.bytes, num.recovery.threads.per.data.dir"
        ),
        "ignored share.coordinator.state.topic.replication.factor, share.coordinator.state.topic.min.isr",
    ]
    assert all(note.startswith(f"{file}: ") for note in config.notes)


def test_it_listens_on_every_interface_so_anonymous_clients_must_be_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":4: listeners: PLAINTEXT at :9092 .* --allow-anonymous"):
        load_config(_file(tmp_path), {}, None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"quorum": "controller.quorum.voters=1@a:9093,2@b:9093"}, "controller.quorum.voters names 2 nodes"),
        ({"quorum": "controller.quorum.voters=7@a:9093"}, "names node 7, and this one is 1"),
        ({"more": "num.partition=3\n"}, "did you mean num.partitions"),
        ({"more": "security.inter.broker.protocol=SSL\n"}, "Headrace does not have"),
        ({"more": "log.flush.interval.messages=1\n"}, "headrace.flush.default"),
    ],
    ids=["several nodes", "another node", "typing error", "access", "durability"],
)
def test_what_decides_about_data_or_access_is_still_refused(
    tmp_path: Path, change: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_config(_file(tmp_path, **change), ANONYMOUS, None)


def test_a_file_of_a_controller_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "controller.properties"
    path.write_text("process.roles=controller\nnode.id=1\n")
    with pytest.raises(ConfigError, match=r"process\.roles=controller: a controller is elected"):
        load_config(path, {}, None)


def test_settings_of_the_controllers_listener_go_with_it(tmp_path: Path) -> None:
    file = _file(tmp_path, more="listener.name.controller.connections.max.reauth.ms=1000\n")
    assert [listener.name for listener in load_config(file, ANONYMOUS, None).listeners] == ["PLAINTEXT"]


def test_on_the_command_line_such_a_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads is a setting of Apache Kafka"):
        load_config(None, {"num.io.threads": "8"}, None)
