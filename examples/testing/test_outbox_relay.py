# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from outbox_relay import Inbox, Relay, Shop, open_database

from headrace.testing import Broker

QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "log_level": 0,
}


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(open_database(":memory:")) as opened:
        shop = Shop(opened)
        for number in (1, 2, 3):
            shop.sell(f"o-{number}", 5.0 * number)
        yield opened


def relay_to(broker: Broker, database: sqlite3.Connection, **settings: Any) -> Relay:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Relay(database, broker.bootstrap, settings=QUICK | named)


def sales(broker: Broker) -> list[str]:
    return [json.loads(record.value or b"")["order"] for record in broker.records("sales")]


def test_events_are_relayed_once_and_in_order(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("sales")
    relay = relay_to(kafka, database)
    assert relay.relay_waiting() == 3
    assert relay.relay_waiting() == 0
    assert sales(kafka) == ["o-1", "o-2", "o-3"]


def test_an_order_that_fails_leaves_no_event(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        Shop(database).sell("o-1", 1.0)
    assert database.execute("SELECT count(*) FROM outbox").fetchone() == (3,)


def test_a_lost_reply_makes_no_duplicate(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("sales")
    kafka.fail(api="Produce", client="outbox-relay", disconnect="after")
    assert relay_to(kafka, database).relay_waiting() == 3
    assert sales(kafka) == ["o-1", "o-2", "o-3"]


def test_events_wait_while_the_broker_is_down(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("sales")
    kafka.crash()
    relay = relay_to(kafka, database, delivery_timeout_ms=200, linger_ms=0)
    assert relay.relay_waiting() == 0
    kafka.restart()
    assert any(relay.relay_waiting() for _ in range(50))
    assert sales(kafka) == ["o-1", "o-2", "o-3"]


def test_a_refused_event_is_sent_again_before_later_ones(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("sales")
    relay = relay_to(kafka, database, batch_num_messages=1)
    kafka.fail(api="Produce", client="outbox-relay", error="INVALID_RECORD")
    assert relay.relay_waiting() == 0
    assert relay.relay_waiting() == 3
    assert sales(kafka)[-3:] == ["o-1", "o-2", "o-3"]


def test_a_fatal_error_replaces_the_producer(kafka: Broker, database: sqlite3.Connection) -> None:
    kafka.create_topic("sales")
    relay = relay_to(kafka, database)
    kafka.fail(api="Produce", client="outbox-relay", error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    assert relay.relay_waiting() == 0
    assert relay.relay_waiting() == 3
    assert sales(kafka) == ["o-1", "o-2", "o-3"]


def test_a_relay_that_died_before_marking_sends_duplicates_that_consumers_recognise(
    kafka: Broker, database: sqlite3.Connection
) -> None:
    kafka.create_topic("sales")
    relay_to(kafka, database).relay_waiting()
    with database:
        database.execute("UPDATE outbox SET sent = 0 WHERE number > 1")  # what the next process finds
    assert relay_to(kafka, database).relay_waiting() == 2
    assert sales(kafka) == ["o-1", "o-2", "o-3", "o-2", "o-3"]
    inbox = Inbox(database)
    handled = [
        json.loads(record.value or b"") for record in kafka.records("sales") if inbox.is_new(record.headers)
    ]
    assert [event["order"] for event in handled] == ["o-1", "o-2", "o-3"]
