# SPDX-License-Identifier: Apache-2.0
"""Compaction of one log: keeps the last record of each key with its offset, removes older ones (R29, R29b).

`compact` is a pure function of its plan for the worker process: it reads segments and writes `.cleaned` files
beside them. Putting those in place is the owner's: swap.py. Rules: KIP-534 and Kafka's Cleaner.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from headrace.errors import CorruptLogError, DecodeError
from headrace.log.compaction.plan import (
    CleanedGroup,
    CompactionPlan,
    CompactionResult,
    SourceSegment,
)
from headrace.log.compaction.transactions import AbortedBatches, FoundTransactions, SnapshotTransactions
from headrace.log.leftovers import CLEANED_SUFFIX, unlink_segment, write_swap_journal
from headrace.log.producers.markers import read_marker
from headrace.log.producers.state import NO_OFFSET
from headrace.log.segments.batch_walk import corrupt
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.index import LARGEST_RELATIVE_OFFSET, TIME_ENTRY_BYTES
from headrace.log.segments.scan import Visit, scan
from headrace.log.segments.segment import NEVER_MS, NotedBatch, Segment
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.record_keys import RecordKey, read_keys
from headrace.wire.records import Record, build_batch, read_records

__all__ = ["CompactionPlan", "CompactionResult", "compact"]

_DESCRIPTORS = 8
_WRITE_BYTES = 1 << 20
_LONGEST_EXACT_KEY = 32
_DIGEST_BYTES = _LONGEST_EXACT_KEY + 1
_BYTES_PER_KEY = 160
"""A key and its offset in a dict, as measured, besides the key's own bytes."""


def compact(plan: CompactionPlan) -> CompactionResult:
    """Writes the cleaned segments. Raises CorruptLogError, OSError; nothing of it is left then."""
    try:
        return _Compaction(plan).run()
    except (CorruptLogError, OSError):
        for source in plan.segments:
            unlink_segment(plan.files, plan.directory, source.base_offset, CLEANED_SUFFIX)
        raise


