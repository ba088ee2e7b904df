# SPDX-License-Identifier: Apache-2.0
"""The drawn program, `kafka-demo`: a topic of three, three consumers, a producer; one leaves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

PROGRAM = [sys.executable, "-m", "headrace.cli.kafka_demo"]
PATIENCE_S = 30
_RECEIVED = re.compile(r"received \[(user-\d+)\] (message \d+) from (?:\S+ )?partition (\d), offset (\d+)")
_SENT = re.compile(r"sent \[(user-\d+)\] (message \d+) to partition (\d), offset (\d+)")


class Program:
    """A run of it; its lines are collected as they come."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [*PROGRAM, "-bootstrap", bootstrap, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    def end(self, number: signal.Signals | None = None) -> int:
        if number is not None and self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.end()

    def found(self, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
        return [match.groups() for line in list(self.lines) if (match := pattern.search(line))]

    @property
    def partitions(self) -> set[int]:
        """What it says it has now."""
        owned: set[int] = set()
        for line in list(self.lines):
            named = {int(number) for number in re.findall(r"partition (\d)", line)}
            if " assigned " in line:
                owned |= named
            elif " revoked " in line:
                owned -= named
        return owned


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(QUICK_GROUPS)


@pytest.fixture
def run(node: NodeProcess) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program(node.bootstrap, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def until(holds: Callable[[], bool], programs: list[Program]) -> None:
    wait_until(
        holds,
        lambda: "\n\n".join("\n".join(program.lines) for program in programs),
        timeout_s=PATIENCE_S,
    )


@pytest.mark.row("D17")
@pytest.mark.row("D11")
@pytest.mark.parametrize("protocol", ["cooperative", "eager", "consumer"])
def test_the_drawn_scene(node: NodeProcess, run: Callable[..., Program], protocol: str) -> None:
    create(node, multi_topic=3)
    consume = ["-mode", "consumer", "-topic", "multi-topic", "-group", "my-group", "-protocol", protocol]
    consumers = [run(*consume) for _ in range(3)]
    until(lambda: sorted(len(consumer.partitions) for consumer in consumers) == [1, 1, 1], consumers)
    assert set.union(*(consumer.partitions for consumer in consumers)) == {0, 1, 2}

    sent = produce_all(run, 48)
    until(lambda: received_by(consumers) == sent, consumers)
    assert [consumer.lines for consumer in consumers if not consumer.found(_RECEIVED)] == []

    leaver, *stay = consumers
    before = [len(consumer.lines) for consumer in stay]
    assert leaver.end(signal.SIGINT) == 0
    assert "leaving" in "".join(leaver.lines)
    until(lambda: sorted(len(consumer.partitions) for consumer in stay) == [1, 2], stay)
    later = [line for consumer, count in zip(stay, before, strict=True) for line in consumer.lines[count:]]
    assert any(" revoked partition" in line for line in later) == (protocol == "eager"), later
    sent += produce_all(run, 48)
    until(lambda: received_by(consumers) == sorted(sent), consumers)
    for consumer in stay:
        assert consumer.end(signal.SIGTERM) == 0, consumer.lines


def create(node: NodeProcess, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    wanted = [NewTopic(name.replace("_", "-"), count, 1) for name, count in partitions.items()]
    for created in admin.create_topics(wanted).values():
        created.result(PATIENCE_S)


@pytest.mark.row("D17")
@pytest.mark.row("D13")
def test_two_groups_read_two_topics(node: NodeProcess, run: Callable[..., Program]) -> None:
    create(node, orders=2, payments=1)
    both = ["-mode", "consumer", "-topic", "orders,payments", "-group"]
    consumers = [run(*both, group) for group in ("billing", "audit")]
    producer = run("-mode", "producer", "-topic", "orders,payments", "-messages", "24", "-pause", "0")
    assert producer.end() == 0
    for consumer in consumers:
        until(lambda consumer=consumer: len(consumer.found(_RECEIVED)) == 48, consumers)
        assert any("assigned orders partition 0, orders partition 1, payments" in x for x in consumer.lines)
        assert len([line for line in consumer.lines if "from payments partition 0" in line]) == 24


@pytest.mark.row("D17")
def test_trouble_is_one_line_with_the_next_command(node: NodeProcess, run: Callable[..., Program]) -> None:
    missing = run("-mode", "consumer", "-topic", "missing")
    assert missing.end() == 1
    assert missing.lines == [
        "kafka-demo: topic 'missing' does not exist; list the topics: headrace topics list"
    ]
    nowhere = Program("127.0.0.1:1", "-mode", "producer")
    assert nowhere.end() == 1
    assert len(nowhere.lines) == 1
    assert "start a node with `headrace serve`" in nowhere.lines[0]


@pytest.mark.row("D17")
def test_a_broker_that_goes_away_is_one_line_and_ctrl_c_ends_it(
    node: NodeProcess, run: Callable[..., Program]
) -> None:
    create(node, away=1)
    topic = ["-topic", "away"]
    programs = [run("-mode", "consumer", *topic), run("-mode", "producer", *topic, "-pause", "0.1")]
    until(lambda: bool(programs[0].found(_RECEIVED)), programs)
    node.kill()
    until(
        lambda: all("no broker answers; trying again" in "".join(each.lines) for each in programs), programs
    )
    consumer, producer = programs
    assert producer.end(signal.SIGINT) == 1
    assert re.fullmatch(
        r"kafka-demo: \d+ messages were not delivered; start a node .*", producer.lines[-1]
    ), producer.lines
    assert consumer.end(signal.SIGINT) == 0
    for program in programs:
        assert sum("no broker answers" in line for line in program.lines) == 1, program.lines


def produce_all(run: Callable[..., Program], count: int) -> list[tuple[str, ...]]:
    """What the producer says it sent: key, value, partition, offset."""
    arguments = ["--mode", "producer", "--topic", "multi-topic", "--messages", str(count), "--pause", "0"]
    producer = run(*arguments)
    assert producer.end() == 0
    sent = producer.found(_SENT)
    assert len(sent) == count
    partitions = {(key, partition) for key, _, partition, _ in sent}
    assert len(partitions) == 24, "a key has one partition"
    return sorted(sent)


def received_by(consumers: list[Program]) -> list[tuple[str, ...]]:
    return sorted(found for consumer in consumers for found in consumer.found(_RECEIVED))


@pytest.mark.row("D17")
def test_without_a_mode_it_says_what_it_takes() -> None:
    done = subprocess.run(PROGRAM, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "{producer,consumer}" in done.stderr
    assert "-mode" in done.stderr
