# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from payment_worker import PaymentWorker, Unavailable

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


class Bank:
    """Fails as often as it is told, and counts a payment once."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.charged: dict[str, float] = {}
        self.calls: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def charge(self, payment: str, amount: float) -> None:
        self.calls.append(payment)
        self.meanwhile()
        if self.failures:
            self.failures -= 1
            raise Unavailable("the bank is closed")
        self.charged[payment] = amount


@contextmanager
def working(broker: Broker, bank: Bank, *values: bytes) -> Iterator[PaymentWorker]:
    for topic in ("payments", "payments.dead"):
        broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("payments", value)
    assert producer.flush(10) == 0
    worker = PaymentWorker(broker.bootstrap, bank.charge, pause_s=0.01, settings=QUICK)
    try:
        yield worker
    finally:
        worker.close()


def payment(name: str, amount: float = 5.0) -> bytes:
    return json.dumps({"id": name, "amount": amount}).encode()


def step(worker: PaymentWorker, times: int = 1) -> None:
    """Handles so many payments. A step may end without one while the group finds together."""
    for _ in range(100):
        times -= worker.step(0.1)
        if times == 0:
            return
    raise AssertionError(f"{times} payments did not come")


def committed(broker: Broker) -> int | None:
    return broker.offsets("payment-worker").get(("payments", 0))


def test_payments_are_charged_and_committed(kafka: Broker) -> None:
    bank = Bank()
    with working(kafka, bank, payment("p-1"), payment("p-2", 7.5)) as worker:
        step(worker, 2)
        assert bank.charged == {"p-1": 5.0, "p-2": 7.5}
        assert committed(kafka) == 2


def test_a_bank_that_is_closed_is_asked_again(kafka: Broker) -> None:
    bank = Bank(failures=2)
    with working(kafka, bank, payment("p-1")) as worker:
        step(worker)
    assert bank.calls == ["p-1"] * 3
    assert committed(kafka) == 1
    assert kafka.records("payments.dead") == []


def test_a_payment_that_keeps_failing_becomes_a_dead_letter(kafka: Broker) -> None:
    bank = Bank(failures=3)
    with working(kafka, bank, payment("p-1"), payment("p-2")) as worker:
        step(worker, 2)
    (letter,) = kafka.records("payments.dead")
    assert letter.value == payment("p-1")
    assert dict(letter.headers) == {
        "error": b"Unavailable: the bank is closed",
        "source": b"payments/0/0",
    }
    assert bank.charged == {"p-2": 5.0}
    assert committed(kafka) == 2


def test_what_cannot_be_read_becomes_a_dead_letter(kafka: Broker) -> None:
    with working(kafka, Bank(), b"no JSON", b'{"amount": 1}') as worker:
        step(worker, 2)
    assert [letter.value for letter in kafka.records("payments.dead")] == [b"no JSON", b'{"amount": 1}']
    assert committed(kafka) == 2


def test_a_payment_is_kept_while_its_dead_letter_is_refused(kafka: Broker) -> None:
    with working(kafka, Bank(), b"no JSON") as worker:
        kafka.fail(api="Produce", client="payment-worker", error="INVALID_RECORD")
        step(worker)
        assert committed(kafka) is None
        step(worker)
    assert len(kafka.records("payments.dead")) == 1
    assert committed(kafka) == 1


def test_a_commit_that_fails_for_a_moment_is_repeated(kafka: Broker) -> None:
    with working(kafka, Bank(), payment("p-1")) as worker:
        kafka.fail(api="OffsetCommit", client="payment-worker", error="COORDINATOR_LOAD_IN_PROGRESS")
        step(worker)
        assert committed(kafka) == 1
        assert len(kafka.requests(api="OffsetCommit", client="payment-worker")) == 2


def test_a_payment_whose_worker_was_expelled_is_delivered_again(kafka: Broker) -> None:
    bank = Bank()
    with working(kafka, bank, payment("p-1")) as worker:
        bank.meanwhile = lambda: kafka.advance("1m", expire="payment-worker")
        step(worker)
        assert committed(kafka) is None
        bank.meanwhile = lambda: None
        step(worker)
        assert committed(kafka) == 1
    assert bank.calls == ["p-1", "p-1"]
    assert bank.charged == {"p-1": 5.0}


def test_a_broker_that_crashes_meanwhile_is_waited_for(kafka: Broker) -> None:
    bank = Bank()

    def crash() -> None:
        kafka.crash()
        kafka.restart()

    with working(kafka, bank, payment("p-1"), payment("p-2")) as worker:
        bank.meanwhile = crash
        step(worker)
        bank.meanwhile = lambda: None
        step(worker)
        while committed(kafka) != 2:
            step(worker)
    assert bank.charged == {"p-1": 5.0, "p-2": 5.0}


def test_a_lost_fetch_is_repeated(kafka: Broker) -> None:
    bank = Bank()
    with working(kafka, bank, payment("p-1")) as worker:
        kafka.fail(api="Fetch", client="payment-worker", error="NOT_LEADER_OR_FOLLOWER")
        kafka.fail(api="Fetch", client="payment-worker", disconnect="after")
        step(worker)
    assert bank.charged == {"p-1": 5.0}
