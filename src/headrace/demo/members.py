# SPDX-License-Identifier: Apache-2.0
"""Consumers that are members of a group, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Place

QUIET = {"log_level": 0}
"""Hides librdkafka's own log lines."""
SETTINGS: dict[str, Any] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "earliest",
    "heartbeat.interval.ms": 200,
    "topic.metadata.refresh.interval.ms": 300,
    **QUIET,
}
_LEAVE_S = 20


class Member:
    """One consumer of a group; remembers what it was assigned and what it received."""

    def __init__(self, bootstrap: str, *, group: str, topics: Sequence[str], name: str) -> None:
        self.name = name
        self.owned: set[tuple[str, int]] = set()
        self.received: list[tuple[str, int, int, bytes]] = []
        """Topic, partition, offset and value."""
        self._leaving = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name, **SETTINGS}
        self._consumer = Consumer(settings)
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        while not self._leaving.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.received.append(_noted(message))
        self._consumer.close()

    def _assigned(self, _: Consumer, places: list[Place]) -> None:
        self.owned = self.owned | {(place.topic, place.partition) for place in places}

    def _revoked(self, _: Consumer, places: list[Place]) -> None:
        self.owned = self.owned - {(place.topic, place.partition) for place in places}


def _noted(message: Message) -> tuple[str, int, int, bytes]:
    return message.topic() or "", message.partition() or 0, message.offset() or 0, message.value() or b""