class KeyMap:
    """Key -> last offset, within bounds. Long keys are kept as digests of a length no short key has."""

    def __init__(self, limit_bytes: int) -> None:
        self._room = limit_bytes
        self._offsets: dict[bytes, int] = {}

    @property
    def full(self) -> bool:
        return self._room <= 0

    def put(self, key: bytes, offset: int) -> None:
        if len(key) > _LONGEST_EXACT_KEY:
            key = _digest(key)
        if key not in self._offsets:
            self._room -= _BYTES_PER_KEY + len(key)
        self._offsets[key] = offset

    def last_offset(self, key: bytes) -> int:
        if len(key) > _LONGEST_EXACT_KEY:
            key = _digest(key)
        return self._offsets.get(key, NO_OFFSET)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class _Compaction:
    def __init__(self, plan: CompactionPlan) -> None:
        self._plan = plan
        self._pool = DescriptorPool(plan.files, _DESCRIPTORS)
        self._keys = KeyMap(plan.key_map_bytes)
        self._mapped_to = plan.first_dirty_offset
        self._last_of_producers: dict[int, int] = {}
        """Producer id -> where its last batch with records in the dirty part ends."""
        self._last_markers: dict[int, int] = {}
        """Producer id -> where its last marker in the dirty part is."""
        self._aborted = AbortedBatches(plan.aborted)
        self._found = FoundTransactions()
        self._snapshots = SnapshotTransactions(plan.files, plan.directory, plan.snapshot_offsets)
        self._full = False
        self._next_horizon_ms = NEVER_MS
        self._records_read = 0
        self._records_kept = 0

    def run(self) -> CompactionResult:
        self._map_keys()
        sources = [source for source in self._plan.segments if source.base_offset < self._mapped_to]
        groups = []
        bytes_written = 0
        for group in _groups(sources, self._plan):
            cleaned = self._clean(group)
            if cleaned is not None:
                groups.append(cleaned)
                bytes_written += cleaned.size
        if groups:
            bases = [group.source_base_offsets[0] for group in groups]
            write_swap_journal(self._plan.files, self._plan.directory, bases)
        return CompactionResult(
            groups=tuple(groups),
            first_dirty_offset=self._mapped_to,
            next_horizon_ms=self._next_horizon_ms,
            records_read=self._records_read,
            records_kept=self._records_kept,
            bytes_read=sum(source.size for source in sources),
            bytes_written=bytes_written,
        )

    # First pass: the last offset of each key in the dirty part

    def _map_keys(self) -> None:
        for source in self._plan.segments:
            if source.end_offset > self._plan.first_dirty_offset:
                self._read(source, self._map_batch)
                if self._full:
                    return
                self._mapped_to = source.end_offset

    def _map_batch(self, fields: tuple[int, ...], batch: memoryview) -> None:
        header = tuple.__new__(BatchHeader, fields)
        if header.last_offset < self._plan.first_dirty_offset:
            return
        if self._full or self._keys.full:
            self._full = True  # the next compaction continues here
            return
        if not header.is_control and self._aborted.transaction_of(header) is None:
            for offset, key, _ in _keys_or_none(batch) or ():
                if key is not None:
                    self._keys.put(key, offset)
        self._mapped_to = header.next_offset
        if header.producer_id >= 0:
            last = self._last_markers if header.is_control else self._last_of_producers
            last[header.producer_id] = header.last_offset

    # Second pass: copy what stays

    def _clean(self, group: Sequence[SourceSegment]) -> CleanedGroup | None:
        plan = self._plan
        base_offset = group[0].base_offset
        interval = plan.config.index_interval_bytes
        unlink_segment(plan.files, plan.directory, base_offset, CLEANED_SUFFIX)
        target = _Target(
            Segment(plan.files, self._pool, plan.directory, base_offset, interval, CLEANED_SUFFIX)
        )
        last_batch_end = group[-1].end_offset
        for source in group:
            self._read(source, lambda fields, batch: self._filter(fields, batch, target, last_batch_end))
        if len(group) == 1 and not target.changed:
            target.abandon()
            unlink_segment(plan.files, plan.directory, base_offset, CLEANED_SUFFIX)
            return None
        target.finish()
        bases = tuple(source.base_offset for source in group)
        return CleanedGroup(bases, target.segment.size, last_batch_end)

    def _filter(self, fields: tuple[int, ...], batch: memoryview, target: _Target, group_end: int) -> None:
        header = tuple.__new__(BatchHeader, fields)
        if header.is_control:
            self._filter_marker(header, batch, target, group_end)
            return
        self._found.batch(header)
        aborted, keys = self._aborted.transaction_of(header), None
        if header.last_offset < self._mapped_to:
            keys = _keys_or_none(batch)
            if keys is None and aborted is not None:
                keys = [(header.base_offset, None, False)]
        if keys is None:
            self._records_read += header.record_count
            self._records_kept += header.record_count
            target.add(batch)
            return
        stays = [aborted is None and self._stays(record, header) for record in keys]
        self._records_read += len(keys)
        self._records_kept += sum(stays)
        if any(stays):
            tombstones = any(stay and key[2] for stay, key in zip(stays, keys, strict=True))
            self._put(header, batch, stays, target, tombstones=tombstones)
        elif not self._is_needed(header, group_end):
            target.changed = True
        elif keys:
            target.changed = True
            target.add(_emptied(header))
        else:
            target.add(batch)

    def _filter_marker(self, header: BatchHeader, batch: memoryview, target: _Target, group_end: int) -> None:
        """A marker goes once no batch of its transaction is left in the log and its delete horizon is past.

        Judged by the log as it is, not as this compaction leaves it: a crash may keep the marker's segment
        cleaned and that of the batches not.
        """
        self._records_read += header.record_count
        marker = read_marker(batch)
        has_batches = self._found.end(header, marker)
        if has_batches or (marker is None and header.record_count):
            entry = self._aborted.transaction_of(header)
            if entry is not None and entry.last_offset == header.base_offset:
                target.segment.note_aborted(entry)
        elif marker is not None and not header.has_delete_horizon:
            horizon = self._plan.now_ms + self._plan.config.delete_retention_ms
            self._next_horizon_ms = min(self._next_horizon_ms, horizon)
            target.changed = True
            batch = memoryview(_rebuilt(header, read_records(batch), horizon))
        elif marker is not None and self._plan.now_ms < header.base_timestamp:
            self._next_horizon_ms = min(self._next_horizon_ms, header.base_timestamp)
        elif marker is not None and self._snapshots.is_open_before(header.producer_id, header.base_offset):
            pass  # a restart from that snapshot would find no end of the transaction
        elif not self._is_needed(header, group_end):
            target.changed = True
            return
        elif marker is not None:
            target.changed = True
            target.add(_emptied(header))
            return
        self._records_kept += header.record_count
        target.add(batch)

    def _stays(self, record: RecordKey, header: BatchHeader) -> bool:
        offset, key, is_tombstone = record
        if key is None or offset < self._keys.last_offset(key):
            return False
        if not is_tombstone or not header.has_delete_horizon:
            return True
        return self._plan.now_ms < header.base_timestamp

    def _put(
        self, header: BatchHeader, batch: memoryview, stays: list[bool], target: _Target, *, tombstones: bool
    ) -> None:
        """A tombstone's time to live is written into its batch by the first compaction that meets it."""
        horizon = header.base_timestamp if header.has_delete_horizon else None
        all_kept = all(stays)
        if tombstones:
            if horizon is None:
                horizon = self._plan.now_ms + self._plan.config.delete_retention_ms
                all_kept = False
            self._next_horizon_ms = min(self._next_horizon_ms, horizon)
        if all_kept:
            target.add(batch)
        else:
            kept = [record for record, stay in zip(read_records(batch), stays, strict=True) if stay]
            target.changed = True
            target.add(_rebuilt(header, kept, horizon))

    def _is_needed(self, header: BatchHeader, group_end: int) -> bool:
        """An empty batch stays where it keeps a producer known, or the end of the segment in its place.

        A producer's last batch in the cleaned part stays even if the producer wrote more behind it: that
        may be truncated.
        """
        if header.next_offset == group_end:
            return True
        if header.is_control:
            return (
                self._plan.marker_epochs.get(header.producer_id) == header.producer_epoch
                or self._last_markers.get(header.producer_id) == header.last_offset
            ) and header.producer_id in self._plan.last_offsets
        last = self._plan.last_offsets.get(header.producer_id)
        if last is None:
            return False
        if last >= self._mapped_to:
            last = self._last_of_producers.get(header.producer_id, header.last_offset)
        return header.last_offset == last

    def _read(self, source: SourceSegment, visit: Visit) -> None:
        segment = Segment(self._plan.files, self._pool, self._plan.directory, source.base_offset, 0)
        try:
            end = scan(
                segment.pooled.get(),
                size=source.size,
                expected_offset=source.base_offset,
                visit=visit,
                visit_all=True,
            )
        finally:
            segment.pooled.retire()
        if end.fault is not None:
            raise corrupt(segment.pooled.path, end.position, end.next_offset, end.fault)


