# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from ledger import Ledger, MustRestart

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
ENTRIES = ["ann -5", "bob +5"]
PASSING = [
    ("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("AddPartitionsToTxn", "CONCURRENT_TRANSACTIONS"),
    ("AddOffsetsToTxn", "COORDINATOR_NOT_AVAILABLE"),
    ("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("EndTxn", "NOT_COORDINATOR"),
]


def nothing() -> None: ...


class Conversion:
    """From JSON to entries; `meanwhile` happens once in the middle of a transaction."""

    def __init__(self, meanwhile: Callable[[], None] = nothing) -> None:
        self.meanwhile = meanwhile

    def __call__(self, value: bytes) -> list[tuple[str, str]]:
        transfer = json.loads(value)
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        return [(transfer["from"], f"-{transfer['amount']}"), (transfer["to"], f"+{transfer['amount']}")]


@contextmanager
def running(broker: Broker, meanwhile: Callable[[], None] = nothing) -> Iterator[Ledger]:
    ledger = Ledger(broker.bootstrap, Conversion(meanwhile), settings=QUICK)
    try:
        yield ledger
    finally:
        ledger.close()


@pytest.fixture
def broker(kafka: Broker) -> Broker:
    """With one transfer."""
    for topic in ("transfers", "transfers.dead", "entries"):
        kafka.create_topic(topic)
    transfer(kafka, json.dumps({"from": "ann", "to": "bob", "amount": 5}))
    return kafka


def transfer(broker: Broker, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("transfers", value)
    assert producer.flush(10) == 0


def work(ledger: Ledger) -> None:
    """Until a transaction is committed."""
    assert any(ledger.step(0.1) for _ in range(100))


def committed(broker: Broker, topic: str = "entries") -> list[str]:
    """What a reader of committed records sees."""
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "reader"}
    reading = {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    seen: list[str] = []
    with Consumer(settings | reading) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(10)) is not None:
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return seen
            seen.append(f"{(message.key() or b'').decode()} {(message.value() or b'').decode()}")
    raise AssertionError(f"the end of {topic} was not reached")


def position(broker: Broker) -> int | None:
    return broker.offsets("ledger").get(("transfers", 0))


def test_entries_and_offsets_are_committed_together(broker: Broker) -> None:
    with running(broker) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_errors_that_pass_are_retried(broker: Broker) -> None:
    for api, error in PASSING:
        broker.fail(api=api, client="ledger", error=error)
    with running(broker) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    for api, _ in PASSING:
        assert len(broker.requests(api=api, client="ledger")) > 1


def test_a_lost_reply_to_the_commit_commits_once(broker: Broker) -> None:
    broker.fail(api="EndTxn", client="ledger", disconnect="after")
    with running(broker) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_a_refused_entry_aborts_the_transaction_and_the_transfer_is_read_again(broker: Broker) -> None:
    broker.fail(api="Produce", client="ledger", error="INVALID_RECORD")
    with running(broker) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1
    assert len(broker.requests(api="EndTxn", client="ledger")) > 1, "an abort comes before the commit"


def test_an_expelled_member_aborts_and_joins_again(broker: Broker) -> None:
    with running(broker, lambda: broker.advance("59s", expire="ledger")) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_a_transaction_that_takes_too_long_is_begun_again(broker: Broker) -> None:
    with running(broker, lambda: broker.advance("2m")) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_a_second_instance_fences_the_first(broker: Broker) -> None:
    second = []

    def start_second() -> None:
        second.append(Ledger(broker.bootstrap, Conversion(), settings=QUICK))

    with running(broker, start_second) as first, pytest.raises(MustRestart):
        work(first)
    work(second[0])
    second[0].close()
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_a_commit_without_a_reply_is_settled_by_the_next_process(broker: Broker) -> None:
    broker.fail(api="EndTxn", client="ledger", drop=True)
    ledger = Ledger(broker.bootstrap, Conversion(), timeout_s=0.3, settings=QUICK)
    with closing(ledger), pytest.raises(MustRestart):
        work(ledger)
    with running(broker) as ledger:
        assert ledger.step(0.2) == 0
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_what_a_killed_process_left_open_is_aborted(broker: Broker) -> None:
    class Killed(Exception):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed), running(broker, die) as ledger:
        work(ledger)
    with running(broker) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES


def test_a_broker_that_crashes_in_a_transaction_is_waited_for(broker: Broker) -> None:
    def crash() -> None:
        broker.crash()
        broker.restart()

    with running(broker, crash) as ledger:
        work(ledger)
    assert committed(broker) == ENTRIES
    assert position(broker) == 1


def test_what_is_no_transfer_becomes_a_dead_letter_in_the_same_transaction(broker: Broker) -> None:
    transfer(broker, "no JSON")
    with running(broker) as ledger:
        while position(broker) != 2:
            work(ledger)
    assert committed(broker) == ENTRIES
    assert committed(broker, "transfers.dead") == [" no JSON"]
