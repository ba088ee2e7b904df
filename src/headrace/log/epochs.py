# SPDX-License-Identifier: Apache-2.0
"""Which leader epoch began at which offset: Kafka's `leader-epoch-checkpoint` of one partition.

A fold of the batches (each carries its epoch), and of the leader that has not written yet. Replicas find the
point where their logs part from it (R12, R13). Read next: partition_log.py.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from headrace.world import Files, read_file, replace_file

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = -1
_VERSION = 0


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


def epoch_at(entries: Sequence[EpochEntry], offset: int) -> int:
    slot = bisect_right(entries, offset, key=lambda entry: entry.start_offset) - 1
    return entries[slot].epoch if slot >= 0 else UNDEFINED


class EpochHistory:
    def __init__(self, files: Files, directory: Path, entries: Iterable[EpochEntry] = ()) -> None:
        self._files = files
        self._path = directory / FILE_NAME
        self._entries = list(entries)
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED
        """Read on every append."""
        self.dirty = False
        """In memory but not yet in the file."""
        self._taken = self._written = 0
        """How often its state was taken to be written; the newest of these that is in the file."""
        self._writing = Lock()

    @classmethod
    def load(cls, files: Files, directory: Path) -> EpochHistory | None:
        """None when the file is missing or cannot be what it should be: then fold it from the log."""
        try:
            entries = _decode(read_file(files, directory / FILE_NAME))
        except (FileNotFoundError, ValueError):
            return None
        return cls(files, directory, entries)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """The leader of `epoch` writes from `start_offset` on. In memory; `save` before it must survive."""
        if epoch <= self.latest:
            return
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, where it ended): the answer to OffsetForLeaderEpoch (KIP-279)."""
        entries = self._entries
        if epoch < 0 or not entries or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if following == 0:
            return epoch, entries[0].start_offset
        return entries[following - 1].epoch, entries[following].start_offset

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`, as far as the history reaches back."""
        return epoch_at(self._entries, offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Epochs that began at or after `end_offset` never were."""
        kept = bisect_left(self._entries, end_offset, key=lambda entry: entry.start_offset)
        if kept < len(self._entries):
            del self._entries[kept:]
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Offsets below `start_offset` are gone; the epoch that goes on across it now begins there."""
        earlier = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if earlier and self._entries[0].start_offset < start_offset:
            self._entries[:earlier] = [EpochEntry(self._entries[earlier - 1].epoch, start_offset)]
            self._changed()

    def clear(self) -> None:
        self._entries.clear()
        self._changed()

    def save(self) -> None:
        """Durable when it returns. Blocks for an fsync; needed once per leader epoch."""
        if self.dirty:
            self._taken += 1
            self._write(self._taken, _encode(self._entries), ".tmp")
            self.dirty = False

    def take_unsaved(self) -> Callable[[], None] | None:
        """Writes what `save` would, to be called on a thread; None when the file is up to date."""
        if not self.dirty:
            return None
        self.dirty = False
        self._taken += 1
        return partial(self._write_on_thread, self._taken, _encode(self._entries))

    def _write_on_thread(self, number: int, data: bytes) -> None:
        """On a full disk the next flush retries; until then the epochs can be read from the log itself."""
        try:
            self._write(number, data, ".flush.tmp")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.dirty = True

    def _write(self, number: int, data: bytes, suffix: str) -> None:
        """An outdated write is skipped: recovery trusts the file below the recovery point."""
        with self._writing:
            if number > self._written:
                replace_file(self._files, self._path, data, suffix=suffix)
                self._written = number

    def _changed(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED
        self.dirty = True


def _encode(entries: list[EpochEntry]) -> bytes:
    lines = [str(_VERSION), str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def _decode(data: bytes) -> list[EpochEntry]:
    lines = data.decode("ascii").split("\n")
    if lines[0] != str(_VERSION) or len(lines) < 2:
        raise ValueError(f"not a leader epoch checkpoint: {lines[0]!r}")
    count = int(lines[1])
    if len(lines) != count + 3 or lines[-1]:
        raise ValueError(f"{count} epochs announced, {len(lines) - 3} lines found")
    entries = []
    for line in lines[2:-1]:
        epoch, start_offset = line.split(" ")
        entries.append(EpochEntry(int(epoch), int(start_offset)))
    for earlier, later in pairwise(entries):
        if later.epoch <= earlier.epoch or later.start_offset < earlier.start_offset:
            raise ValueError(f"epoch {later.epoch} does not follow epoch {earlier.epoch}")
    if any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries):
        raise ValueError("an epoch or offset is negative")
    return entries
