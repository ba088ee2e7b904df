# SPDX-License-Identifier: Apache-2.0
"""The parallel consumer as a member of real groups (D15): rebalances, slow handlers, poison, kills.

HEADRACE_TEST_BOOTSTRAP runs all of it against another broker, which needs the settings below.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

from headrace.client.parallel import Observer, ParallelConsumer, Record, RecordFailed, Stats, cancelled
from headrace.client.tools.admin import Admin
from headrace.client.tools.reader import topic_reader
from headrace.types import TopicPartition
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import check_stays, poll, wait_until

pytestmark = pytest.mark.row("D15")

PROTOCOLS = ("cooperative", "eager", "consumer")
PARTITIONS = 4
KEYS = 23
WAIT_S = 60
PROGRAM = Path(__file__).with_name("parallel_worker.py")
QUICK_GROUPS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose groups rebalance at once."""
    given = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with NodeProcess(tmp_path_factory.mktemp("groups"), settings=QUICK_GROUPS) as node:
        yield node.bootstrap


def fill(bootstrap: str, topic: str, records: int, partitions: int = PARTITIONS) -> None:
    Admin(bootstrap).create_topic(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(records):
        producer.produce(topic, str(number).encode(), key=f"k{number % KEYS}".encode())
    assert producer.flush(WAIT_S) == 0


def committed(bootstrap: str, group: str, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [At(topic, index) for index in range(partitions)]
        return {at.partition: max(at.offset, 0) for at in client.committed(asked, WAIT_S)}
    finally:
        client.close()


def ends(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[int, int]:
    return Admin(bootstrap).offsets(topic, range(partitions), "latest")


def wait_for(condition: Callable[[], bool], what: str = "the condition") -> None:
    wait_until(condition, what, timeout_s=WAIT_S)


class Notes(Observer):
    """What the handlers of all members did, in one order."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._pause_s = pause_s
        self.handled: list[tuple[int, int, bytes | None]] = []
        self.revocations: list[int] = []
        self.held_at_most = 0

    def __call__(self, record: Record) -> None:
        time.sleep(self._pause_s)  # the slow handler
        with self._lock:
            self.handled.append((record.partition, record.offset, record.key))

    def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
        self.revocations.append(unfinished)


def check_order_and_loss(handled: Sequence[tuple[int, int, Any]], ends: dict[int, int]) -> None:
    """Each record at least once, and each key's records in their order, redeliveries aside."""
    first_time: dict[tuple[int, Any], list[int]] = defaultdict(list)
    seen: set[tuple[int, int]] = set()
    for partition, offset, key in handled:
        if (partition, offset) not in seen:
            seen.add((partition, offset))
            first_time[partition, key].append(offset)
    assert seen == {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    for place, offsets in first_time.items():
        assert offsets == sorted(offsets), f"{place} was handled in the order {offsets}"


def done(consumers: Sequence[ParallelConsumer], total: int, notes: Notes) -> bool:
    stats: list[Stats] = [consumer.stats() for consumer in consumers]
    return len({item[:2] for item in notes.handled}) == total and all(stat.at_end for stat in stats)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_and_no_record_is_lost_or_overtaken(bootstrap, topic, protocol):
    records = 3_000
    fill(bootstrap, topic, records)
    notes = Notes(pause_s=0.003)
    options: dict[str, Any] = {"protocol": protocol, "observer": notes, "max_records": 100, "workers": 4}
    if protocol != "consumer":
        options["settings"] = {"heartbeat.interval.ms": 200}
    first, second, third = (ParallelConsumer(bootstrap, topic, topic, notes, **options) for _ in range(3))
    with second:
        with first:
            wait_for(lambda: len(notes.handled) > 300, "the first records")
            with third:
                wait_for(lambda: bool(third.stats().partitions), "a third member's share")
                assert first.stats().in_flight <= 100
                wait_for(lambda: len(notes.handled) > 1_200)
        wait_for(lambda: len(second.stats().partitions) == PARTITIONS, "all of them")
        wait_for(lambda: done([second], records, notes), "the end")
    check_order_and_loss(notes.handled, ends(bootstrap, topic))
    assert committed(bootstrap, topic, topic) == ends(bootstrap, topic)
    assert len(notes.revocations) >= 2
    assert sum(notes.revocations) == 0, "no handler was too slow for a rebalance"
    assert len(notes.handled) == records, "members that leave in good order leave nothing to do twice"


def test_a_handler_slower_than_the_poll_interval_keeps_its_partitions_and_memory_its_bound(bootstrap, topic):
    fill(bootstrap, topic, 200)
    slow_once = threading.Event()
    notes = Notes()
    lost: list[object] = []

    class Watch(Observer):
        def lost(self, partitions: Sequence[TopicPartition]) -> None:
            lost.append(partitions)

        def revoked(self, partitions: Sequence[TopicPartition], *, unfinished: int) -> None:
            lost.append(partitions)

    def handle(record: Record) -> None:
        if not slow_once.is_set():
            slow_once.set()
            time.sleep(4)  # longer than max.poll.interval.ms
        notes(record)

    consumer = ParallelConsumer(
        bootstrap,
        topic,
        topic,
        handle,
        workers=1,
        max_records=7,
        observer=Watch(),
        settings={"session.timeout.ms": 2_000, "max.poll.interval.ms": 2_000},
    )
    most = 0
    with consumer:
        wait_for(lambda: consumer.stats().in_flight == 7)
        wait_for(lambda: len(consumer.stats().paused) == PARTITIONS, "a pause of all")

        def all_done() -> bool:
            nonlocal most
            most = max(most, consumer.stats().in_flight)
            return done([consumer], 200, notes)

        wait_for(all_done, "all records")
        assert not lost
        assert not consumer.stats().paused
    assert most == 7
    assert len(notes.handled) == 200


def test_partitions_lost_while_they_are_paused_come_back_and_nothing_is_committed_in_between(
    bootstrap, topic
):
    """Heartbeats that come later than the session lasts: the member is thrown out again and again."""
    fill(bootstrap, topic, 200)
    slow_once = threading.Event()
    notes = Notes()
    lost: list[dict[int, int]] = []

    class Watch(Observer):
        def lost(self, partitions: Sequence[TopicPartition]) -> None:
            lost.append(committed(bootstrap, topic, topic))

    def handle(record: Record) -> None:
        if not slow_once.is_set():
            slow_once.set()
            wait_for(lambda: bool(lost))
            return  # its partition has gone: this does not count
        notes(record)

    consumer = ParallelConsumer(
        bootstrap,
        topic,
        topic,
        handle,
        workers=1,
        max_records=7,
        observer=Watch(),
        settings={"session.timeout.ms": 1_000, "heartbeat.interval.ms": 1_500},
    )
    with consumer:
        wait_for(lambda: bool(lost))
        wait_for(lambda: done([consumer], 200, notes), "all records after the loss")
        assert consumer.stats().dropped >= 1
    assert lost[0] == dict.fromkeys(range(PARTITIONS), 0)
    check_order_and_loss(notes.handled, ends(bootstrap, topic))


def test_a_poison_record_becomes_a_dead_letter_with_its_error(bootstrap, topic):
    fill(bootstrap, topic, 50, partitions=1)
    notes = Notes()

    def handle(record: Record) -> None:
        if record.value == b"30":
            raise ValueError("thirty")
        notes(record)

    letters = f"{topic}-dlq"
    with ParallelConsumer(
        bootstrap, topic, topic, handle, retries=2, backoff_ms=10, dead_letter=letters
    ) as consumer:
        wait_for(lambda: consumer.stats().finished == 50)
        assert consumer.stats().dead_lettered == 1
        assert consumer.stats().retried == 2
    assert committed(bootstrap, topic, topic, 1) == {0: 50}
    partitions = [part.index for part in Admin(bootstrap).describe_topic(letters).partitions]
    stops = Admin(bootstrap).offsets(letters, partitions, "latest")
    reader = topic_reader(bootstrap, letters, dict.fromkeys(partitions, 0), stops)
    (letter,) = list(reader)
    reader.close()
    assert (letter.key, letter.value) == (f"k{30 % KEYS}".encode(), b"30")
    headers = dict(letter.headers)
    assert headers["headrace.topic"] == topic.encode()
    assert (headers["headrace.partition"], headers["headrace.offset"]) == (b"0", b"30")
    assert (headers["headrace.attempts"], headers["headrace.error"]) == (b"3", b"ValueError: thirty")


def test_a_record_that_cannot_be_handled_stops_all_behind_what_is_done(bootstrap, topic):
    fill(bootstrap, topic, 50, partitions=1)

    def handle(record: Record) -> None:
        if record.offset == 30:
            raise ValueError("thirty")

    consumer = ParallelConsumer(bootstrap, topic, topic, handle, retries=1, backoff_ms=10, order="partition")
    with pytest.raises(RecordFailed, match=r"offset 30 failed 2 times: ValueError: thirty"):
        consumer.run()
    assert committed(bootstrap, topic, topic, 1) == {0: 30}


def test_work_that_outlasts_a_revocation_is_cancelled_and_done_by_the_next_owner(bootstrap, topic):
    fill(bootstrap, topic, 1, partitions=1)
    told = threading.Event()

    def hang(_: Record) -> None:
        poll(cancelled, timeout_s=WAIT_S)
        told.set()

    notes = Notes()
    first = ParallelConsumer(bootstrap, topic, topic, hang, drain_ms=300)
    with first:
        wait_for(lambda: first.stats().running == 1)
        first.stop()
        assert first.wait(WAIT_S)
    assert told.wait(WAIT_S)
    assert committed(bootstrap, topic, topic, 1) == {0: 0}
    with ParallelConsumer(bootstrap, topic, topic, notes) as second:
        wait_for(lambda: done([second], 1, notes))
    assert committed(bootstrap, topic, topic, 1) == {0: 1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_without_partitions_leaves_at_once_too(bootstrap, topic, protocol):
    """librdkafka alone would leave it to the end of its session, and the others would wait for that."""
    fill(bootstrap, topic, 10, partitions=1)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def members() -> int:
        return len(admin.describe_consumer_groups([topic])[topic].result(WAIT_S).members)

    first, second = (ParallelConsumer(bootstrap, topic, topic, Notes(), protocol=protocol) for _ in range(2))
    with first:
        wait_for(lambda: members() == 1)
        with second:
            wait_for(lambda: members() == 2)
            wait_for(lambda: len(first.stats().partitions + second.stats().partitions) == 1)
            idle, busy = (second, first) if first.stats().partitions else (first, second)
            left_at = time.monotonic()
            idle.stop()
            assert idle.wait(WAIT_S)
            wait_for(lambda: members() == 1, "the end of its membership")
            assert time.monotonic() - left_at < 10
            wait_for(lambda: busy.stats().partitions == (TopicPartition(topic, 0),))


def test_a_static_member_that_restarts_finds_its_partitions_without_a_rebalance(bootstrap, topic):
    fill(bootstrap, topic, 10)
    notes = Notes()

    def member(name: str) -> ParallelConsumer:
        settings = {"group.instance.id": name, "heartbeat.interval.ms": 200}
        return ParallelConsumer(bootstrap, topic, topic, notes, observer=notes, settings=settings)

    with member("a") as stays:
        with member("b") as leaves:
            wait_for(lambda: len(stays.stats().partitions) == len(leaves.stats().partitions) == 2)
            held = leaves.stats().partitions
        revoked = len(notes.revocations)
        five_heartbeats_s = 1
        check_stays(
            lambda: len(stays.stats().partitions) == 2,
            "a rebalance: the partitions do not wait for their owner",
            seconds=five_heartbeats_s,
        )
        with member("b") as back:
            wait_for(lambda: back.stats().partitions == held)
            assert len(notes.revocations) == revoked


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_a_killed_node_that_comes_back_finds_the_members_again(start_node, topic, protocol):
    node = start_node(QUICK_GROUPS)
    fill(node.bootstrap, topic, 1_000)
    notes = Notes(pause_s=0.004)
    members = [
        ParallelConsumer(node.bootstrap, topic, topic, notes, protocol=protocol, commit_interval_ms=100)
        for _ in range(2)
    ]
    with members[0], members[1]:
        wait_for(lambda: len(notes.handled) > 200)
        node.kill()
        node.restart()
        wait_for(lambda: done(members, 1_000, notes), "all records after the restart")
    check_order_and_loss(notes.handled, ends(node.bootstrap, topic))
    assert committed(node.bootstrap, topic, topic) == ends(node.bootstrap, topic)


# -- programs ----------------------------------------------------------------------------------------------


class Program:
    """parallel_worker.py as a process, and what it has noted."""

    def __init__(self, bootstrap: str, topic: str, notes: Path, pause_ms: float, executor: str = "threads"):
        self._notes = notes
        arguments = [bootstrap, topic, topic, str(notes), str(pause_ms), executor]
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stderr=subprocess.PIPE, text=True
        )

    def handled(self) -> list[tuple[int, int, str]]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        fields = [line.split() for line in lines]
        return [(int(partition), int(offset), key) for partition, offset, key in fields]

    def end(self, number: int) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=WAIT_S)[1]


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_killed_member_loses_and_reorders_nothing(bootstrap, topic, tmp_path, executor):
    records = 600
    fill(bootstrap, topic, records)
    first = Program(bootstrap, topic, tmp_path / "first", 5, executor)
    wait_for(lambda: len(first.handled()) > 150)
    workers = psutil.Process(first.process.pid).children(recursive=True)
    first.end(signal.SIGKILL)
    _, left = psutil.wait_procs(workers, WAIT_S)
    assert not left, "worker processes notice that their parent has gone"
    of_first = first.handled()
    assert len(of_first) < records
    positions = committed(bootstrap, topic, topic)
    finished = {item[:2] for item in of_first}
    assert {(index, offset) for index, end in positions.items() for offset in range(end)} <= finished
    second = Program(bootstrap, topic, tmp_path / "second", 0, executor)
    end_offsets = ends(bootstrap, topic)
    wait_for(lambda: committed(bootstrap, topic, topic) == end_offsets, "the second member")
    assert second.end(signal.SIGTERM) == ""
    assert second.process.returncode == 0
    check_order_and_loss(of_first + second.handled(), end_offsets)
    begun_at = {
        index: min((offset for part, offset, _ in second.handled() if part == index), default=end)
        for index, end in end_offsets.items()
    }
    assert begun_at == positions, "it went on exactly where the first had committed"


def test_a_terminated_member_commits_what_it_has_handled(bootstrap, topic, tmp_path):
    fill(bootstrap, topic, 400)
    first = Program(bootstrap, topic, tmp_path / "first", 10)
    wait_for(lambda: len(first.handled()) > 40)
    assert first.end(signal.SIGTERM) == ""
    assert first.process.returncode == 0
    notes = Notes()
    with ParallelConsumer(bootstrap, topic, topic, notes) as second:
        wait_for(lambda: second.stats().at_end and bool(second.stats().finished))
    everything = [
        *first.handled(),
        *((part, offset, (key or b"").decode()) for part, offset, key in notes.handled),
    ]
    check_order_and_loss(everything, ends(bootstrap, topic))
    again = len(everything) - 400
    assert again <= KEYS, "only what had overtaken an unfinished record is handled twice"
