# SPDX-License-Identifier: Apache-2.0
"""Tools for tests of headrace.log: batches in one line, a clock that stands still, a log read to its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.descriptors import DescriptorPool
from headrace.wire.batch import BatchHeader, split_batches
from headrace.wire.records import Record, build_batch, read_records
from headrace.world import Files

NOW_MS = 1_700_000_000_000
DIRECTORY = Path("/data/topic-0")
Batches = list[tuple[int, BatchHeader]]


class StillClock:
    """A Clock that moves only when told."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class Producer:
    """Numbers the batches of one producer id."""

    def __init__(self, producer_id: int, epoch: int = 0, sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence

    def batch(self, *values: bytes | None, **fields: Any) -> tuple[memoryview, Batches]:
        sequence = self.sequence
        self.sequence = (sequence + len(values)) % 2**31
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            **fields,
        )


def batch(
    *values: bytes | None, timestamp: int = NOW_MS, key: bytes | None = b"key", **fields: Any
) -> tuple[memoryview, Batches]:
    """One batch with these values as PartitionLog.append takes it; further fields as in build_batch."""
    records = [Record(delta, timestamp, key, value) for delta, value in enumerate(values)]
    return batch_of(records, **fields)


def batch_of(records: Sequence[Record], **fields: Any) -> tuple[memoryview, Batches]:
    view = memoryview(build_batch(records, **fields))
    return view, split_batches(view, 0, len(view), max_batch_bytes=None, producer=False)


def open_log(
    files: Files,
    config: LogConfig | None = None,
    *,
    clock: StillClock | None = None,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    descriptors: DescriptorPool | None = None,
    directory: Path = DIRECTORY,
    topic_id: UUID | None = None,
) -> PartitionLog:
    return PartitionLog.open(
        files,
        clock or StillClock(),
        directory,
        config or LogConfig(),
        descriptors=descriptors or DescriptorPool(files, 16),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        topic_id=topic_id,
    )


def flush(log: PartitionLog) -> None:
    begun = log.begin_flush()
    if begun is not None:
        try:
            begun.sync()
        finally:
            log.end_flush(begun)


def read_batches(
    log: PartitionLog, offset: int | None = None, *, max_bytes: int = 1 << 20, limit: int | None = None
) -> list[tuple[BatchHeader, bytes]]:
    """Every batch from `offset` to `limit`, by default all, in as many slices as it takes."""
    offset = log.log_start_offset if offset is None else offset
    limit = log.log_end_offset if limit is None else limit
    found: list[tuple[BatchHeader, bytes]] = []
    while (piece := log.read(offset, max_bytes, limit)) is not None:
        data = memoryview(piece.bytes())
        piece.release()
        for position, header in split_batches(data, 0, len(data), max_batch_bytes=None, producer=False):
            found.append((header, bytes(data[position : position + header.size])))
        offset = piece.next_offset
    return found


def read_all(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from the log start, or from `offset`, to the end."""
    first = log.log_start_offset if offset is None else offset
    batches = read_batches(log, offset, max_bytes=max_bytes)
    return [record for record in _records(batches) if record.offset >= first]


def _records(batches: Iterable[tuple[BatchHeader, bytes]]) -> list[Record]:
    return [record for _, data in batches for record in read_records(memoryview(data))]
