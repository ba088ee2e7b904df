# SPDX-License-Identifier: Apache-2.0
"""The record passed to a handler, and the exceptions a handler may raise.

Any other exception of a handler means that the record is retried.
Read next: consumer.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.client.errors import ClientError
from headrace.client.tools.reader import ReadRecord
from headrace.types import TopicPartition

Order = Literal["key", "partition", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(ReadRecord):
    """One record of a topic. `attempt` is 1 at first and grows with each retry."""

    attempt: int = 1

    @property
    def size(self) -> int:
        """The bytes it holds in memory: key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class PoisonRecord(Exception):
    """Raised by a handler: do not retry this record (it becomes a dead letter)."""


class FatalError(Exception):
    """Raised by a handler: stop the consumer after it has committed finished records."""


class RecordFailed(ClientError):
    """A record could not be handled and there was no dead-letter topic for it; it is not committed."""

    def __init__(self, record: Record, error: BaseException) -> None:
        times = "once" if record.attempt == 1 else f"{record.attempt} times"
        super().__init__(
            f"{record} failed {times}: {error_text(error)}",
            next_step="fix the handler and start again, or set a dead-letter topic",
            code="RECORD_FAILED",
        )
        self.record = record


def error_text(error: BaseException) -> str:
    """The error as text; errors of a child process already contain their class."""
    name = type(error).__name__
    return str(error) if isinstance(error, RemoteError | ClientError) else f"{name}: {error}".rstrip(": ")


class RemoteError(Exception):
    """What a handler raised in a worker process: its class and text, as the original cannot always travel."""
