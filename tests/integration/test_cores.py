# SPDX-License-Identifier: Apache-2.0
"""`headrace serve --cores 2` with unmodified clients: both cores serve; one dies or hangs, or the supervisor.

The long form, random kills of cores under load, is `make soak PART=cores`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from headrace import types
from headrace.client.tools.admin import Admin
from tests.harness import soak
from tests.harness.live.cores import LiveCores
from tests.harness.live.kill_loop import TOPIC, ConfluentLoad, Report
from tests.harness.live.load import read_all
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

VALUES, READ_S = 40, 30


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCores]:
    """For tests that leave both cores as they found them."""
    with LiveCores(tmp_path_factory.mktemp("cores")) as cores:
        yield cores


def _leaders(cores: LiveCores, topic: str) -> list[int | None]:
    return [each.leader for each in Admin(cores.bootstrap).describe_topic(topic).partitions]


def _headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _values(name: str) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(VALUES)]


def _read(consumer: Consumer, count: int) -> list[bytes]:
    """The values of so many records; closes the consumer."""
    values: list[bytes] = []
    deadline = time.monotonic() + READ_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"read only {len(values)} of {count}"
        values += (each.value() or b"" for each in consumer.consume(count, 0.2))
    consumer.close()
    return values


# Both cores serve


def test_leaders_are_on_both_cores_with_one_replica_each(cores: LiveCores) -> None:
    admin = Admin(cores.bootstrap)
    admin.create_topic("even", partitions=4)
    topic = admin.describe_topic("even")
    assert sorted(each.leader or 0 for each in topic.partitions) == sorted(cores.node_ids * 2)
    assert topic.replication_factor == 1


def test_confluent_kafka_reaches_both_cores_from_the_address_of_one(cores: LiveCores) -> None:
    Admin(cores.bootstrap).create_topic("confluent", partitions=4)
    producer = Producer({"bootstrap.servers": cores.addresses[1], "acks": "all", "enable.idempotence": True})
    for number, value in enumerate(_values("confluent")):
        producer.produce("confluent", value, partition=number % 4)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": cores.addresses[0], "group.id": "confluent", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    assert sorted(_read(consumer, VALUES)) == sorted(_values("confluent"))


def test_kafka_python_reaches_both_cores(cores: LiveCores) -> None:
    Admin(cores.bootstrap).create_topic("kafka-python", partitions=4)
    producer = KafkaProducer(bootstrap_servers=cores.addresses[0], acks="all")
    for number, value in enumerate(_values("kafka-python")):
        producer.send("kafka-python", value, partition=number % 4)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        bootstrap_servers=cores.addresses[1],
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    read = [record.value for _, record in zip(range(VALUES), consumer, strict=False)]
    consumer.close()
    assert sorted(read) == sorted(_values("kafka-python"))


def test_aiokafka_reaches_both_cores(cores: LiveCores) -> None:
    Admin(cores.bootstrap).create_topic("aiokafka", partitions=4)

    async def round_trip() -> list[bytes | None]:
        async with AIOKafkaProducer(bootstrap_servers=cores.addresses[0], acks="all") as producer:
            for number, value in enumerate(_values("aiokafka")):
                await producer.send_and_wait("aiokafka", value, partition=number % 4)
        consumer = AIOKafkaConsumer(
            "aiokafka",
            bootstrap_servers=cores.addresses[1],
            group_id="aiokafka",
            auto_offset_reset="earliest",
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(VALUES)]

    read = asyncio.run(round_trip())
    assert sorted(filter(None, read)) == sorted(_values("aiokafka"))


def test_a_transaction_spans_both_cores_and_takes_the_offsets_of_a_group_along(cores: LiveCores) -> None:
    Admin(cores.bootstrap).create_topic("spanning", partitions=2)
    assert len(set(_leaders(cores, "spanning"))) == 2
    group = {"bootstrap.servers": cores.bootstrap, "group.id": "spanning", "enable.auto.commit": False}
    member = Consumer({**group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": cores.bootstrap, "transactional.id": "spanning"})
    producer.init_transactions(30)
    for outcome in ("aborted", "committed"):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("spanning", outcome.encode(), partition=partition)
        offsets = [TopicPartition("spanning", index, 1) for index in (0, 1)]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
        (producer.abort_transaction if outcome == "aborted" else producer.commit_transaction)(30)
    stored = member.committed([TopicPartition("spanning", index) for index in (0, 1)], timeout=30)
    assert [each.offset for each in stored] == [1, 1]
    member.assign([TopicPartition("spanning", index, 0) for index in (0, 1)])
    assert _read(member, 2) == [b"committed", b"committed"]


def test_one_endpoint_has_the_metrics_of_both_cores(cores: LiveCores) -> None:
    status, text = cores.get("/metrics")
    assert status == 200
    for core, node in enumerate(cores.node_ids):
        assert f'headrace_core_up{{core="{core}",node="{node}"}} 1' in text
        assert f'headrace_info{{core="{core}",version=' in text
    assert text.count("# TYPE headrace_requests_total counter") == 1
    assert cores.get("/readyz") == (200, "ready\n")
    assert cores.get("/healthz") == (200, "alive\n")


def test_more_than_one_replica_is_warned_of_by_the_command_and_in_the_log(cores: LiveCores) -> None:
    arguments = ["topics", "create", "twice", "--replication-factor", "2", "--bootstrap", cores.bootstrap]
    created = _headrace(*arguments)
    assert created.returncode == 0
    assert "Warning: the 2 replicas of twice are all in rack" in created.stderr
    wait_until(lambda: "topic twice has 2 replicas on one host" in cores.log(), cores.log_tail)


def test_internal_topics_have_one_replica(cores: LiveCores) -> None:
    Producer({"bootstrap.servers": cores.bootstrap, "transactional.id": "internal"}).init_transactions(READ_S)
    member = Consumer({"bootstrap.servers": cores.bootstrap, "group.id": "internal"})
    member.committed([TopicPartition("none", 0)], timeout=READ_S)
    member.close()
    internal = [each for each in Admin(cores.bootstrap).list_topics(internal=True) if each.name[:2] == "__"]
    assert {"__consumer_offsets", "__transaction_state"} <= {each.name for each in internal}
    assert {each.replication_factor for each in internal} == {1}


def test_commands_work_against_it(cores: LiveCores) -> None:
    Admin(cores.bootstrap).create_topic("seen", partitions=2)
    status = _headrace("cluster", "status", "--dir", str(cores.data), "--json")
    found = json.loads(status.stdout)
    assert [node["state"] for node in found["nodes"]] == ["running", "running"]
    assert found["supervised"]
    assert all(node["leaders"] for node in found["nodes"])
    doctor = _headrace("doctor", "--bootstrap", cores.bootstrap, "--json")
    assert doctor.returncode == 0, doctor.stdout
    for refused in (("add",), ("up",)):
        answer = _headrace("cluster", *refused, "--dir", str(cores.data))
        assert answer.returncode == 1
        assert "headrace serve" in answer.stderr or "--cores 3" in answer.stderr


# A core, or the supervisor, dies or hangs


def _load(cores: LiveCores) -> ConfluentLoad:
    Admin(cores.bootstrap).create_topic(TOPIC, partitions=3)
    return ConfluentLoad(cores.bootstrap, 0.005)


def _kill(cores: LiveCores, core: int) -> None:
    """Returns when it is back."""
    before = cores.restarts(core)
    cores.signal(core, signal.SIGKILL)
    wait_until(lambda: cores.restarts(core) > before, cores.log_tail, timeout_s=60)
    cores.wait_ready()


def test_nothing_acknowledged_is_lost_when_a_core_or_the_supervisor_dies_or_all_stop(tmp_path: Path) -> None:
    report = Report(seed=0)
    with LiveCores(tmp_path) as cores:
        load = _load(cores)
        with load:
            load.wait_started()
            _returns_alone(cores)
            load.wait_progress()
            _starts_again_without_orphans(cores)
            load.wait_progress()
            cores.stop()
            assert cores.pids() == [None, None]
            written = len(cores.log())
            cores.start()
            load.wait_progress()
            assert "the previous shutdown was unclean" not in cores.log()[written:]
        load.judge(report)
        cores.kill()
        wait_until(lambda: cores.pids() == [None, None], lambda: f"{cores.pids()} still run", timeout_s=30)
    report.check()


def _returns_alone(cores: LiveCores) -> None:
    first = cores.pids()[0]
    _kill(cores, 1)
    assert cores.pids()[0] == first


def _starts_again_without_orphans(cores: LiveCores) -> None:
    before = cores.pids()
    cores.kill()
    cores.start()
    assert [pid for pid in before if _runs(pid)] == []


def _runs(pid: int | None) -> bool:
    """One that has ended keeps its entry until the system's first process asks for its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_hanging_core_is_reported_and_the_other_serves_on(tmp_path: Path) -> None:
    with LiveCores(tmp_path) as cores:
        Admin(cores.bootstrap).create_topic("hanging", partitions=2)
        served = _leaders(cores, "hanging").index(cores.node_ids[0])
        cores.signal(1, signal.SIGSTOP)
        assert cores.get("/readyz")[1].startswith("not ready: core 1 (node 2): it does not answer")
        producer = Producer({"bootstrap.servers": cores.bootstrap, "acks": "all"})
        delivered: list[object] = []
        producer.produce(
            "hanging", b"x", partition=served, on_delivery=lambda error, _: delivered.append(error)
        )
        assert producer.flush(30) == 0
        assert delivered == [None]
        wait_until(lambda: "core 1 (node 2): it does not answer" in cores.log(), cores.log_tail)
        cores.signal(1, signal.SIGCONT)
        cores.wait_ready()


