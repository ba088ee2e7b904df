"""Records of a partition as plain Python values. Read next: broker.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.broker.partition.partition import Partition
from headrace.wire.batch import read_header
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


def stored_records(partition: Partition) -> list[Record]:
    """All records below the high watermark, also those of aborted transactions."""
    found: list[Record] = []
    offset, end = partition.log_start_offset, partition.high_watermark
    while offset < end:
        piece = partition.log.read(offset, _CHUNK_BYTES, end, at_least_one=True)
        if piece is None:
            break
        try:
            found += _records_from(offset, memoryview(piece.bytes()), partition)
            offset = piece.next_offset
        finally:
            piece.release()
    return found


def _records_from(offset: int, batches: memoryview, partition: Partition) -> Iterator[Record]:
    topic, index = partition.topic_partition
    while batches:
        header = read_header(batches, 0)
        batch, batches = batches[: header.size], batches[header.size :]
        for record in () if header.is_control else iter_records(batch):
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
