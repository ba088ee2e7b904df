# SPDX-License-Identifier: Apache-2.0
"""The Java consumer in a group, unmodified: both protocols, every assignor, its listener watched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_process import JavaProcess, compile_java
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient

pytestmark = [pytest.mark.compat_jvm, pytest.mark.row("D12")]

SOURCE = Path(__file__).parent / "java" / "GroupScene.java"
PARTITIONS = 4
NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}
_PACKAGE = "org.apache.kafka.clients.consumer"
_CLASSIC = "group.protocol=classic heartbeat.interval.ms=300 session.timeout.ms=6000"
EAGER = {
    "range": f"{_CLASSIC} partition.assignment.strategy={_PACKAGE}.RangeAssignor",
    "roundrobin": f"{_CLASSIC} partition.assignment.strategy={_PACKAGE}.RoundRobinAssignor",
    "sticky": f"{_CLASSIC} partition.assignment.strategy={_PACKAGE}.StickyAssignor",
}
INCREMENTAL = {
    "cooperative": f"{_CLASSIC} partition.assignment.strategy={_PACKAGE}.CooperativeStickyAssignor",
    "uniform": "group.protocol=consumer group.remote.assignor=uniform",
    "server-range": "group.protocol=consumer group.remote.assignor=range",
}
ALL = {**EAGER, **INCREMENTAL}


class Scene:
    """Members in one Java process, and what their listeners were told."""

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def start(self, member: str, settings: str) -> None:
        self._process.say(f"start {member} {settings}")

    def leave(self, member: str) -> None:
        self._process.say(f"leave {member}")

    def told(self, member: str, what: str) -> list[set[int]]:
        """Partitions of every call of a member's listener."""
        lines = [line for line in self._process.lines if line.startswith(f"{member} {what}")]
        return [{int(word) for word in line.split()[2:]} for line in lines]

    def owned(self, member: str) -> set[int]:
        owned: set[int] = set()
        for line in list(self._process.lines):
            if match := re.match(rf"{member} (assigned|revoked|lost)(.*)", line):
                partitions = {int(word) for word in match[2].split()}
                owned = owned | partitions if match[1] == "assigned" else owned - partitions
        return owned

    def values(self, *members: str) -> list[str]:
        found = [re.match(r"(\w+) record \d+ \d+ (.*)", line) for line in self._process.lines]
        return [match[2] for match in found if match and match[1] in members]

    def wait_until_shared(self, **shares: int) -> None:
        def is_shared() -> bool:
            owned = [self.owned(member) for member in shares]
            return [len(one) for one in owned] == list(shares.values()) and len(set().union(*owned)) == sum(
                shares.values()
            )

        self._process.wait_for(is_shared, f"partitions shared as {shares}")

    def wait_until_closed(self, member: str) -> None:
        self._process.wait_for(lambda: f"{member} closed" in self._process.lines, f"{member} is closed")

    def wait_for_values(self, count: int, *members: str) -> None:
        self._process.wait_for(lambda: len(set(self.values(*members))) >= count, f"{count} records")


@pytest.fixture(scope="module")
def group_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("groups"), settings=NODE_SETTINGS) as node:
        yield node


@pytest.fixture(scope="module")
def classes(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("javac") is None:
        leave_out("Java programs", "no javac: a Java development kit is needed to compile them")
    folder = tmp_path_factory.mktemp("classes")
    compile_java(SOURCE, kafka_engine.jars.class_path, folder)
    return folder


@pytest.fixture
def scene(kafka_engine: KafkaEngine, group_node: NodeProcess, classes: Path, topic: str) -> Iterator[Scene]:
    with RawClient(group_node.bootstrap) as client:
        client.create_topic(topic, PARTITIONS)
    jars = kafka_engine.jars
    class_path = f"{classes}:{jars.class_path}"
    with JavaProcess(
        jars.java, class_path, "GroupScene", group_node.bootstrap, topic, f"group-of-{topic}"
    ) as process:
        yield Scene(process)


@pytest.fixture
def produce(group_node: NodeProcess, topic: str) -> Callable[[int, int], None]:
    def send(first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": group_node.bootstrap})
        for number in range(first, first + count):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(20) == 0

    return send


@pytest.mark.row("D13")
@pytest.mark.parametrize("strategy", ALL)
def test_members_come_and_go_and_every_record_is_processed(
    scene: Scene, produce: Callable[[int, int], None], strategy: str
) -> None:
    produce(0, 40)
    scene.start("a", ALL[strategy])
    scene.wait_until_shared(a=4)
    scene.wait_for_values(40, "a")
    scene.start("b", ALL[strategy])
    scene.wait_until_shared(a=2, b=2)
    produce(40, 40)
    scene.wait_for_values(80, "a", "b")
    scene.leave("b")
    scene.wait_until_shared(a=4)
    produce(80, 40)
    scene.wait_for_values(120, "a", "b")
    assert sorted(map(int, scene.values("a", "b"))) == list(range(120)), "once each: all was committed"
    assert not scene.told("a", "lost")
    revoked = [partitions for partitions in scene.told("a", "revoked") if partitions]
    if strategy in EAGER:
        assert revoked[0] == {0, 1, 2, 3}, "an eager member gives up everything first"
    else:
        assert len(revoked) == 1, "an incremental member gives up only what moves, once"
        assert len(revoked[0]) == 2


@pytest.mark.row("D13")
@pytest.mark.parametrize("strategy", ["range", "cooperative", "uniform"])
def test_a_static_member_comes_back_to_its_partitions(scene: Scene, strategy: str) -> None:
    scene.start("a", f"{ALL[strategy]} group.instance.id=one")
    scene.start("b", f"{ALL[strategy]} group.instance.id=two")
    scene.wait_until_shared(a=2, b=2)
    before, calls = scene.owned("b"), len(scene.told("a", "assigned"))
    scene.leave("b")
    scene.wait_until_closed("b")
    scene.start("b2", f"{ALL[strategy]} group.instance.id=two")
    scene.wait_until_shared(a=2, b2=2)
    assert scene.owned("b2") == before
    assert len(scene.told("a", "assigned")) == calls, "the other one was left alone"
