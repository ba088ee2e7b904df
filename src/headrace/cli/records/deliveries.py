# SPDX-License-Identifier: Apache-2.0
"""Delivery reports of `headrace produce`: a line per record, in the order of the input, and totals (D6)."""

from __future__ import annotations

import threading
import time
from typing import Any

from headrace.cli.errors import OutputClosed
from headrace.cli.output import Output, json_bytes, text_of
from headrace.client.tools.producer import Delivery

_FAILURES_SHOWN = 10


class Deliveries:
    """`add` is called from the producer's thread or while sending, `finish` afterwards from the main thread.

    Partitions complete in any order: a report waits until those of all earlier records have come.
    """

    def __init__(self, output: Output, topic: str, *, verbose: bool) -> None:
        self._output = output
        self._topic = topic
        self._verbose = verbose
        self._started = time.monotonic()
        self._output_closed = False
        self._lock = threading.Lock()
        self._early: dict[int, Delivery] = {}
        """Reports that wait for an earlier one, by the number of the record."""
        self._next = 0
        self._created = False
        self.delivered = 0
        self.failed = 0

    def topic_created(self, partitions: int) -> None:
        """The broker created the topic because this command named it."""
        self._created = True
        if not self._output.as_json:
            many = "" if partitions == 1 else "s"
            self._output.note(f"Created topic '{self._topic}' with {partitions} partition{many}.")

    def add(self, delivery: Delivery) -> None:
        with self._lock:
            self._early[delivery.number] = delivery
            while (due := self._early.pop(self._next, None)) is not None:
                self._next += 1
                self._report(due)

    def finish(self, unknown: int) -> None:
        """`unknown` records had no delivery report at the timeout."""
        for number in sorted(self._early):
            self._report(self._early[number])
        self.failed += unknown
        if self._output_closed:
            return
        seconds = time.monotonic() - self._started
        if self._output.as_json:
            summary: dict[str, Any] = {"event": "summary"} if self._verbose else {}
            summary |= {"topic": self._topic, "created": self._created}
            summary |= {"sent": self.delivered, "failed": self.failed}
            summary["seconds"] = round(seconds, 3)
            (self._output.json_line if self._verbose else self._output.document)(summary)
            return
        records = f"{self.delivered:,} record{'' if self.delivered == 1 else 's'}"
        unconfirmed = f", {unknown:,} of them unconfirmed" if unknown else ""
        self._output.note(
            f"Sent {records} to '{self._topic}' in {seconds:.1f} s; {self.failed:,} failed{unconfirmed}."
        )

    def _report(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failed += 1
            self._print_failure(delivery)
            return
        self.delivered += 1
        if self._verbose and not self._output_closed:
            try:
                self._print_delivery(delivery)
                self._output.flush()
            except OutputClosed:
                self._output_closed = True  # an exception would be lost in the producer's thread

    def _print_delivery(self, delivery: Delivery) -> None:
        key = None if delivery.key is None else text_of(delivery.key)
        if self._output.as_json:
            event = {"event": "delivered", "record": delivery.number + 1, "key": json_bytes(delivery.key)}
            self._output.json_line({**event, "partition": delivery.partition, "offset": delivery.offset})
        elif self._output.terminal:
            offset = "unknown (acks=0)" if delivery.offset is None else str(delivery.offset)
            place = str(delivery.partition)
            parts = [("partition ", "dim"), (place, "cyan"), ("  offset ", "dim"), (offset, "green")]
            if key is not None:
                parts += [("  key ", "dim"), (key, "yellow")]
            self._output.styled(*parts)
        else:
            self._output.row(delivery.partition, delivery.offset, key)

    def _print_failure(self, delivery: Delivery) -> None:
        if self._output.as_json and self._verbose:
            event = {"event": "failed", "record": delivery.number + 1, "key": json_bytes(delivery.key)}
            self._output.json_line({**event, "error": str(delivery.error)})
        elif self.failed <= _FAILURES_SHOWN:
            self._output.note(f"record {delivery.number + 1} failed: {delivery.error}")
        elif self.failed == _FAILURES_SHOWN + 1:
            self._output.note("further failures are only counted")
