"""What became of the records that `headrace produce` sent: a line for each, and the sum (D6)."""

from __future__ import annotations

import time
from typing import Any

from headrace.cli.output import Output, ReaderGone
from headrace.client.producer import Delivery

_FAILURES_SHOWN = 10


class Deliveries:
    """`take` is called from the producer's thread; `finish` afterwards, from the main one."""

    def __init__(self, output: Output, topic: str, *, verbose: bool) -> None:
        self._output = output
        self._topic = topic
        self._verbose = verbose
        self._started = time.monotonic()
        self._reader_gone = False
        self.delivered = 0
        self.failed = 0

    def take(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self.failed += 1
            self._say_failure(delivery)
            return
        self.delivered += 1
        if self._verbose and not self._reader_gone:
            try:
                self._say_delivery(delivery)
                self._output.flush()
            except ReaderGone:
                self._reader_gone = True  # an exception would be lost in this thread

    def finish(self, unknown: int) -> None:
        """`unknown` records were still waiting for a report when we gave up."""
        self.failed += unknown
        if self._reader_gone:
            return
        seconds = time.monotonic() - self._started
        if self._output.as_json:
            summary: dict[str, Any] = {"event": "summary"} if self._verbose else {}
            summary |= {"topic": self._topic, "sent": self.delivered, "failed": self.failed}
            summary["seconds"] = round(seconds, 3)
            (self._output.json_line if self._verbose else self._output.document)(summary)
            return
        records = f"{self.delivered:,} record{'' if self.delivered == 1 else 's'}"
        unconfirmed = f", {unknown:,} of them without an answer" if unknown else ""
        self._output.note(
            f"Sent {records} to '{self._topic}' in {seconds:.1f} s; {self.failed:,} failed{unconfirmed}."
        )

    def _say_delivery(self, delivery: Delivery) -> None:
        if self._output.as_json:
            event = {"event": "delivered", "record": delivery.number + 1}
            self._output.json_line({**event, "partition": delivery.partition, "offset": delivery.offset})
        elif self._output.terminal:
            offset = "unknown (acks=0)" if delivery.offset is None else str(delivery.offset)
            place = str(delivery.partition)
            parts = (("partition ", "dim"), (place, "cyan"), ("  offset ", "dim"), (offset, "green"))
            self._output.styled(*parts)
        else:
            self._output.row(delivery.partition, delivery.offset)

    def _say_failure(self, delivery: Delivery) -> None:
        if self._output.as_json and self._verbose:
            event = {"event": "failed", "record": delivery.number + 1, "error": str(delivery.error)}
            self._output.json_line(event)
        elif self.failed <= _FAILURES_SHOWN:
            self._output.note(f"record {delivery.number + 1} failed: {delivery.error}")
        elif self.failed == _FAILURES_SHOWN + 1:
            self._output.note("further failures are only counted")
