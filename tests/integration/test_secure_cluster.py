# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster up --secure`: its commands and ready client files work, and nobody else gets in."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import headrace
from headrace.cli import main
from headrace.client.errors import ClientError
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import find_process
from headrace.cluster.security import ADMIN, USER, SecurityFolder
from headrace.cluster.supervisor import Supervisor
from tests.harness.live.cluster import client_options
from tests.harness.waiting import wait_until

Run = Callable[..., str]
VALUES = [f"value {number}".encode() for number in range(100)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command of the tool, in this process: what it printed, on both streams."""

    def call(*words: str, ok: bool = True) -> str:
        capsys.readouterr()
        code = main.run(list(words))
        out, err = capsys.readouterr()
        assert (code == 0) is ok, err
        return out + err if not ok or words[-1] != "--json" else out

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ClusterFolder]:
    folder = ClusterFolder(tmp_path / "cluster")
    yield folder
    if folder.exists:
        Supervisor(folder).stop_all()


@pytest.fixture
def cluster(folder: ClusterFolder, run: Run) -> Run:
    """A command of a running secure cluster of three nodes."""

    def call(*words: str) -> str:
        return run("cluster", *words, "--dir", str(folder.path), "--json")

    call("up", "--secure", "--port", "0", "--detach")
    return call


def files_of(folder: ClusterFolder) -> SecurityFolder:
    return SecurityFolder(folder.path / "security")


def as_admin(folder: ClusterFolder) -> tuple[str, ...]:
    config = str(files_of(folder).client_properties(ADMIN))
    return ("--bootstrap", folder.read().bootstrap, "--command-config", config)


def options_of(folder: ClusterFolder, user: str) -> dict[str, Any]:
    return client_options(files_of(folder).path, user)


@pytest.fixture
def topic(folder: ClusterFolder, cluster: Run, run: Run) -> str:
    """One that the ordinary user may use."""
    name = "user-orders"
    run("topics", "create", name, "--partitions", "1", "--replication-factor", "3", *as_admin(folder))
    may = ("--principal", f"User:{USER}", "--operation", "all", "--prefixed")
    run("acls", "add", *may, "--topic", "user-", "--group", "user-", *as_admin(folder))
    return name


def test_confluent_kafka_and_our_client_use_the_ready_files(folder: ClusterFolder, topic: str) -> None:
    options = options_of(folder, USER)
    producer = Producer({**options, "acks": "all"})
    for value in VALUES[:50]:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    config = files_of(folder).client_properties(USER)
    bootstrap = folder.read().bootstrap
    headrace.write(pa.table({"value": VALUES[50:]}), topic, bootstrap=bootstrap, config=str(config))
    ours = headrace.topic(topic, bootstrap=bootstrap, config=str(config)).select("value").to_arrow()
    assert ours["value"].to_pylist() == VALUES
    consumer = Consumer({**options, "group.id": "user-group", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes | None] = []

    def more() -> bool:
        read.extend(each.value() for each in consumer.consume(100, 1) if each.error() is None)
        return len(read) >= len(VALUES)

    wait_until(more, lambda: len(read), timeout_s=30)
    consumer.close()
    assert read == VALUES


def test_anonymous_clients_wrong_passwords_and_missing_acls_are_refused(
    folder: ClusterFolder, topic: str, run: Run
) -> None:
    options = options_of(folder, USER)
    assert topic in AdminClient(options).list_topics(timeout=20).topics
    for wrong in (
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"sasl.password": "guessed"},
        {"sasl.password": options_of(folder, ADMIN)["sasl.password"]},
    ):
        kept = {key: value for key, value in {**options, **wrong}.items() if not _unused(key, wrong)}
        with pytest.raises(KafkaException):
            AdminClient({**kept, "log_level": 0}).list_topics(timeout=3)
    config = folder.path / "wrong.properties"
    text = files_of(folder).client_properties(USER).read_text()
    config.write_text(text.replace(options["sasl.password"], "guessed"))
    with pytest.raises(ClientError, match="login"):
        headrace.topic(topic, bootstrap=folder.read().bootstrap, config=str(config)).to_arrow()
    run("topics", "create", "private", *as_admin(folder))
    failed: list[KafkaError | None] = []
    producer = Producer(options)
    producer.produce("private", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    assert [error and error.code() for error in failed] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def _unused(key: str, wrong: dict[str, str]) -> bool:
    """librdkafka warns of settings of a login without one."""
    return key.startswith("sasl.") and "security.protocol" in wrong


def test_the_commands_of_the_cluster_log_in_by_themselves(
    folder: ClusterFolder, cluster: Run, topic: str
) -> None:
    cluster("kill", "0")
    assert _states(cluster) == ["killed", "running", "running"]
    cluster("start", "0")
    cluster("stop", "1")
    cluster("start", "1")
    assert json.loads(cluster("add"))["added"] == 3
    wait_until(lambda: json.loads(cluster("status"))["under_replicated"] == 0, timeout_s=30)
    assert "changed" in json.loads(cluster("elect", topic))
    assert json.loads(cluster("remove", "0", "--yes"))["removed"] == 0
    assert _states(cluster) == ["running"] * 3
    cluster("stop")
    assert json.loads(cluster("up", "--detach"))["security"] == str(files_of(folder).path)
    assert json.loads(cluster("status"))["partitions"] > 0


def _states(cluster: Run) -> list[str]:
    return [node["state"] for node in json.loads(cluster("status"))["nodes"]]


def test_an_admin_password_that_was_changed_is_told_and_nodes_still_start(
    folder: ClusterFolder, cluster: Run, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("another password\n")
    run("users", "password", ADMIN, "--password-file", str(tmp_path / "password"), *as_admin(folder))
    assert "check its login" in run("cluster", "status", "--dir", str(folder.path))
    cluster("kill", "0")
    cluster("start", "0")
    assert _states(cluster) == ["running"] * 3


def test_secrets_are_in_private_files_alone(folder: ClusterFolder, run: Run) -> None:
    up = ("cluster", "up", "--secure", "--nodes", "1", "--port", "0", "--detach", "--dir", str(folder.path))
    printed = run(*up)
    files = files_of(folder)
    assert f"headrace topics list --bootstrap {folder.read().bootstrap} --command-config" in printed
    process = find_process(folder.node(0))
    assert process is not None
    proc = Path(f"/proc/{process.pid}")
    visible = printed + (proc / "cmdline").read_text() + (proc / "environ").read_text()
    visible += (folder.node(0) / "serve.log").read_text()
    for secret in (files.password(user).read_text().strip() for user in (ADMIN, USER)):
        assert len(secret) >= 8
        assert secret not in visible
    private = [path for path in files.path.rglob("*") if path.is_file()]
    private += [folder.node(0) / "server.properties", folder.path / "cluster.json"]
    for path in private:
        if path.name not in ("ca.pem", "certificate.pem"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_what_does_not_go_together_is_refused(folder: ClusterFolder, run: Run) -> None:
    up = ("cluster", "up", "--dir", str(folder.path), "--nodes", "1", "--port", "0", "--detach")
    assert "leave out --secure" in run(*up, "--secure", "--engine", "kafka", ok=False)
    run(*up)
    run("cluster", "stop", "--dir", str(folder.path))
    assert "leave out --secure" in run(*up, "--secure", ok=False)
