# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a node: offsets of its logs, the marker of a clean stop and the boot id.

Offsets are stored by topic name, as in Kafka, with the topic id: those of a deleted topic must not be used
for a new topic of the same name. Read next: log/checkpoints.py (the files), R21 and R22 in docs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from headrace.errors import StorageError
from headrace.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_COPY_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    checksum_of,
    keep_damaged,
    read_offset_checkpoint,
    take_clean_marker,
    write_clean_marker,
    write_offset_checkpoint,
)
from headrace.machines.replication.isr import is_lossless
from headrace.types import TopicPartition
from headrace.world import Files, World, read_file, replace_file

logger = logging.getLogger(__name__)

BOOT_ID_FILE = "headrace-boot-id"
NEW_DISK_FILE = "headrace-new-disk"
"""From the first start in an empty directory until the cluster relies on nothing of an earlier one (R20)."""
TOPIC_ID_FILE = "headrace-topic-id-checkpoint"
"""In the format of the others, with the id as a number where they have an offset."""
_CHECKPOINTS = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, TOPIC_ID_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """Up to where a log is on disk, and where it begins."""

    topic_id: UUID
    recovery_point: int = 0
    log_start: int = 0
    high_watermark: int | None = None
    """None: not written down, since there is no other replica."""


Offsets = Mapping[TopicPartition, LogOffsets]


def high_watermarks_in(offsets: Offsets) -> dict[TopicPartition, int]:
    marks = {name: log.high_watermark for name, log in offsets.items()}
    return {name: mark for name, mark in marks.items() if mark is not None}


