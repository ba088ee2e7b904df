# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka (librdkafka), unmodified: members of groups, both protocols, with their own listeners."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.groups.polled_consumers import PolledGroup

TIMEOUT_S = 20
PROTOCOLS = ["classic", "consumer"]
with_both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
SESSION_S = 2.0
MakeTopic = Callable[..., str]
MakePolledGroup = Callable[..., PolledGroup]


def settings_of(protocol: str, **more: Any) -> dict[str, Any]:
    if protocol == "consumer":
        return {"group.protocol": "consumer", **more}
    return {"session.timeout.ms": int(SESSION_S * 1000), "heartbeat.interval.ms": 200, **more}


@pytest.fixture
def make_topic(group_bootstrap: str, topic: str) -> MakeTopic:
    admin = AdminClient({"bootstrap.servers": group_bootstrap})

    def make(partitions: int = 1, *, suffix: str = "") -> str:
        name = topic + suffix
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
        return name

    return make


@pytest.fixture
def make_polled_group(group_bootstrap: str, topic: str) -> Iterator[MakePolledGroup]:
    crowds: list[PolledGroup] = []

    def make(protocol: str, **more: Any) -> PolledGroup:
        crowds.append(PolledGroup(group_bootstrap, f"group {topic}", **settings_of(protocol, **more)))
        return crowds[-1]

    yield make
    for polled_group in crowds:
        polled_group.__exit__()


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0


def partitions_of(topic: str, partitions: int) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in range(partitions)]


