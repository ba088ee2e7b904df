# SPDX-License-Identifier: Apache-2.0
"""Results of a write: counts and offsets by partition, and errors with row numbers. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode


@dataclass(slots=True)
class PartitionDelivery:
    """Offsets are -1 when the broker answered that the batch is a duplicate."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class Delivered:
    """Acknowledged rows by partition."""

    topic: str
    partitions: dict[int, PartitionDelivery] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions.values())

    def add(self, partition: int, records: int, base_offset: int) -> None:
        entry = self.partitions.setdefault(partition, PartitionDelivery())
        entry.records += records
        if base_offset >= 0:
            entry.first_offset = (
                base_offset if entry.first_offset < 0 else min(entry.first_offset, base_offset)
            )
            entry.last_offset = max(entry.last_offset, base_offset + records - 1)


class Refusal:
    """A broker's error for one batch."""

    def __init__(self, partition: int, rows: Sequence[int], code: ErrorCode, entry: Any) -> None:
        named = [int(each.batch_index) for each in getattr(entry, "record_errors", None) or ()]
        self.partition = partition
        self.rows = [int(rows[place]) for place in named if 0 <= place < len(rows)] or [
            int(row) for row in rows
        ]
        self.code = code
        self.message = getattr(entry, "error_message", None) or code.name

    def as_problem(self) -> ClientError:
        return ClientError(
            f"partition {self.partition} refused {rows_text(self.rows)}: {self.message}",
            code=self.code.name.upper(),
        )


class WriteFailed(ClientError):
    """Some rows were not written: `rows` are their numbers in the input; `delivered` is what was."""

    rows: Sequence[int]
    delivered: Delivered

    def __init__(self, refusal: Refusal, delivered: Delivered) -> None:
        super().__init__(refusal.as_problem().what, code=refusal.code.name.upper())
        self.rows = refusal.rows
        self.delivered = delivered

    @classmethod
    def gave_up(
        cls, partition: int, rows: Sequence[int], why: ClientError, delivered: Delivered
    ) -> WriteFailed:
        """Whether these rows are in the log is not known."""
        error = cls.__new__(cls)
        ClientError.__init__(
            error,
            f"{rows_text(rows)} for partition {partition} of {delivered.topic!r} are not acknowledged: "
            f"{why.what}",
            next_step=why.next_step,
            code=why.code,
        )
        error.rows = rows
        error.delivered = delivered
        return error


def rows_text(rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    return f"{len(rows)} rows ({min(rows)} to {max(rows)})"
