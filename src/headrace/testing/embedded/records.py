# SPDX-License-Identifier: Apache-2.0
"""Records of a partition as plain Python values. Read next: broker.py."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.broker.partition.partition import Partition
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.records import iter_records

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    def __str__(self) -> str:
        headers = f" headers={list(self.headers)}" if self.headers else ""
        return f"{self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r}{headers}"


def stored_records(partition: Partition, *, committed: bool) -> list[Record]:
    """All records below the high watermark. `committed`: without those of transactions not committed."""
    found: list[Record] = []
    end = partition.last_stable_offset if committed else partition.high_watermark
    offset = partition.log_start_offset
    aborted = partition.log.aborted_transactions(offset, end) if committed else ()
    while offset < end:
        piece = partition.log.read(offset, _CHUNK_BYTES, end, at_least_one=True)
        if piece is None:
            break
        try:
            found += _records_from(offset, memoryview(piece.bytes()), partition, aborted)
            offset = piece.next_offset
        finally:
            piece.release()
    return found


def _records_from(
    offset: int, batches: memoryview, partition: Partition, aborted: Collection[AbortedTransaction]
) -> Iterator[Record]:
    topic, index = partition.topic_partition
    while batches:
        header = read_header(batches, 0)
        batch, batches = batches[: header.size], batches[header.size :]
        if header.is_control or any(_belongs(header, each) for each in aborted):
            continue
        for record in iter_records(batch):
            if record.offset >= offset:
                yield Record(
                    topic=topic,
                    partition=index,
                    offset=record.offset,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )


def _belongs(batch: BatchHeader, transaction: AbortedTransaction) -> bool:
    return (
        batch.is_transactional
        and batch.producer_id == transaction.producer_id
        and transaction.first_offset <= batch.base_offset < transaction.last_offset
    )
