# SPDX-License-Identifier: Apache-2.0
"""Audit records on kafka-python: a logging handler writes them to a topic, a reader stores them in SQLite.

    logging.getLogger("audit").addHandler(AuditHandler("127.0.0.1:9092"))
    AuditReader("127.0.0.1:9092", database).store_new()

The handler never stops the program: records that cannot be sent wait in a bounded buffer and are sent again
with later ones. The reader keeps its offset in the transaction of the rows, so each record is stored once.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import BrokerResponseError, KafkaError

_TABLES = """
CREATE TABLE IF NOT EXISTS audit (position INTEGER PRIMARY KEY, line TEXT);
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY CHECK (one = 1), next_position INTEGER);
INSERT OR IGNORE INTO progress VALUES (1, 0);
"""


class AuditHandler(logging.Handler):
    def __init__(
        self, bootstrap: str, *, topic: str = "audit", most_waiting: int = 10_000, **settings: Any
    ) -> None:
        super().__init__()
        self._topic = topic
        given = {"bootstrap_servers": bootstrap, "client_id": "audit", "max_block_ms": 1000, **settings}
        self._new_producer = partial(KafkaProducer, acks="all", enable_idempotence=True, **given)
        self._producer = self._new_producer()
        self._refused = False
        self._most_waiting = most_waiting
        self._waiting: deque[bytes] = deque()
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._wait_in_line(self.format(record).encode())
        self._send()

    def flush(self) -> None:
        """Sends what waits; what fails again stays for the next time."""
        self._send()
        with suppress(KafkaError):  # `_failed` has put them back
            self._producer.flush(timeout=10)

    def close(self) -> None:
        self.flush()
        self._producer.close(timeout=10)
        super().close()

    def _send(self) -> None:
        if self._refused:  # an idempotent producer sends nothing after that
            self._producer.close(timeout=0)
            self._producer = self._new_producer()
            self._refused = False
        for _ in range(len(self._waiting)):
            line = self._waiting.popleft()
            try:
                self._producer.send(self._topic, line).add_errback(self._failed, line)
            except KafkaError:  # there is no broker, or no room
                self._waiting.appendleft(line)
                return

    def _failed(self, line: bytes, error: BaseException) -> None:
        self._wait_in_line(line)
        self._refused = self._refused or isinstance(error, BrokerResponseError)

    def _wait_in_line(self, line: bytes) -> None:
        if len(self._waiting) == self._most_waiting:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(line)


class AuditReader:
    def __init__(
        self, bootstrap: str, database: sqlite3.Connection, *, topic: str = "audit", **settings: Any
    ) -> None:
        self._database = database
        database.executescript(_TABLES)
        self._partition = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id="audit-reader",
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # retention was quicker than this reader
            **settings,
        )
        self._consumer.assign([self._partition])
        (begin,) = database.execute("SELECT next_position FROM progress").fetchone()
        self._consumer.seek(self._partition, begin)

    def store_new(self, timeout_s: float = 1.0) -> int:
        """Stores what came since the last call; the number of records."""
        batches = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        records = batches.get(self._partition, [])
        if records:
            with self._database:
                rows = [(record.offset, record.value.decode(errors="replace")) for record in records]
                self._database.executemany("INSERT INTO audit VALUES (?, ?)", rows)
                self._database.execute("UPDATE progress SET next_position = ?", (records[-1].offset + 1,))
        return len(records)

    def close(self) -> None:
        self._consumer.close()
