"""What a task of a sink tells the driver: Spark hands over one from every task that counts.

Plain data, pickled. Read next: sink_task.py (makes them), publish.py (makes them visible).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class InMessage:
    """Whole record batches for one partition, in the message itself."""

    topic: str
    partition: int
    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InStaging:
    """The same, kept in the staging topic: every batch from `start` to before `end` of one of its partitions.

    `producer_id` wrote all of them: what else may lie there after an accident is told apart by it.
    """

    topic: str
    partition: int
    staging_partition: int
    start: int
    end: int
    size: int
    producer_id: int


Run = InMessage | InStaging


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The task wrote its rows to their topics itself: at least once."""

    records: int


@dataclass(frozen=True)
class Encoded(WriterCommitMessage):
    """The task's rows as record batches, to be written by the driver. No topic holds any of them yet."""

    records: int
    query: str | None
    """The id of the streaming query that the task is part of."""
    runs: tuple[Run, ...]