# Folders


def test_the_folder_of_a_single_node_is_taken_over_with_its_topics(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        admin = Admin(node.bootstrap)
        admin.create_topic("before", partitions=4)
        producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all"})
        for number, value in enumerate(_values("before")):
            producer.produce("before", value, partition=number % 4)
        assert producer.flush(30) == 0
        refused = LiveCores(tmp_path).run_to_end()
        assert refused.returncode == 1
        assert "is in use by a node" in refused.stderr
    with LiveCores(tmp_path) as cores:
        assert set(_leaders(cores, "before")) == {cores.node_ids[0]}
        Admin(cores.bootstrap).create_topic("after", partitions=2)
        assert set(_leaders(cores, "after")) == {cores.node_ids[1]}
        moved = _headrace("cluster", "balance", "before", "--yes", "--dir", str(cores.data))
        assert moved.returncode == 0, moved.stderr
        assert sorted(each or 0 for each in _leaders(cores, "before")) == sorted(cores.node_ids * 2)
        read = [read_all(cores.bootstrap, types.TopicPartition("before", index)) for index in range(4)]
        assert sorted(value for log in read for _, value in log.records) == sorted(_values("before"))
        cores.stop()
        _refuses_fewer_until_they_are_moved(tmp_path, cores)


def _refuses_fewer_until_they_are_moved(tmp_path: Path, cores: LiveCores) -> None:
    single = NodeProcess(tmp_path).run_to_end()
    assert single.returncode == 1
    assert "has 2 cores, not 1: core 1 (node 2) holds" in single.stderr
    removal = f"headrace cluster remove 2 --dir {cores.data}"
    assert removal in single.stderr
    with cores.start():
        done = _headrace(*removal.split()[1:], "--yes")
        assert done.returncode == 0, done.stderr
    with LiveCores(tmp_path, cores=1) as one:
        assert set(_leaders(one, "before")) == {1}


def test_an_ephemeral_start_of_two_cores_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.cli.main", "serve", "--cores", "2", "--ephemeral", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        Admin(ready["bootstrap"]).create_topic("brief", partitions=2)
        process.terminate()
        assert process.wait(60) == 0
    assert list(tmp_path.glob("headrace-*")) == []


# Logins


def test_who_logs_in_reaches_both_cores_and_nobody_else_does(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    login = ("--command-config", str(_write_properties(tmp_path / "client.properties")))
    mechanism = ("--set", "sasl.enabled.mechanisms=SCRAM-SHA-512")
    with LiveCores(tmp_path, arguments=mechanism, protocol="SASL_PLAINTEXT") as cores:
        folder, first = ("--dir", str(cores.data)), ("--bootstrap", cores.addresses[0])
        added = _headrace(
            "users", "add", "ann", "--data", folder[1], "--password-file", str(tmp_path / "password")
        )
        assert added.returncode == 0, added.stderr
        created = _headrace("topics", "create", "orders", "--partitions", "4", *first, *login)
        assert created.returncode == 0, created.stderr
        assert min(_led(_headrace("cluster", "status", *folder, *login, "--json"))) >= 2
        top = json.loads(_headrace("top", "--once", "--over", "0s", "--json", *first, *login).stdout)
        assert [node["id"] for node in top["cluster"]["nodes"]] == cores.node_ids
        for address in cores.addresses:
            assert "asks for a login" in _headrace("topics", "list", "--bootstrap", address).stderr
        assert _led(_headrace("cluster", "status", *folder, "--json")) == [None, None]


def _write_properties(path: Path) -> Path:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="ann" password="secret";\n'
    )
    return path


def _led(status: subprocess.CompletedProcess[str]) -> list[Any]:
    """Partitions that each node leads, as `cluster status` tells."""
    assert status.returncode == 0, status.stderr
    return [node["leaders"] for node in json.loads(status.stdout)["nodes"]]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_cores_killed_at_random(tmp_path: Path) -> None:
    """Cores, in every fifth round the supervisor, die under load; HEADRACE_SOAK_S is how long."""
    started, source = time.monotonic(), random.Random(soak.first_seed())
    report = Report(seed=soak.first_seed())
    lasts_s = float(os.environ.get("HEADRACE_SOAK_S", "600"))
    with LiveCores(tmp_path) as cores:
        load = _load(cores)
        with load:
            load.wait_started()
            while time.monotonic() - started < lasts_s:
                if source.randrange(5):
                    _kill(cores, source.randrange(2))
                else:
                    cores.kill()
                    cores.start()
                report.faults += 1
                load.wait_progress()
                time.sleep(source.uniform(0.1, 2))  # the next fault comes at any moment of the load
        load.judge(report)
    soak.write_report("cores", started, report.figures())
    report.check()
