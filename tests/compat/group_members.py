# SPDX-License-Identifier: Apache-2.0
"""Members of a group in threads of the test: they poll, take their time, and commit."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer

from tests.harness.waiting import poll

_PATIENCE_S = 30


class Members:
    """Some confluent-kafka consumers that share a topic, named worker; leave when the block ends."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        count: int = 1,
        *,
        protocol: str = "classic",
        pause_s: float = 0.0,
        commit_every_ms: int = 200,
    ) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "worker",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": commit_every_ms,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self._topic = topic
        self._pause_s = pause_s
        self._end = threading.Event()
        self._assigned: dict[int, Sequence[Any]] = {}
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self) -> Members:
        for thread in self._threads:
            thread.start()
        if not poll(self._all_assigned, timeout_s=_PATIENCE_S):
            self.__exit__(None, None, None)
            raise AssertionError(f"not everybody was assigned a partition: {self._assigned}")
        return self

    def _all_assigned(self) -> bool:
        return len(self._assigned) == len(self._threads) and all(self._assigned.values())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def _run(self, number: int) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._end.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._end.wait(self._pause_s)
            self._assigned[number] = consumer.assignment()
        consumer.close()