class NodeCheckpoints:
    def __init__(self, files: Files, directory: Path, boot_id: str | None) -> None:
        """`boot_id`: of the running operating system; None where there is none."""
        self._files = files
        self._directory = directory
        self._boot_id = boot_id
        self.stopped_cleanly = False
        self._same_boot = False
        self._loss_is_known = False
        self.new_disk = False
        """Whether the directory was empty: the disk of an earlier process of this node may be lost."""
        self._recovery_points: Mapping[TopicPartition, int] = {}
        self._log_starts: Mapping[TopicPartition, int] = {}
        self._high_watermarks: Mapping[TopicPartition, int] = {}
        self._saved_high_watermarks: Mapping[TopicPartition, int] = {}
        self._topic_ids: Mapping[TopicPartition, int] = {}
        self._saved_ids: Mapping[TopicPartition, int] | None = None

    def note_new_disk(self) -> None:
        """Called before `meta.properties` is written, which tells a used directory from an empty one."""
        if not any(self._exists(name) for name in (META_PROPERTIES_FILE, META_COPY_FILE)):
            replace_file(self._files, self._directory / NEW_DISK_FILE, b"")

    def load(self) -> None:
        """The marker of a clean stop is taken away before any log is opened (R22).

        After the loss of a checkpoint the node starts as after a power cut: every log is checked as a whole,
        and the cluster relies on nothing that it held (R20).
        """
        self.new_disk = self._exists(NEW_DISK_FILE)
        marker = take_clean_marker(self._files, self._directory)
        self.stopped_cleanly = marker is not None
        self._same_boot = self._ran_in_this_boot()
        checksums = (marker or {}).get("checksums", {})
        self._recovery_points = self._read(RECOVERY_POINT_FILE, checksums)
        self._log_starts = self._read(LOG_START_FILE, checksums)
        self._high_watermarks = self._read(HIGH_WATERMARK_FILE, checksums)
        self._saved_high_watermarks = self._high_watermarks
        self._topic_ids = self._read(TOPIC_ID_FILE, checksums)
        if self.lossless:
            self.loss_is_known()

    @property
    def lossless(self) -> bool:
        """Whether the node comes back with all it ever reported, whatever its topics' flush policy (R21)."""
        return not self.new_disk and is_lossless(
            clean_marker=self.stopped_cleanly, same_boot=self._same_boot, flushes_before_ack=False
        )

    def loss_is_known(self) -> None:
        """Blocking. The node is registered, and the cluster relies on nothing that it may have lost.

        From then on only a reboot can lose records. A start that ends earlier must not write the boot id, so
        that the next one reports the loss (R20).
        """
        self._loss_is_known = True
        if self._boot_id is not None and not self._same_boot:
            replace_file(self._files, self._directory / BOOT_ID_FILE, self._boot_id.encode())
        if self.new_disk and self._exists(NEW_DISK_FILE):
            self._files.unlink(self._directory / NEW_DISK_FILE)
            self._files.sync_directory(self._directory)

    def _exists(self, name: str) -> bool:
        return self._files.exists(self._directory / name)

    def disk_failed(self) -> None:
        """R24: unwritten pages, or what was on the disk, may be lost: the boot id proves nothing (R21)."""
        if self._boot_id is not None and self._files.exists(self._directory / BOOT_ID_FILE):
            self._files.unlink(self._directory / BOOT_ID_FILE)

    def _ran_in_this_boot(self) -> bool:
        """Whether the node was registered since the last boot: its page cache was not lost."""
        path = self._directory / BOOT_ID_FILE
        if self._boot_id is None or not self._files.exists(path):
            return False
        return read_file(self._files, path) == self._boot_id.encode()

    def at_start(self, topic_partition: TopicPartition, topic_id: UUID) -> LogOffsets:
        """The offsets read at the start of the node; zeros for a topic without any."""
        if self._topic_ids.get(topic_partition, topic_id.int) != topic_id.int:
            return LogOffsets(topic_id=topic_id)
        return LogOffsets(
            topic_id=topic_id,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start=self._log_starts.get(topic_partition, 0),
            high_watermark=self._high_watermarks.get(topic_partition),
        )

    def holds(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether records of the partition were on this disk when the checkpoints were written."""
        same_topic = self._topic_ids.get(topic_partition) == topic_id.int
        return same_topic and self._recovery_points.get(topic_partition, 0) > 0

    def save(self, logs: Mapping[TopicPartition, LogOffsets]) -> None:
        """Blocking; on a thread. Ids last: offsets that a crash leaves beside another id are ignored."""
        self._write(RECOVERY_POINT_FILE, {name: log.recovery_point for name, log in logs.items()})
        self._write(LOG_START_FILE, {name: log.log_start for name, log in logs.items()})
        self.save_high_watermarks(high_watermarks_in(logs))
        ids = {name: log.topic_id.int for name, log in logs.items()}
        if ids != self._saved_ids:
            self._write(TOPIC_ID_FILE, ids)
            self._saved_ids = ids

    def save_high_watermarks(self, known: Mapping[TopicPartition, int]) -> None:
        """Blocking; on a thread. Only where they changed: a node without replicas has none."""
        if known != self._saved_high_watermarks:
            self._write(HIGH_WATERMARK_FILE, known)
            self._saved_high_watermarks = known

    def mark_clean(self, node_epoch: int) -> None:
        """Blocking; on a thread. No marker while the cluster may rely on records that were lost before."""
        if not self._loss_is_known:
            return
        files, directory = self._files, self._directory
        found = {name: checksum_of(files, directory / name) for name in _CHECKPOINTS}
        checksums = {name: checksum for name, checksum in found.items() if checksum is not None}
        boot_id = self._boot_id or ""
        write_clean_marker(files, directory, node_epoch=node_epoch, boot_id=boot_id, checksums=checksums)

    def _read(self, name: str, checksums: Mapping[str, int]) -> Mapping[TopicPartition, int]:
        path = self._directory / name
        try:
            if name in checksums and checksum_of(self._files, path) != checksums[name]:
                raise StorageError(f"{path}: not what the last stop wrote")
            return read_offset_checkpoint(self._files, path)
        except StorageError as error:
            kept = keep_damaged(self._files, path)
            where = "it is gone" if kept is None else f"it is now {kept.name}"
            logger.error("every log is checked as a whole: %s; %s", error, where)
            self.stopped_cleanly = self._same_boot = False
            self.disk_failed()  # also for the next start, should this one end early
            return {}

    def _write(self, name: str, numbers: Mapping[TopicPartition, int]) -> None:
        write_offset_checkpoint(self._files, self._directory / name, numbers)


class OffsetSaver:
    """Writes the offset checkpoints: one write at a time, shared by all callers that wait for it."""

    def __init__(
        self,
        world: World,
        checkpoints: NodeCheckpoints,
        *,
        present: Callable[[], Awaitable[Offsets]],
        high_watermarks: Callable[[], Awaitable[Mapping[TopicPartition, int]]],
    ) -> None:
        self._checkpoints = checkpoints
        self._present = present
        self._high_watermarks = high_watermarks
        self._thread = world.tasks.thread("checkpoints")
        self._saving = asyncio.Lock()
        self._asked = self._done = 0

    async def persist(self) -> None:
        """Returns when the present offsets are in the checkpoints. Waiting callers share one write."""
        self._asked += 1
        asked = self._asked
        async with self._saving:
            if self._done < asked:
                covered = self._asked
                await self.save(await self._present())
                self._done = covered

    async def save(self, offsets: Offsets) -> None:
        """Always on the one thread: two at a time would write into each other's files."""
        await self._thread.run(self._checkpoints.save, offsets)

    async def persist_high_watermarks(self) -> None:
        """Called often: a restarted node treats nothing above it as committed (R13)."""
        async with self._saving:  # older ones must not be written after newer ones
            await self._thread.run(self._checkpoints.save_high_watermarks, await self._high_watermarks())

    async def loss_is_known(self) -> None:
        """The node is registered: the cluster relies on nothing that it may have lost (R20)."""
        await self._thread.run(self._checkpoints.loss_is_known)

    async def mark_clean(self, node_epoch: int) -> None:
        await self._thread.run(self._checkpoints.mark_clean, node_epoch)
