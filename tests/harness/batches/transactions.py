# SPDX-License-Identifier: Apache-2.0
"""Transactions in a log, and a model that knows them from nothing but its batches.

The model folds the whole log at each question: no state, no snapshots, no indexes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log.producers.markers import EndTransactionMarker, build_marker, read_marker
from headrace.wire.batch import BatchHeader, split_batches
from tests.harness.batches.log_tools import NOW_MS, Batches, Producer, read_batches


def marker(
    producer_id: int, *, commits: bool, epoch: int = 0, coordinator_epoch: int = 1, timestamp: int = NOW_MS
) -> tuple[memoryview, Batches]:
    """A control batch as PartitionLog.append takes it."""
    made = build_marker(
        EndTransactionMarker(commits=commits, coordinator_epoch=coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=timestamp,
    )
    view = memoryview(made)
    return view, split_batches(view, 0, len(view), max_batch_bytes=None, producer=False)


class TransactionalProducer(Producer):
    """Appends straight to a log, as a leader does once all checks are made."""

    def send(self, log: PartitionLog, *values: bytes, leader_epoch: int = 0, **fields: Any) -> int:
        view, batches = self.batch(*(values or (b"value",)), is_transactional=True, **fields)
        return log.append(view, batches, leader_epoch)

    def end(self, log: PartitionLog, *, commits: bool, leader_epoch: int = 0) -> int:
        return log.append(*marker(self.producer_id, commits=commits, epoch=self.epoch), leader_epoch)

    def commit(self, log: PartitionLog) -> int:
        return self.end(log, commits=True)

    def abort(self, log: PartitionLog) -> int:
        return self.end(log, commits=False)


class Transaction(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int | None
    """None while it is open."""
    commits: bool
    batches: tuple[int, ...]
    """Base offsets."""


def transactions_of(log: PartitionLog) -> list[Transaction]:
    """By a fold of all batches of the log."""
    open_: dict[int, list[int]] = {}
    found: list[Transaction] = []
    for header, data in read_batches(log):
        if header.producer_id < 0:
            continue
        if not header.is_control:
            if header.is_transactional:
                open_.setdefault(header.producer_id, []).append(header.base_offset)
            continue
        end = read_marker(memoryview(data))
        batches = open_.pop(header.producer_id, None) if end is not None else None
        if end is not None and batches:
            found.append(_ended(header, end.commits, batches))
    undecided = [
        Transaction(producer_id, batches[0], None, False, tuple(batches))
        for producer_id, batches in open_.items()
    ]
    return found + undecided


def _ended(header: BatchHeader, commits: bool, batches: list[int]) -> Transaction:
    return Transaction(header.producer_id, batches[0], header.base_offset, commits, tuple(batches))


def stable_offset(log: PartitionLog, high_watermark: int) -> int:
    """The last stable offset by its definition."""
    unstable = [
        each.first_offset
        for each in transactions_of(log)
        if each.marker_offset is None or each.marker_offset >= high_watermark
    ]
    return min(high_watermark, max(log.log_start_offset, min(unstable, default=high_watermark)))


def aborted_batches(log: PartitionLog) -> set[tuple[int, int]]:
    """(producer id, base offset) of every batch that a reader must not return, by the fold."""
    return {
        (each.producer_id, base)
        for each in transactions_of(log)
        if each.marker_offset is not None and not each.commits
        for base in each.batches
    }


def filtered_batches(log: PartitionLog, start_offset: int, end_offset: int) -> set[tuple[int, int]]:
    """The same for a range, as a consumer finds them: by aborted transactions and markers that it reads."""
    pending = sorted(log.aborted_transactions(start_offset, end_offset), key=lambda each: each.first_offset)
    active: set[int] = set()
    found = set()
    for header, data in read_batches(log, start_offset, limit=end_offset):
        while pending and pending[0].first_offset <= header.last_offset:
            active.add(pending.pop(0).producer_id)
        end = read_marker(memoryview(data)) if header.is_control else None
        if end is not None and not end.commits:
            active.discard(header.producer_id)
        if header.is_transactional and not header.is_control and header.producer_id in active:
            found.add((header.producer_id, header.base_offset))
    return found
