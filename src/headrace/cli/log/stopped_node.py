# SPDX-License-Identifier: Apache-2.0
"""The logs of a node that does not run: finds damage in them and repairs it.

Read next: log/damage.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.errors import StorageError
from headrace.log.checkpoints import (
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    check_format,
    read_offset_checkpoint,
)
from headrace.log.damage import SegmentDamage, find_damage, isolate
from headrace.log.directory_names import partition_in
from headrace.log.epochs import EpochEntry, EpochHistory
from headrace.log.leftovers import offsets_of
from headrace.log.repair import marker
from headrace.log.scrub import Fault, SegmentCheck, check_segment
from headrace.log.segments.files import LOG_SUFFIX, file_stem
from headrace.realworld import RealFiles
from headrace.types import TopicPartition

_STEP_BYTES = 8 << 20
_ANY_OFFSET = 1 << 62
_FILES = RealFiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault, and what of its segment can be read nevertheless."""

    fault: Fault
    damage: SegmentDamage


class StoppedLog:
    """The log of one partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bases = offsets_of(_FILES.listdir(directory), LOG_SUFFIX)
        history = EpochHistory.load(_FILES, directory)
        self._epochs: tuple[EpochEntry, ...] = () if history is None else history.entries
        self._flushed_end = _flushed_end(directory)

    @property
    def segments(self) -> int:
        return len(self._bases)

    @property
    def size_bytes(self) -> int:
        return sum(self._path(base).stat().st_size for base in self._bases)

    def _path(self, base_offset: int) -> Path:
        return self.directory / (file_stem(base_offset) + LOG_SUFFIX)

    def find_damage(self, advance: Callable[[int], None]) -> Iterator[Finding]:
        """`advance` is told how many bytes were read."""
        for base, following in zip(self._bases, [*self._bases[1:], None], strict=True):
            fault = self._check(base, following, advance)
            if fault is None or self._is_torn_end(fault, following):
                continue
            damage = find_damage(
                _FILES,
                self.directory,
                base,
                self._epochs,
                end_offset=following,
                known_end=self._flushed_end or 0,
            )
            yield Finding(fault=fault, damage=damage)

    def _check(self, base: int, following: int | None, advance: Callable[[int], None]) -> Fault | None:
        check: SegmentCheck | None = SegmentCheck(
            files=_FILES,
            directory=self.directory,
            base_offset=base,
            size=self._path(base).stat().st_size,
            # Whether the topic is compacted is in the coordination store, and its followers have gaps, too.
            gapless=False,
            end_offset=_ANY_OFFSET if following is None else following,
            flushed_end=(self._flushed_end or 0) if following is None else 0,
            epochs=self._epochs,
            offset=base,
        )
        while check is not None:
            result = check_segment(check, _STEP_BYTES)
            advance(result.bytes_read)
            if result.fault is not None:
                return result.fault
            check = result.rest
        return None

    def _is_torn_end(self, fault: Fault, following: int | None) -> bool:
        """Behind what was flushed: an unclean stop leaves such an end, and the next start removes it."""
        return following is None and self._flushed_end is not None and fault.offset >= self._flushed_end


def stopped_logs(path: Path) -> list[StoppedLog]:
    """Of a partition's directory, or of all partitions in a node's."""
    if not path.is_dir():
        raise ClientError(
            f"{path} is not a directory", next_step="name the data directory of a node, or a partition's"
        )
    if _is_partition(path):
        return [StoppedLog(path)]
    found = sorted(each for each in path.iterdir() if each.is_dir() and _is_partition(each))
    if not found:
        raise ClientError(
            f"{path} has no partitions", next_step="name the data directory of a node, or a partition's"
        )
    return [StoppedLog(each) for each in found]


def _is_partition(path: Path) -> bool:
    return partition_in(path.resolve().name) is not None and bool(
        offsets_of(_FILES.listdir(path), LOG_SUFFIX)
    )


def _flushed_end(directory: Path) -> int | None:
    """Batches below it were on disk; None where no checkpoint says so."""
    found = partition_in(directory.resolve().name)
    if found is None:
        return None
    try:
        offsets = read_offset_checkpoint(_FILES, directory.resolve().parent / RECOVERY_POINT_FILE)
    except StorageError:
        return None
    return offsets.get(TopicPartition(*found))


@contextmanager
def node_is_stopped(path: Path) -> Iterator[None]:
    """Keeps the node of this directory, or of this partition's, from starting meanwhile.

    Raises ClientError while it runs, NewerFormatError for a directory of a later release.
    """
    resolved = path.resolve()
    places = [each for each in (resolved, resolved.parent) if (each / META_PROPERTIES_FILE).exists()]
    if not places:  # a copy, which no node uses
        yield
        return
    check_format(_FILES, places[0])
    try:
        lock = _FILES.lock(places[0] / ".lock")
    except BlockingIOError:
        raise ClientError(
            f"the node of {places[0]} runs: it checks and heals its logs itself",
            next_step="see `headrace_scrub_…` in its metrics, or stop the node first",
        ) from None
    try:
        yield
    finally:
        lock.release()


def repair(finding: Finding) -> Path:
    """Where the damaged file is kept."""
    return isolate(_FILES, finding.damage)


def forget_damage(path: Path) -> None:
    """Nothing is damaged any more: a repair that a stop of the node interrupted is not gone on with."""
    for log in stopped_logs(path):
        if _FILES.exists(log.directory / marker.FILE_NAME):
            marker.clear(_FILES, log.directory)