def first_error(consumer: Consumer, *others: Consumer) -> KafkaError:
    """What the first consumer is told while all are polled."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for other in others:
            other.poll(0.02)
        message = consumer.poll(0.05)
        if message is not None and message.error() is not None:
            return message.error()
    raise AssertionError("no error")


# -- listeners ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_eager_listeners_give_up_everything_and_are_given_their_share(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup, assignor: str
) -> None:
    topic = make_topic(4)
    polled_group = make_polled_group("classic", partition_assignment_strategy=assignor)
    polled_group.join("first", [topic])
    polled_group.wait_until_stable(*partitions_of(topic, 4))
    polled_group.join("second", [topic])
    polled_group.wait_until_stable(*partitions_of(topic, 4))
    rebalances = [
        (event.kind, len(event.keys)) for event in polled_group.rebalances if event.consumer == "first"
    ]
    assert rebalances == [("assigned", 4), ("revoked", 4), ("assigned", 2)]
    polled_group.leave("second")
    assert [(event.kind, len(event.keys)) for event in polled_group.rebalances[-1:]] == [("revoked", 2)]
    polled_group.wait_until_stable(*partitions_of(topic, 4))


@with_both_protocols
def test_incremental_listeners_may_assign_themselves(
    group_bootstrap: str, make_topic: MakeTopic, protocol: str
) -> None:
    """incremental_assign and incremental_unassign from the callbacks, as cooperative applications do."""
    topic = make_topic(4)
    rebalances: list[tuple[str, str, list[int]]] = []

    def listener(name: str, kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def record(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            rebalances.append((name, kind, sorted(each.partition for each in partitions)))
            change = consumer.incremental_assign if kind == "assigned" else consumer.incremental_unassign
            change(partitions)

        return record

    consumers: dict[str, Consumer] = {}

    def join(name: str) -> None:
        more = {"bootstrap.servers": group_bootstrap, "group.id": topic}
        if protocol == "classic":
            more["partition.assignment.strategy"] = "cooperative-sticky"
        consumers[name] = Consumer(settings_of(protocol, **more))
        consumers[name].subscribe(
            [topic], on_assign=listener(name, "assigned"), on_revoke=listener(name, "revoked")
        )

    def wait_for(*sizes: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while [len(consumer.assignment()) for consumer in consumers.values()] != list(sizes):
            assert time.monotonic() < deadline, rebalances
            for consumer in consumers.values():
                consumer.poll(0.05)

    join("first")
    wait_for(4)
    join("second")
    wait_for(2, 2)
    for consumer in consumers.values():
        consumer.close()
    rebalances = [event for event in rebalances if event[2]]
    assert rebalances[0] == ("first", "assigned", [0, 1, 2, 3])
    assert [(name, kind, len(partitions)) for name, kind, partitions in rebalances[1:3]] == [
        ("first", "revoked", 2),
        ("second", "assigned", 2),
    ]


@with_both_protocols
def test_a_consumer_that_does_not_poll_loses_its_partitions(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup, protocol: str
) -> None:
    """After max.poll.interval.ms librdkafka leaves; the listener hears `lost`, not `revoked`."""
    topic = make_topic(2)
    polled_group = make_polled_group(protocol, max_poll_interval_ms=2500)
    slow = polled_group.join("slow", [topic])
    polled_group.wait_until_stable(*partitions_of(topic, 2))
    time.sleep(4)  # longer than max.poll.interval.ms: the time itself is tested
    with pytest.raises(KafkaException) as raised:
        polled_group.until(lambda: False, "the word that it was too slow")
    assert raised.value.args[0].code() == KafkaError._MAX_POLL_EXCEEDED
    polled_group.until(
        lambda: any(event.kind == "lost" for event in polled_group.rebalances), "lost partitions"
    )
    polled_group.wait_until_stable(*partitions_of(topic, 2))
    kinds = [event.kind for event in polled_group.rebalances]
    assert kinds[:3] == ["assigned", "lost", "assigned"]
    assert slow.partitions == [0, 1]


# -- subscriptions -----------------------------------------------------------------------------------------


@with_both_protocols
def test_a_pattern_finds_topics_that_are_created_later(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup, topic: str, protocol: str
) -> None:
    first = make_topic(2, suffix="-eu")
    make_topic(2, suffix="-other")
    polled_group = make_polled_group(protocol)
    polled_group.join("one", [f"^{topic}-(eu|us)$"])
    polled_group.wait_until_stable(*partitions_of(first, 2))
    later = make_topic(1, suffix="-us")
    polled_group.wait_until_stable(*partitions_of(first, 2), *partitions_of(later, 1))


def test_a_pattern_that_re2_cannot_read_is_refused(make_topic: MakeTopic, group_bootstrap: str) -> None:
    topic = make_topic()
    consumer = Consumer(settings_of("consumer", **{"bootstrap.servers": group_bootstrap, "group.id": topic}))
    consumer.subscribe([r"^(.)back-reference-\1$"])
    assert "regular expression is not valid" in str(first_error(consumer))
    consumer.close()


@with_both_protocols
def test_a_changed_subscription_is_a_new_assignment(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup, protocol: str
) -> None:
    old, new = make_topic(2, suffix="-old"), make_topic(2, suffix="-new")
    polled_group = make_polled_group(protocol)
    member = polled_group.join("one", [old])
    polled_group.wait_until_stable(*partitions_of(old, 2))
    member.consumer.subscribe([new])
    deadline = time.monotonic() + TIMEOUT_S
    while {each.topic for each in member.consumer.assignment()} != {new}:
        assert time.monotonic() < deadline
        member.consumer.poll(0.05)
    member.consumer.unsubscribe()
    while member.consumer.assignment():
        assert time.monotonic() < deadline
        member.consumer.poll(0.05)


# -- commits -----------------------------------------------------------------------------------------------


@with_both_protocols
def test_commits_wait_or_report_and_carry_metadata(
    group_bootstrap: str,
    make_topic: MakeTopic,
    make_polled_group: MakePolledGroup,
    protocol: str,
) -> None:
    topic = make_topic()
    produce(group_bootstrap, topic, 10)
    reports: list[tuple[KafkaError | None, int]] = []
    polled_group = make_polled_group(
        protocol, on_commit=lambda error, found: reports.append((error, found[0].offset))
    )
    member = polled_group.join("one", [topic])
    polled_group.until(lambda: len(member.records) == 10, "ten records")
    consumer = member.consumer
    waited = consumer.commit(message=member.records[3], asynchronous=False)
    assert [(each.offset, each.error) for each in waited] == [(4, None)]
    consumer.commit(offsets=[TopicPartition(topic, 0, 7, metadata="by hand: 7")], asynchronous=True)
    polled_group.until(lambda: (None, 7) in reports, "the report of the second commit")
    (committed,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    assert (committed.offset, committed.metadata) == (7, "by hand: 7")
    metadata = consumer.consumer_group_metadata()
    assert metadata is not None


@with_both_protocols
def test_automatic_commits_are_made_by_close(
    group_bootstrap: str,
    make_topic: MakeTopic,
    make_polled_group: MakePolledGroup,
    protocol: str,
) -> None:
    topic = make_topic()
    produce(group_bootstrap, topic, 6)
    polled_group = make_polled_group(protocol, enable_auto_commit=True, auto_commit_interval_ms=60_000)
    member = polled_group.join("one", [topic])
    polled_group.until(lambda: len(member.records) == 6, "all records")
    polled_group.leave("one")
    successor = polled_group.join("two", [topic])
    polled_group.wait_until_stable((topic, 0))
    produce(group_bootstrap, topic, 1)
    polled_group.until(lambda: bool(successor.records), "the new record")
    assert successor.records[0].offset() == 6


def test_a_simple_consumer_commits_without_being_a_member(
    group_bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    settings = {"bootstrap.servers": group_bootstrap, "group.id": topic}
    consumer = Consumer(settings)
    partition = TopicPartition(topic, 0, 3)
    consumer.assign([partition])
    consumer.commit(offsets=[partition], asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset == 3
    consumer.close()
    again = Consumer(settings)
    assert again.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset == 3
    again.close()


# -- who leaves, and how -----------------------------------------------------------------------------------

_IDLE = """
import json, sys
from confluent_kafka import Consumer
settings, topic = json.loads(sys.argv[1]), sys.argv[2]
consumer = Consumer(settings)
consumer.subscribe([topic], on_assign=lambda _, partitions: print(len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


@with_both_protocols
def test_a_killed_member_is_waited_for_until_its_session_ends_and_one_that_leaves_is_not(
    group_bootstrap: str,
    make_topic: MakeTopic,
    make_polled_group: MakePolledGroup,
    protocol: str,
) -> None:
    """A closed connection is no death: only the session tells."""
    topic = make_topic(2)
    polled_group = make_polled_group(protocol)
    polled_group.join("stays", [topic])
    polled_group.wait_until_stable(*partitions_of(topic, 2))
    settings = settings_of(protocol, **{"bootstrap.servers": group_bootstrap, "group.id": f"group {topic}"})
    command = [sys.executable, "-c", _IDLE, json.dumps(settings), topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        polled_group.until(lambda: len(polled_group.members["stays"].owned) == 1, "the other one joins")
        polling = _KeepPolling(polled_group)
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == "1"
        polling.end()
        victim.kill()
    killed = time.monotonic()
    polled_group.wait_until_stable(*partitions_of(topic, 2))
    waited_s = time.monotonic() - killed
    assert waited_s > SESSION_S * 0.7

    polled_group.join("leaves", [topic])
    polled_group.wait_until_stable(*partitions_of(topic, 2))
    left = time.monotonic()
    polled_group.leave("leaves")
    polled_group.until(lambda: len(polled_group.members["stays"].owned) == 2, "all partitions")
    assert time.monotonic() - left < waited_s


class _KeepPolling:
    """Members must poll while the test waits for something else."""

    def __init__(self, polled_group: PolledGroup) -> None:
        self._ending = threading.Event()
        self._polled_group = polled_group
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._polled_group.poll_all()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


# -- static members ----------------------------------------------------------------------------------------


@with_both_protocols
def test_a_returning_static_member_gets_its_partitions_without_a_rebalance(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup, protocol: str
) -> None:
    topic = make_topic(4)
    polled_group = make_polled_group(protocol)
    polled_group.join("one", [topic], group_instance_id="instance-1")
    polled_group.join("two", [topic], group_instance_id="instance-2")
    before = polled_group.wait_until_stable(*partitions_of(topic, 4))["two"]
    rebalances = [event for event in polled_group.rebalances if event.consumer == "one"]
    polled_group.leave("two")
    polled_group.join("two", [topic], group_instance_id="instance-2")
    after = polled_group.wait_until_stable(*partitions_of(topic, 4))["two"]
    assert after == before
    assert [event for event in polled_group.rebalances if event.consumer == "one"] == rebalances


def test_a_second_classic_instance_of_one_name_fences_the_first(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup
) -> None:
    topic = make_topic()
    older, newer = make_polled_group("classic"), make_polled_group("classic")
    first = older.join("first", [topic], group_instance_id="the-instance")
    older.wait_until_stable((topic, 0))
    second = newer.join("second", [topic], group_instance_id="the-instance")
    error = first_error(first.consumer, second.consumer)
    assert error.code() == KafkaError._FATAL
    assert "fenced by other consumer" in str(error)
    newer.wait_until_stable((topic, 0))


def test_a_second_kip_848_member_of_one_instance_id_is_refused_while_the_first_is_active(
    make_topic: MakeTopic, make_polled_group: MakePolledGroup
) -> None:
    topic = make_topic()
    polled_group = make_polled_group("consumer")
    polled_group.join("first", [topic], group_instance_id="the-instance")
    polled_group.wait_until_stable((topic, 0))
    rival = make_polled_group("consumer").join("second", [topic], group_instance_id="the-instance")
    error = first_error(rival.consumer, polled_group.members["first"].consumer)
    assert error.code() == KafkaError._FATAL
    assert "instance ID is still used by another member" in str(error)
    assert polled_group.members["first"].owned == {(topic, 0)}
