# SPDX-License-Identifier: Apache-2.0
"""The input of a copy: grows in every partition while copiers are at work, each record once and in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from confluent_kafka import Producer

from headrace.types import TopicPartition

_FLUSH_S = 120
_STEP_S = 0.05


class SourceWriter:
    """Use it as a context manager: it writes until the end of the block."""

    def __init__(
        self, bootstrap: str, places: Sequence[TopicPartition], *, per_second: int, lead: int
    ) -> None:
        """`lead`: how many records it is ahead of the copiers, at most; `copied` says where they are."""
        self.written = 0
        self._places = places
        self._lead = lead
        self._copied = 0
        self._per_step = max(int(per_second * _STEP_S), 1)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": _FLUSH_S * 1000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 5,
            }
        )
        self._failed: list[str] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source")

    def __enter__(self) -> SourceWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        assert self._producer.flush(_FLUSH_S) == 0, "the source could not be written"
        assert not self._failed, self._failed[:3]

    def copied(self, records: int) -> None:
        self._copied = records

    def _run(self) -> None:
        self._write(self._lead)
        while not self._closing.wait(_STEP_S):
            ahead = self.written - self._copied
            self._write(min(self._per_step, max(self._lead - ahead, 0)))

    def _write(self, count: int) -> None:
        for _ in range(count):
            place = self._places[self.written % len(self._places)]
            value = f"{place.partition}-{self.written // len(self._places)}"
            self._produce(place, value)
            self.written += 1
        self._producer.poll(0)

    def _produce(self, place: TopicPartition, value: str) -> None:
        while True:
            try:
                self._producer.produce(
                    place.topic, value, f"key {value}", partition=place.partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failed.append(str(error))
