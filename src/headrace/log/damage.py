# SPDX-License-Identifier: Apache-2.0
"""Damage in the segments of a stopped node: finds what cannot be read, and makes the rest readable.

`find_damage` reads one segment with a fault batch by batch and finds where sound batches begin again.
`isolate` writes the segment anew: an empty batch stands for what is damaged, so that offsets stay, and the
old file is kept beside it. Read next: scrub.py (which finds the segments), cli/log/repair.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.log.checkpoints import damaged_name
from headrace.log.epochs import UNDEFINED, EpochEntry, epoch_at
from headrace.log.leftovers import unlink_if_there
from headrace.log.segments.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_stem
from headrace.log.segments.index import LARGEST_RELATIVE_OFFSET
from headrace.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_ok, read_header
from headrace.wire.records import build_batch
from headrace.world import File, Files, write_all

_WINDOW_BYTES = 1 << 20
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
_NO_TIMESTAMP = -1


class SoundBatch(NamedTuple):
    position: int
    header: BatchHeader
    leader_epoch: int
    """As the epoch history has it: the CRC of a batch does not cover its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes between sound batches, and the offsets that they should hold."""

    position: int
    size: int
    first_offset: int
    last_offset: int
    leader_epoch: int
    """Of the history, or of the batch before it: epochs do not fall within a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDamage:
    path: Path
    base_offset: int
    parts: tuple[SoundBatch | Gap, ...]
    """In the order of the file; a gap without offsets is left out."""

    @property
    def gaps(self) -> list[Gap]:
        return [part for part in self.parts if isinstance(part, Gap)]

    @property
    def wrong_epochs(self) -> int:
        """Batches with another leader epoch than the history's; everything else in them is sound."""
        return sum(
            isinstance(part, SoundBatch) and part.header.leader_epoch != part.leader_epoch
            for part in self.parts
        )


def find_damage(
    files: Files,
    directory: Path,
    base_offset: int,
    epochs: tuple[EpochEntry, ...],
    *,
    end_offset: int | None,
    known_end: int,
) -> SegmentDamage:
    """`end_offset`: where the next segment begins; None for the last one.

    `known_end`: the last one holds batches up to here; damage behind it was never flushed, and the node's
    next start removes it.
    """
    path = directory / (file_stem(base_offset) + LOG_SUFFIX)
    file = files.open(path, "read")
    try:
        limit = base_offset + LARGEST_RELATIVE_OFFSET + 1 if end_offset is None else end_offset
        search = _Search(file, epochs, limit)
        parts = list(_parts(search, base_offset, known_end if end_offset is None else end_offset))
    finally:
        file.close()
    return SegmentDamage(path=path, base_offset=base_offset, parts=tuple(parts))


def _parts(search: _Search, base_offset: int, end_offset: int) -> Iterator[SoundBatch | Gap]:
    position, expected, epoch = 0, base_offset, 0
    while position < search.size or expected < end_offset:
        batch = search.batch_at(position, expected)
        if batch is None:
            batch = search.next_batch(position, expected)
            stop = search.size if batch is None else batch.position
            following = end_offset if batch is None else batch.header.base_offset
            if following > expected:
                yield Gap(
                    position=position,
                    size=stop - position,
                    first_offset=expected,
                    last_offset=following - 1,
                    leader_epoch=max(search.epoch_at(expected), epoch),
                )
            if batch is None:
                return
        yield batch
        position, expected = batch.position + batch.header.size, batch.header.next_offset
        epoch = batch.leader_epoch


