# SPDX-License-Identifier: Apache-2.0
"""Commit messages from a sink's tasks to the driver: Spark delivers one from every successful task.

Plain data, pickled. Read next: task.py (creates them), publish.py (publishes them).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class InMessage:
    """Record batches for one partition, inside the message."""

    topic: str
    partition: int
    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InStaging:
    """Record batches in the staging topic: all batches in [`start`, `end`) of one of its partitions.

    `producer_id` identifies them: other batches found there are refused.
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
    """The task wrote its rows to the output topics itself: at least once."""

    records: int


@dataclass(frozen=True)
class Encoded(WriterCommitMessage):
    """The task's rows as record batches that the driver will publish. No output topic holds them yet."""

    records: int
    query: str | None
    """Id of the streaming query, if any."""
    runs: tuple[Run, ...]
