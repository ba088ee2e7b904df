# SPDX-License-Identifier: Apache-2.0
"""A transactional outbox: SQLite stores an order and its event in one transaction; a relay sends events.

    shop = Shop(database)
    shop.sell("o-1", 12.5)
    Relay(database, "127.0.0.1:9092").relay_waiting()

No event is lost and their order is kept. After a crash between sending and marking, events are sent again
with the same id; `Inbox` shows how a consumer recognises them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

_TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, amount REAL);
CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, key TEXT, value TEXT, sent INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS inbox (id INTEGER PRIMARY KEY);
"""
_SETTINGS = {"client.id": "outbox-relay", "enable.idempotence": True, "delivery.timeout.ms": 10_000}
_MOST_AT_ONCE = 500


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.executescript(_TABLES)
    return database


class Shop:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def sell(self, order: str, amount: float) -> None:
        with self._database:  # both rows or none
            self._database.execute("INSERT INTO orders VALUES (?, ?)", (order, amount))
            event = json.dumps({"order": order, "amount": amount})
            self._database.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", (order, event))


class Relay:
    def __init__(
        self,
        database: sqlite3.Connection,
        bootstrap: str,
        *,
        topic: str = "sales",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._topic = topic
        self._settings = {"bootstrap.servers": bootstrap, **_SETTINGS, **(settings or {})}
        self._producer = Producer(self._settings)

    def relay_waiting(self) -> int:
        """Sends the oldest events that wait and marks those the broker has confirmed; how many these are.

        Call it every second: what fails now is sent by the next call.
        """
        waiting = self._database.execute(
            "SELECT number, key, value FROM outbox WHERE NOT sent ORDER BY number LIMIT ?", (_MOST_AT_ONCE,)
        ).fetchall()
        confirmed: dict[int, bool] = {}
        for number, key, value in waiting:
            self._producer.produce(
                self._topic,
                key=key,
                value=value,
                headers={"id": str(number)},
                on_delivery=partial(_note, confirmed, number),
            )
        self._wait()
        # What was stored after an event that failed is sent again, too: this keeps the order of events.
        sent = list(takewhile(confirmed.get, (number for number, _, _ in waiting)))
        self._mark(sent)
        return len(sent)

    def _wait(self) -> None:
        """Until every event is confirmed or has failed, which `delivery.timeout.ms` bounds."""
        while len(self._producer):
            try:
                self._producer.poll(0.1)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self._producer = Producer(self._settings)  # the next call uses a new one

    def _mark(self, numbers: Iterable[int]) -> None:
        with self._database:
            self._database.executemany(
                "UPDATE outbox SET sent = 1 WHERE number = ?", [(number,) for number in numbers]
            )


def _note(confirmed: dict[int, bool], number: int, error: KafkaError | None, _: Message) -> None:
    confirmed[number] = error is None


class Inbox:
    """Of a consumer: remembers the ids of events in the transaction in which it handles them."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def is_new(self, headers: Iterable[tuple[str, bytes | None]]) -> bool:
        number = int(dict(headers)["id"] or b"")
        added = self._database.execute("INSERT OR IGNORE INTO inbox VALUES (?)", (number,))
        return added.rowcount == 1