class _Search:
    """Finds sound batches in one file, all below `limit`."""

    def __init__(self, file: File, epochs: tuple[EpochEntry, ...], limit: int) -> None:
        self._file = file
        self.size = file.size()
        self._epochs = epochs
        self._limit = limit

    def epoch_at(self, offset: int) -> int:
        return epoch_at(self._epochs, offset)

    def batch_at(self, position: int, expected: int) -> SoundBatch | None:
        header = self._read(position)
        if (
            header is None
            or header.base_offset < expected
            or header.next_offset > self._limit
            or (header.base_offset > expected and self._has_moved(header, position, expected))
        ):
            return None
        known = self.epoch_at(header.base_offset)
        return SoundBatch(position, header, header.leader_epoch if known == UNDEFINED else known)

    def _read(self, position: int) -> BatchHeader | None:
        return header_at(self._file, position, self.size)

    def _has_moved(self, header: BatchHeader, position: int, expected: int) -> bool:
        """Whether its offset is the wrong one: the next batch begins before this one would end."""
        following = self._read(position + header.size)
        return following is not None and expected <= following.base_offset < header.next_offset

    def next_batch(self, position: int, expected: int) -> SoundBatch | None:
        """Where the damaged batch seems to end, or else at any byte behind its beginning."""
        (length,) = struct.unpack(">i", self._file.pread(4, position + 8).ljust(4, b"\0"))
        follower = self.batch_at(position + LOG_OVERHEAD + length, expected) if length > 0 else None
        if follower is not None:
            return follower
        candidates = (self.batch_at(place, expected) for place in self._candidates(position + 1, expected))
        return next((batch for batch in candidates if batch is not None), None)

    def _candidates(self, position: int, expected: int) -> Iterator[int]:
        """Places where the high half of an offset and the magic byte are right."""
        halves = {offset >> 32 for offset in (expected, self._limit - 1)}
        starts = b"|".join(re.escape(half.to_bytes(4, "big")) for half in sorted(halves))
        pattern = re.compile(b"(?=(?:" + starts + b").{12}" + re.escape(bytes((MAGIC,))) + b")", re.DOTALL)
        while position < self.size:
            window = self._file.pread(_WINDOW_BYTES + HEADER_SIZE, position)
            for match in pattern.finditer(window):
                if match.start() < _WINDOW_BYTES:
                    yield position + match.start()
            position += _WINDOW_BYTES


def header_at(file: File, position: int, size: int) -> BatchHeader | None:
    """The header, where the CRC is right; it covers neither the offset nor the leader epoch."""
    head = file.pread(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = read_header(head)
    if (
        header.magic != MAGIC
        or not HEADER_SIZE <= header.size <= size - position
        or header.last_offset_delta < 0
    ):
        return None
    data = file.pread(header.size, position)
    return header if crc_ok(memoryview(data), 0, header.size) else None


def isolate(files: Files, damage: SegmentDamage) -> Path:
    """Puts an empty batch in the place of every gap; returns where the damaged file is kept.

    The sparse indexes are removed, and built again by the node; the transaction index speaks of offsets,
    which stay.
    """
    directory = damage.path.parent
    source = files.open(damage.path, "read")
    repaired = damage.path.with_name(damage.path.name + ".tmp")
    try:
        _write_repaired(files, repaired, source, damage)
    finally:
        source.close()
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        unlink_if_there(files, directory / (file_stem(damage.base_offset) + suffix))
    kept = _keep_copy(files, damage.path)
    files.rename(repaired, damage.path)
    files.sync_directory(directory)
    return kept


def _write_repaired(files: Files, path: Path, source: File, damage: SegmentDamage) -> None:
    target = files.open(path, "create")
    try:
        target.truncate(0)
        position, timestamp = 0, _first_timestamp(damage)
        for part in damage.parts:
            if isinstance(part, Gap):
                data = _empty_batch(part, timestamp)
            else:
                data = bytearray(source.pread(part.header.size, part.position))
                _EPOCH.pack_into(data, _EPOCH_AT, part.leader_epoch)
                timestamp = max(timestamp, part.header.max_timestamp)
            write_all(target, data, position)
            position += len(data)
        target.fsync()
    finally:
        target.close()


def _keep_copy(files: Files, path: Path) -> Path:
    """A copy and not a rename: at no time is the log without the segment."""
    copy = path.with_name(path.name + ".copy.tmp")
    source, target = files.open(path, "read"), files.open(copy, "create")
    try:
        target.truncate(0)
        for position in range(0, source.size(), _WINDOW_BYTES):
            write_all(target, source.pread(_WINDOW_BYTES, position), position)
        target.fsync()
    finally:
        source.close()
        target.close()
    kept = damaged_name(files, path)
    files.rename(copy, kept)
    files.sync_directory(path.parent)
    return kept


def _first_timestamp(damage: SegmentDamage) -> int:
    stamps = (part.header.max_timestamp for part in damage.parts if isinstance(part, SoundBatch))
    return next(stamps, _NO_TIMESTAMP)


def _empty_batch(gap: Gap, timestamp: int) -> bytearray:
    return build_batch(
        [],
        base_offset=gap.first_offset,
        leader_epoch=gap.leader_epoch,
        last_offset_delta=gap.last_offset - gap.first_offset,
        max_timestamp=timestamp,
    )
