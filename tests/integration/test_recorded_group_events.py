# SPDX-License-Identifier: Apache-2.0
"""A group's life as `headrace groups events` tells it, and lag in seconds that outlives the node (D21)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.harness.live.node import NodeProcess
from tests.harness.waiting import poll_passing

StartNode = Callable[..., NodeProcess]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
PROTOCOLS = {
    "classic": {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}
LONG_AGO_MS = 3_600_000
NEAR_S = 6.0
"""A look every 5 s, and a little."""


class Cli:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "headrace.cli.main", "groups", *arguments]
        done = subprocess.run(
            [*command, "--bootstrap", self._bootstrap],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def events(self, group: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("events", group, "--json").splitlines()]

    def events_until(self, group: str, kind: str) -> list[dict[str, Any]]:
        """They are written once a second; the first make their topic."""

        def check() -> list[dict[str, Any]]:
            events = self.events(group)
            assert events[-1]["kind"] == kind
            return events

        return poll_passing(check, timeout_s=20, poll_s=0.2)

    def described(self, group: str) -> Mapping[str, Any]:
        (partition,) = json.loads(self("describe", group, "--over", "0s", "--json"))["partitions"]
        return dict(partition)


@contextmanager
def member(bootstrap: str, protocol: str, name: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "story",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **PROTOCOLS[protocol],
        }
    )
    consumer.subscribe(["t"])
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(wanted: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + 30
    while not wanted():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.05)


def produce(bootstrap: str, count: int, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("t", str(number).encode(), **options)
    assert producer.flush(10) == 0


def make_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("t", partitions, 1)]).values():
        made.result(10)


def live_and_die(bootstrap: str, protocol: str) -> None:
    """One reads and commits, another joins, the first leaves in good order, then the other."""
    with ExitStack() as others:
        with member(bootstrap, protocol, "first") as first:
            read(first, 20)
            first.commit(asynchronous=False)
            second = others.enter_context(member(bootstrap, protocol, "second"))
            poll_until(lambda: len(second.assignment()) == 1 == len(first.assignment()), first, second)
            wait_for_a_fetch(first, second)
        poll_until(lambda: len(second.assignment()) == 2, second)
        wait_for_a_fetch(second)


def read(consumer: Consumer, count: int) -> None:
    deadline = time.monotonic() + 30
    while count:
        assert time.monotonic() < deadline
        count -= consumer.poll(0.05) is not None


def wait_for_a_fetch(*consumers: Consumer) -> None:
    end = time.monotonic() + 1
    poll_until(lambda: time.monotonic() > end, *consumers)


def who(event: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, str]:
    return str(event["kind"]), names.get(event["details"].get("member_id", ""), "")


@pytest.mark.row("D21")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_group_events_are_recorded_in_order(start_node: StartNode, protocol: str) -> None:
    node = start_node(SETTINGS)
    make_topic(node.bootstrap, 2)
    produce(node.bootstrap, 20)
    live_and_die(node.bootstrap, protocol)
    cli = Cli(node.bootstrap)
    cli("reset", "story", "--topic", "t", "--to-earliest", "--execute")
    cli("delete", "story", "--yes")
    events = cli.events_until("story", "deleted")

    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    joins = [event["details"] for event in events if event["kind"] == "join"]
    names = {details["member_id"]: details["client_id"] for details in joins}
    assert sorted(names.values()) == ["first", "second"]
    told = [who(event, names) for event in events]
    leaves = [name for kind, name in told if kind == "leave"]
    assert leaves == ["first", "second"]
    story = iter(told)
    for expected in (
        ("rebalance", ""),
        ("assigned", ""),
        ("first_fetch", "first"),
        ("commit", "first"),
        ("first_fetch", "second"),
        ("leave", "first"),
        ("rebalance", ""),
        ("assigned", ""),
        ("first_fetch", "second"),
        ("leave", "second"),
        ("empty", ""),
        ("offsets_reset", ""),
        ("deleted", ""),
    ):
        assert expected in story, f"{expected} is missing, or not in its place: {told}"
    assert all(event["details"]["took_ms"] >= 0 for event in events if event["kind"] == "assigned")

    first = next(event["details"] for event in events if event["kind"] == "commit")
    committed = {(topic, partition): offset for topic, partition, offset in first["offsets"]}
    assert committed.keys() == {("t", 0), ("t", 1)}
    assert sum(committed.values()) == 20, "all records were read by then"
    words = cli("events", "story")
    for sentence in ("joined from 127.0.0.1", "rebalance started: ", "partitions assigned to 2 members after",
                     "fetched first from t-", "committed t-", "the group is empty",
                     "offsets of 2 partitions were reset", "the group was deleted"):  # fmt: skip
        assert sentence in words


@pytest.mark.row("D21")
def test_a_session_timeout_is_recorded_with_its_reason(start_node: StartNode) -> None:
    node = start_node(SETTINGS)
    make_topic(node.bootstrap, 1)
    program = (
        "import sys, confluent_kafka as k\n"
        f"c = k.Consumer({{'bootstrap.servers': '{node.bootstrap}', 'group.id': 'story',"
        " 'session.timeout.ms': 1500, 'heartbeat.interval.ms': 200})\n"
        "c.subscribe(['t'])\n"
        "while not c.assignment(): c.poll(0.1)\n"
        "print('ready', flush=True)\n"
        "while True: c.poll(0.1)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    events = Cli(node.bootstrap).events_until("story", "empty")
    (leave,) = (event for event in events if event["kind"] == "leave")
    assert leave["details"]["reason"] == "silent for 1500 ms"


def test_a_pattern_of_a_client_leaves_out_what_is_internal(start_node: StartNode) -> None:
    node = start_node(SETTINGS)
    make_topic(node.bootstrap, 1)
    produce(node.bootstrap, 1)
    with member(node.bootstrap, "classic", "first") as first:
        read(first, 1)
        first.commit(asynchronous=False)
    Cli(node.bootstrap).events_until("story", "empty")
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, group_id="all", exclude_internal_topics=True)
    try:
        consumer.subscribe(pattern=".*")
        deadline = time.monotonic() + 20
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(100)
        assert consumer.subscription() == {"t"}
        assert "__headrace_events" in AdminClient({"bootstrap.servers": node.bootstrap}).list_topics().topics
    finally:
        consumer.close()


@pytest.mark.row("D14")
def test_lag_in_seconds_is_accurate_and_survives_a_kill(start_node: StartNode) -> None:
    """The records' own timestamps are an hour old: they are not what it comes from."""
    node = start_node(SETTINGS)
    cli = Cli(node.bootstrap)
    make_topic(node.bootstrap, 1)
    old_ms = int(time.time() * 1000) - LONG_AGO_MS

    def commit(offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        offsets = ConsumerGroupTopicPartitions("lagging", [TopicPartition("t", 0, offset)])
        for done in admin.alter_consumer_group_offsets([offsets]).values():
            done.result(10)

    def check(committed: int, since: float) -> None:
        commit(committed)
        found = cli.described("lagging")
        assert (found["committed"], found["lag"]) == (committed, 200 - committed)
        assert not found["lag_seconds_at_least"]
        assert found["lag_seconds"] == pytest.approx(time.time() - since, abs=NEAR_S)

    def let_a_sample_pass() -> None:
        time.sleep(5.5)  # lag is sampled every five seconds, and its age in seconds is what is tested

    commit(0)
    let_a_sample_pass()
    first = time.time()
    produce(node.bootstrap, 100, timestamp=old_ms)
    time.sleep(8)  # how much older the first records are
    second = time.time()
    produce(node.bootstrap, 100, timestamp=old_ms)
    let_a_sample_pass()
    check(50, first)
    node.kill()
    time.sleep(3)  # how long the node is away
    node.start()
    let_a_sample_pass()
    check(50, first)
    check(150, second)
