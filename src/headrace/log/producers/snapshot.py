# SPDX-License-Identifier: Apache-2.0
"""Producer state on disk: Kafka's `.snapshot` files, named after the offset up to which they are the fold.

Kafka writes one entry per producer, its last batch. We write one per remembered batch, oldest first: Kafka's
reader keeps the last of them, ours all, so that a duplicate is still known after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from headrace.log.producers.state import BATCH, NO_OFFSET, NO_SEQUENCE, ProducerEntry
from headrace.log.segments.files import file_stem, read_or_none, write_cache_file
from headrace.world import Files, read_file, replace_file

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_PREAMBLE = Struct(">hIi")  # version, CRC of all behind it, number of entries
_CRC_COVERS_FROM = 6
_PRODUCER = Struct(">qh")
_TRANSACTION = Struct(">iq")
_ENTRY = Struct(">qhiqiqiq")
_NO_BATCH = (NO_SEQUENCE, NO_OFFSET, 0)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    parts = []
    for entry in entries:
        head = _PRODUCER.pack(entry.producer_id, entry.epoch)
        tail = _TRANSACTION.pack(entry.coordinator_epoch, entry.transaction_start)
        history = entry.history or BATCH.pack(*_NO_BATCH, entry.last_timestamp)
        batches = [history[start : start + BATCH.size] for start in range(0, len(history), BATCH.size)]
        parts.append(head + (tail + head).join(batches) + tail)
    body = b"".join(parts)
    body = (len(body) // _ENTRY.size).to_bytes(4, "big") + body
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes) -> list[ProducerEntry] | None:
    """None when the bytes are not a sound snapshot: an older one, or the log itself, must do."""
    if len(data) < _PREAMBLE.size:
        return None
    version, crc, count = _PREAMBLE.unpack_from(data)
    if version != _VERSION or len(data) != _PREAMBLE.size + count * _ENTRY.size:
        return None
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        return None
    entries: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[_PREAMBLE.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = fields
        entry = entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = entries[producer_id] = ProducerEntry(producer_id, epoch)
        if last_offset >= 0:
            entry.add_batch(last_sequence, last_offset, delta, timestamp)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_start = start
    return list(entries.values())


class SnapshotFiles:
    """The snapshots of one partition. Caches: any may be missing or torn, and is rebuilt from the log."""

    def __init__(self, files: Files, directory: Path, offsets: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    @property
    def newest_offset(self) -> int:
        return self._offsets[-1] if self._offsets else NO_OFFSET

    def path(self, offset: int) -> Path:
        return self._directory / (file_stem(offset) + SNAPSHOT_SUFFIX)

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, durable: bool = False) -> Path:
        """Without fsync unless `durable`; a torn file is detected by its CRC."""
        path = self.path(offset)
        write = replace_file if durable else write_cache_file
        write(self._files, path, encode_snapshot(entries))
        if offset not in self._offsets:
            self._offsets.append(offset)
            self._offsets.sort()
        return path

    def make_durable(self, offset: int) -> None:
        """Blocks for the disk."""
        file = self._files.open(self.path(offset), "read")
        try:
            file.fsync()
        finally:
            file.close()
        self._files.sync_directory(self._directory)

    def read(self, offset: int) -> list[ProducerEntry] | None:
        """None when it is not sound, or gone."""
        data = read_or_none(self._files, self.path(offset))
        return None if data is None else decode_snapshot(data)

    def newest(self, *, at_most: int) -> tuple[int, list[ProducerEntry]] | None:
        """The newest sound snapshot up to that offset. Unsound and newer ones are removed."""
        while self._offsets:
            offset = self._offsets[-1]
            if offset <= at_most:
                entries = decode_snapshot(read_file(self._files, self.path(offset)))
                if entries is not None:
                    return offset, entries
            self._remove(offset)
        return None

    def at_or_below(self, offset: int) -> tuple[int, list[ProducerEntry]] | None:
        """The newest sound snapshot up to that offset. Changes nothing."""
        for known in reversed(self._offsets):
            if known <= offset:
                entries = self.read(known)
                if entries is not None:
                    return known, entries
        return None

    def mention_transactions(self) -> bool:
        """Whether any producer of any snapshot has begun or ended one."""
        return any(entry.has_transactions for offset in self._offsets for entry in self.read(offset) or ())

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Removes those that no segment begins with, except the newest (R28)."""
        kept = {*offsets, *self._offsets[-1:]}
        for offset in [offset for offset in self._offsets if offset not in kept]:
            self._remove(offset)

    def remove_above(self, offset: int) -> None:
        while self._offsets and self._offsets[-1] > offset:
            self._remove(self._offsets[-1])

    def _remove(self, offset: int) -> None:
        self._offsets.remove(offset)
        self._files.unlink(self.path(offset))
