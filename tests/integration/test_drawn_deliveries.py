# SPDX-License-Identifier: Apache-2.0
"""What groups receive (D12, D13) and where they stand (D14): positions, commits, restarts, redelivery."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.groups.polled_consumers import QUICK_GROUPS, PolledGroup
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 20
KILLED_CONSUMER = Path(__file__).with_name("killed_consumer.py")
PROTOCOLS = ["classic", "consumer"]
with_both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("deliveries"), settings=QUICK_GROUPS) as node:
        yield node


def make_topic(node: NodeProcess, topic: str, *, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def fill(node: NodeProcess, topic: str, count: int, *, word: str = "record") -> list[bytes]:
    """Each value is one of its kind, and its own key: they spread over the partitions."""
    values = [f"{word} {number} of {topic}".encode() for number in range(count)]
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(TIMEOUT_S) == 0
    return values


def polled_group(node: NodeProcess, group: str, protocol: str) -> PolledGroup:
    classic = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200} if protocol == "classic" else {}
    return PolledGroup(node.bootstrap, group, group_protocol=protocol, **classic)


def group_consumer(node: NodeProcess, group: str, protocol: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    assert len(found) == count
    return found


def offsets(messages: list[Message]) -> list[int | None]:
    return [message.offset() for message in messages]


# -- D12, D13: who receives what ---------------------------------------------------------------------------


@pytest.mark.row("D12")
@pytest.mark.parametrize("protocols", [("classic", "classic"), ("consumer", "consumer"), PROTOCOLS])
def test_two_groups_each_receive_all(node: NodeProcess, topic: str, protocols: tuple[str, str]) -> None:
    """One does analytics, one stores: each shares the partitions among its own consumers only."""
    make_topic(node, topic, partitions=3)
    sent = sorted(fill(node, topic, 60))
    with ExitStack() as stack:
        groups = [
            stack.enter_context(polled_group(node, f"{name} {topic}", protocol))
            for name, protocol in zip(("analytics", "storage"), protocols, strict=True)
        ]
        for group in groups:
            group.join("C1", [topic])
            group.join("C2", [topic])
            group.wait_until_stable(*((topic, partition) for partition in range(3)))
            group.until(lambda group=group: len(set(group.values())) == 60, "all records")
        for group in groups:
            assert sorted(set(group.values())) == sent
            assert all(member.owned for member in group.members.values())
        more = fill(node, topic, 30, word="later")
        for group in groups:
            group.until(lambda group=group: set(more) <= set(group.values()), "what came later")
            assert all(group.values().count(value) == 1 for value in more)


@pytest.mark.row("D13")
@with_both_protocols
def test_topics_a_and_b_times_groups_a_and_b(node: NodeProcess, topic: str, protocol: str) -> None:
    """Each group reads both topics; inside a group each partition of either topic has one reader."""
    topics = [f"{topic}-A", f"{topic}-B"]
    sent = []
    for name in topics:
        make_topic(node, name, partitions=2)
        sent += fill(node, name, 20)
    keys = [(name, partition) for name in topics for partition in range(2)]
    for group_name in ("A", "B"):
        with polled_group(node, f"{group_name} {topic}", protocol) as group:
            group.join(f"{group_name}#0", topics)
            group.join(f"{group_name}#1", topics)
            owned = group.wait_until_stable(*keys)
            group.until(lambda group=group: len(set(group.values())) == 40, "all records of both")
            assert sorted(set(group.values())) == sorted(sent)
            assert [len(share) for share in owned.values()] == [2, 2]


@pytest.mark.row("D13")
@with_both_protocols
def test_consumers_of_one_group_may_read_different_topics(
    node: NodeProcess, topic: str, protocol: str
) -> None:
    topic_a, topic_b = f"{topic}-A", f"{topic}-B"
    for name in (topic_a, topic_b):
        make_topic(node, name, partitions=2)
    with polled_group(node, f"mixed {topic}", protocol) as group:
        group.join("only A", [topic_a])
        group.join("only B", [topic_b])
        both = [(name, partition) for name in (topic_a, topic_b) for partition in range(2)]
        owned = group.wait_until_stable(*both)
    assert owned == {
        "only A": {(topic_a, 0), (topic_a, 1)},
        "only B": {(topic_b, 0), (topic_b, 1)},
    }


# -- D14: where a group stands -----------------------------------------------------------------------------


@pytest.mark.row("D14")
@with_both_protocols
def test_a_restarted_consumer_resumes_at_the_committed_position(
    node: NodeProcess, topic: str, protocol: str
) -> None:
    make_topic(node, topic)
    fill(node, topic, 10)
    first = group_consumer(node, topic, protocol)
    first.subscribe([topic])
    read(first, 4)
    first.commit(asynchronous=False)
    first.close()
    second = group_consumer(node, topic, protocol)
    second.subscribe([topic])
    assert offsets(read(second, 6)) == [4, 5, 6, 7, 8, 9]
    second.close()


@pytest.mark.row("D14")
@with_both_protocols
def test_at_least_once_what_was_processed_and_not_committed_comes_again(
    node: NodeProcess, topic: str, protocol: str
) -> None:
    """The consumer is killed (SIGKILL) between processing and commit."""
    make_topic(node, topic)
    sent = fill(node, topic, 8)
    command = [sys.executable, str(KILLED_CONSUMER), node.bootstrap, topic, topic, protocol, "3", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        story = []
        while not story or story[-1] not in ("waiting", ""):
            story.append(victim.stdout.readline().strip())
        victim.kill()
    processed = [line.removeprefix("processed ").encode() for line in story if line.startswith("processed ")]
    assert processed == sent[:5]
    assert story[3] == "committed"

    successor = group_consumer(node, topic, protocol)
    successor.subscribe([topic])
    received = [message.value() for message in read(successor, 5)]
    successor.close()
    assert received == sent[3:], "from the committed position on"
    assert received[:2] == processed[3:], "these two were processed twice"
    assert set(processed) | set(received) == set(sent), "none was skipped"


@pytest.mark.row("D14")
@with_both_protocols
def test_the_position_is_ahead_of_the_committed_one_until_the_commit(
    node: NodeProcess, topic: str, protocol: str
) -> None:
    make_topic(node, topic)
    fill(node, topic, 10)
    consumer = group_consumer(node, topic, protocol)
    consumer.subscribe([topic])
    read(consumer, 3)
    consumer.commit(asynchronous=False)
    read(consumer, 4)
    assert _where(consumer, topic) == (7, 3)
    consumer.commit(asynchronous=False)
    assert _where(consumer, topic) == (7, 7)
    consumer.close()


@pytest.mark.row("D14")
@with_both_protocols
def test_the_position_is_behind_the_committed_one_after_a_seek_back(
    node: NodeProcess, topic: str, protocol: str
) -> None:
    """Reading again does not move the committed offset: a successor begins where the group was."""
    make_topic(node, topic)
    fill(node, topic, 10)
    consumer = group_consumer(node, topic, protocol)
    consumer.subscribe([topic])
    read(consumer, 6)
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(topic, 0, 1))
    assert offsets(read(consumer, 2)) == [1, 2]
    assert _where(consumer, topic) == (3, 6)
    consumer.close()
    successor = group_consumer(node, topic, protocol)
    successor.subscribe([topic])
    assert offsets(read(successor, 1)) == [6]
    successor.close()


def _where(consumer: Consumer, topic: str) -> tuple[int, int]:
    """(position, committed)."""
    partition = [TopicPartition(topic, 0)]
    return consumer.position(partition)[0].offset, consumer.committed(partition, TIMEOUT_S)[0].offset


@pytest.mark.row("D14")
@with_both_protocols
def test_committed_positions_survive_a_killed_node(tmp_path: Path, protocol: str) -> None:
    with NodeProcess(tmp_path, settings=QUICK_GROUPS) as node:
        make_topic(node, "orders")
        fill(node, "orders", 10)
        # A close right after the restart may not find the coordinator: then it is the session that ends.
        session = {"session.timeout.ms": 2000} if protocol == "classic" else {}
        consumer = group_consumer(node, "group", protocol, **session)
        consumer.subscribe(["orders"])
        read(consumer, 4)
        consumer.commit(asynchronous=False)
        node.kill()
        node.start()
        assert offsets(read(consumer, 6)) == [4, 5, 6, 7, 8, 9], "the same consumer goes on"
        consumer.close()
        successor = group_consumer(node, "group", protocol)
        successor.subscribe(["orders"])
        assert offsets(read(successor, 1)) == [4], "another one begins at the commit"
        successor.close()
