# SPDX-License-Identifier: Apache-2.0
"""A producer that sends at a fixed rate whatever happens, and the latency of each acknowledged record.

An open loop: while writes are slow, it goes on sending, so that slow times count as they do for users.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from statistics import quantiles

from confluent_kafka import KafkaError, Message, Producer

_FLUSH_S = 60.0
_PERCENTILES = 100


class PacedWriter:
    """Writes to the partitions of a topic in turn with acks=all. Use as a context manager."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        pause_s: float = 0.005,
        value_bytes: int = 100,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        self.acknowledged: list[tuple[float, float]] = []
        """(sent, acknowledged) by time.monotonic()."""
        self.values: set[bytes] = set()
        """Those that were acknowledged."""
        self.failed = 0
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._padding = b"." * value_bytes
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**settings, **(options or {})})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> PacedWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self.failed += self._producer.flush(_FLUSH_S)

    def latencies_ms(self, since: float, until: float | None = None) -> list[float]:
        """Of the records sent from one moment of time.monotonic() to another."""
        end = time.monotonic() if until is None else until
        return [(ended - sent) * 1000 for sent, ended in self.acknowledged[:] if since <= sent < end]

    def recent_p99_ms(self, seconds: float) -> float:
        """Of the records sent within the last seconds; infinite when there are too few to tell."""
        return percentile_ms(self.latencies_ms(time.monotonic() - seconds), 99)

    def _run(self) -> None:
        started = time.monotonic()
        for number in count():
            if self._stopping.is_set():
                return
            value = b"%d " % number + self._padding
            self._producer.produce(
                self._topic,
                value,
                partition=number % self._partitions,
                on_delivery=self._note(value, time.monotonic()),
            )
            due = started + (number + 1) * self._pause_s
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
            self._producer.poll(0)

    def _note(self, value: bytes, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append((sent, time.monotonic()))
                self.values.add(value)
            else:
                self.failed += 1

        return note


def percentile_ms(latencies: list[float], percent: int) -> float:
    if len(latencies) < _PERCENTILES:
        return float("inf")
    return quantiles(latencies, n=_PERCENTILES)[percent - 1]
