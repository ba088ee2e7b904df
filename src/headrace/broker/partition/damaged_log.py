# SPDX-License-Identifier: Apache-2.0
"""What is known of a log with a damaged segment when it goes offline: all that its repair needs (R27).

Read next: registry.py (which asks), replication/log_repairs.py (which repairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.broker.partition.checkpoints import LogOffsets
from headrace.broker.partition.partition import Partition
from headrace.errors import CorruptLogError
from headrace.log.compaction.plan import CleanerState
from headrace.log.compaction.swap import load_state
from headrace.log.epochs import EpochHistory
from headrace.log.leftovers import offsets_of
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import SegmentCheck
from headrace.log.segments.files import LOG_SUFFIX, file_stem
from headrace.types import PartitionState, TopicPartition
from headrace.world import Files

_ANY_OFFSET = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedLog:
    topic_partition: TopicPartition
    offsets: LogOffsets
    """To open it with once it is repaired."""
    check: SegmentCheck
    """Of the damaged segment, from its beginning."""
    is_last: bool
    index_interval_bytes: int
    reason: str
    log: PartitionLog | None = None
    """Still open; the repair closes it."""
    clean: bool
    """All of it is on disk, so that it need not be scanned when it is opened again."""

    @property
    def files(self) -> Files:
        return self.check.files

    @property
    def directory(self) -> Path:
        return self.check.directory

    @property
    def base_offset(self) -> int:
        return self.check.base_offset


class Repairs(Protocol):
    """Of logs that are offline, so that the registry need not know who fetches from other nodes."""

    def __contains__(self, name: TopicPartition) -> bool: ...

    def begin(self, damaged: DamagedLog, state: PartitionState) -> None: ...

    def update(self, name: TopicPartition, state: PartitionState) -> None:
        """The state of the partition may have changed."""

    def forget(self, name: TopicPartition) -> None:
        """The partition is deleted, or other nodes hold it now."""


class NoRepairs:
    """Of a node without replication."""

    def __contains__(self, name: TopicPartition) -> bool:
        return False

    def begin(self, damaged: DamagedLog, state: PartitionState) -> None:
        raise AssertionError("there is no other replica")

    def update(self, name: TopicPartition, state: PartitionState) -> None: ...

    def forget(self, name: TopicPartition) -> None: ...


def damage_of(partition: Partition) -> DamagedLog | None:
    """Of an open log; None when the damage is not that of one segment, or lies where compaction has been.

    There another record of the log may be displaced by one that only the damaged range has.
    """
    log, base_offset = partition.log, partition.damaged_at
    segments = log.plan_scrub().segments
    check = next((each for each in segments if each.base_offset == base_offset), None)
    if check is None or log.compacted_below > check.base_offset:
        return None
    return DamagedLog(
        topic_partition=partition.topic_partition,
        offsets=LogOffsets(
            topic_id=partition.topic_id,
            recovery_point=partition.recovery_point,
            log_start=log.log_start_offset,
            high_watermark=partition.high_watermark,
        ),
        check=check,
        is_last=check is segments[-1],
        index_interval_bytes=log.config.index_interval_bytes,
        reason=partition.damage or "",
        log=log,
        clean=False,
    )


def damage_in(
    files: Files,
    directory: Path,
    name: TopicPartition,
    *,
    error: CorruptLogError,
    offsets: LogOffsets,
    config: LogConfig,
    clean: bool,
) -> DamagedLog | None:
    """Of a log that could not be opened; None as for `damage_of`, or when its leader epochs are not known."""
    base_offset = error.base_offset
    history = EpochHistory.load(files, directory)
    cleaner = load_state(files, directory)
    if base_offset is None or history is None or cleaner.first_dirty_offset > base_offset:
        return None
    following = [base for base in offsets_of(files.listdir(directory), LOG_SUFFIX) if base > base_offset]
    check = SegmentCheck(
        files=files,
        directory=directory,
        base_offset=base_offset,
        size=_size(files, directory / (file_stem(base_offset) + LOG_SUFFIX)),
        gapless=not config.compacts and cleaner == CleanerState(),
        end_offset=following[0] if following else _ANY_OFFSET,
        epochs=history.entries,
        offset=base_offset,
    )
    return DamagedLog(
        topic_partition=name,
        offsets=offsets,
        check=check,
        is_last=not following,
        index_interval_bytes=config.index_interval_bytes,
        reason=str(error),
        clean=clean,
    )


def _size(files: Files, path: Path) -> int:
    if not files.exists(path):
        return 0
    file = files.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()
