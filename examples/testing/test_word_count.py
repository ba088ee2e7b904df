# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from word_count import WordCount

from headrace.testing import Broker

QUICK = {
    "fetch.error.backoff.ms": 10,
    "fetch.wait.max.ms": 50,
    "heartbeat.interval.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}


@pytest.fixture
def broker(kafka: Broker) -> Broker:
    kafka.create_topic("lines", partitions=2)
    kafka.create_topic("words", partitions=2)
    kafka.create_topic("counts", partitions=2, cleanup_policy="compact")
    write(kafka, "to be or not to be", "to do")
    return kafka


def write(broker: Broker, *lines: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, line in enumerate(lines):
        producer.produce("lines", line, partition=number % 2)
    assert producer.flush(10) == 0


@contextmanager
def running(broker: Broker) -> Iterator[WordCount]:
    worker = WordCount(broker.bootstrap, QUICK)
    try:
        yield worker
    finally:
        worker.close()


def work(condition: Callable[[], bool], *workers: WordCount) -> None:
    for _ in range(200):
        for worker in workers:
            worker.step(0.05)
        if condition():
            return
    raise AssertionError("it did not come to this")


def counts(broker: Broker) -> dict[str, int]:
    return {
        (record.key or b"").decode(): json.loads(record.value or b"")["count"]
        for record in broker.records("counts")
    }


def done(broker: Broker) -> Callable[[], bool]:
    """Whether everything that is there is committed."""

    def all_committed() -> bool:
        stored = len(broker.records("lines")) + len(broker.records("words"))
        return sum(broker.offsets("word-count").values()) == stored > 0

    return all_committed


COUNTS = {"to": 3, "be": 2, "or": 1, "not": 1, "do": 1}


def test_words_are_counted(broker: Broker) -> None:
    with running(broker) as worker:
        work(done(broker), worker)
    assert counts(broker) == COUNTS


def test_a_new_process_restores_its_state(broker: Broker) -> None:
    with running(broker) as worker:
        work(done(broker), worker)
    write(broker, "to be")
    with running(broker) as worker:
        work(done(broker), worker)
    assert counts(broker) == {**COUNTS, "to": 4, "be": 3}


def test_words_whose_commit_failed_are_not_counted_twice(broker: Broker) -> None:
    broker.fail(api="OffsetCommit", client="word-count", times=2, error="GROUP_AUTHORIZATION_FAILED")
    with running(broker) as worker:
        work(done(broker), worker)
    assert counts(broker) == COUNTS


def test_a_count_that_is_refused_is_counted_again(broker: Broker) -> None:
    broker.fail(api="Produce", client="word-count", times=3, error="INVALID_RECORD")
    with running(broker) as worker:
        work(done(broker), worker)
    assert counts(broker) == COUNTS


def test_an_expelled_worker_restores_what_was_stored(broker: Broker) -> None:
    with running(broker) as worker:
        work(lambda: len(broker.records("words")) > 0, worker)
        broker.advance("1m", expire="word-count")
        work(done(broker), worker)
    assert counts(broker) == COUNTS


def test_a_second_worker_takes_a_share_with_its_state(broker: Broker) -> None:
    with running(broker) as first:
        work(done(broker), first)
        with running(broker) as second:
            work(lambda: len(broker.requests(api="SyncGroup", client="word-count")) >= 3, first, second)
            write(broker, "to be", "or not")
            work(done(broker), first, second)
        assert counts(broker) == {"to": 4, "be": 3, "or": 2, "not": 2, "do": 1}
        write(broker, "to be")
        work(done(broker), first)
    assert counts(broker) == {"to": 5, "be": 4, "or": 2, "not": 2, "do": 1}


def test_a_crashed_broker_is_waited_for(broker: Broker) -> None:
    with running(broker) as worker:
        work(lambda: len(broker.records("words")) > 0, worker)
        broker.crash()
        broker.restart()
        work(done(broker), worker)
    assert counts(broker) == COUNTS