class _Target:
    """The segment that is being written, in large writes."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.changed = False
        self._buffer = bytearray()
        self._batches: list[NotedBatch] = []
        segment.create()

    def add(self, batch: memoryview | bytearray) -> None:
        header = read_header(batch)
        self._buffer += batch
        self._batches.append((len(batch), header.last_offset, header.max_timestamp))
        if len(self._buffer) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            self.segment.append((self._buffer,), len(self._buffer), self._batches)
        self._buffer = bytearray()
        self._batches = []

    def finish(self) -> None:
        """Durable, so that the swap needs only renames."""
        self._write()
        segment = self.segment
        segment.pooled.get().fsync()
        if not segment.save_indexes(durable=True):
            raise OSError(errno.ENOSPC, "no space left for the indexes of a cleaned segment")
        segment.pooled.retire()

    def abandon(self) -> None:
        self.segment.pooled.retire()


def _groups(sources: Sequence[SourceSegment], plan: CompactionPlan) -> Iterator[list[SourceSegment]]:
    """Neighbours that fit into one segment together, so that cleaned segments do not stay small."""
    config = plan.config
    indexable_bytes = config.segment_index_bytes // TIME_ENTRY_BYTES * config.index_interval_bytes
    most_bytes = min(config.segment_bytes, indexable_bytes)
    group: list[SourceSegment] = []
    for source in sources:
        size = sum(member.size for member in group) + source.size
        if group and (
            size > most_bytes or source.end_offset - group[0].base_offset > LARGEST_RELATIVE_OFFSET
        ):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _keys_or_none(batch: memoryview) -> list[RecordKey] | None:
    """None for a batch whose records cannot be read: its producer wrote it so, and it stays as it is."""
    try:
        return read_keys(batch)
    except DecodeError:
        return None


def _rebuilt(header: BatchHeader, kept: list[Record], horizon_ms: int | None) -> bytearray:
    """The same batch with fewer records: range, producer fields, epoch and codec unchanged."""
    return build_batch(
        kept,
        codec=header.codec,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        timestamp_type=header.timestamp_type,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        last_offset_delta=header.last_offset_delta,
        max_timestamp=header.max_timestamp if header.timestamp_type else None,
        delete_horizon_ms=horizon_ms,
    )


def _emptied(header: BatchHeader) -> bytearray:
    return build_batch(
        [],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        timestamp_type=header.timestamp_type,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        last_offset_delta=header.last_offset_delta,
        max_timestamp=header.max_timestamp,
    )
