"""What a node writes down about its logs, so that the next start need not read them all.

Offsets are kept by name, as Kafka does, and beside them the topic's id: those of a deleted topic must not be
taken for those of the next one of its name. Read next: log/checkpoints.py (the files), R21 and R22 in docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from headrace.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offset_checkpoint,
    take_clean_marker,
    write_clean_marker,
    write_offset_checkpoint,
)
from headrace.machines.isr import is_lossless
from headrace.types import TopicPartition
from headrace.world import Files, read_file, replace_file

BOOT_ID_FILE = "headrace-boot-id"
TOPIC_ID_FILE = "headrace-topic-id-checkpoint"
"""In the format of the others, with the id as a number where they have an offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """Up to where a log is on disk, and where it begins."""

    topic_id: UUID
    recovery_point: int = 0
    log_start: int = 0
    high_watermark: int | None = None
    """None: not written down, since there is no other replica."""


class NodeCheckpoints:
    def __init__(self, files: Files, directory: Path, boot_id: str | None) -> None:
        """`boot_id`: of this start of the machine; None where that cannot be told."""
        self._files = files
        self._directory = directory
        self._boot_id = boot_id
        self.stopped_cleanly = False
        self._same_boot = False
        self._loss_is_known = False
        self._recovery_points: Mapping[TopicPartition, int] = {}
        self._log_starts: Mapping[TopicPartition, int] = {}
        self._high_watermarks: Mapping[TopicPartition, int] = {}
        self._saved_high_watermarks: Mapping[TopicPartition, int] = {}
        self._topic_ids: Mapping[TopicPartition, int] = {}
        self._saved_ids: Mapping[TopicPartition, int] | None = None

    def load(self) -> None:
        """The marker of a clean stop is taken away as the first act of a start (R22)."""
        self.stopped_cleanly = take_clean_marker(self._files, self._directory)
        self._same_boot = self._ran_in_this_boot()
        if self.lossless:
            self.loss_is_known()
        self._recovery_points = self._read(RECOVERY_POINT_FILE)
        self._log_starts = self._read(LOG_START_FILE)
        self._high_watermarks = self._read(HIGH_WATERMARK_FILE)
        self._saved_high_watermarks = self._high_watermarks
        self._topic_ids = self._read(TOPIC_ID_FILE)

    @property
    def lossless(self) -> bool:
        """Whether the node comes back with all it ever reported, whatever its topics' flush policy (R21)."""
        return is_lossless(
            clean_marker=self.stopped_cleanly, same_boot=self._same_boot, flushes_before_ack=False
        )

    def loss_is_known(self) -> None:
        """Blocking. The cluster counts on nothing that is gone: what comes now, only another boot can take.

        Not before: a start that ends earlier must leave to the next one to say what may be lost (R20).
        """
        self._loss_is_known = True
        if self._boot_id is not None and not self._same_boot:
            replace_file(self._files, self._directory / BOOT_ID_FILE, self._boot_id.encode())

    def disk_failed(self) -> None:
        """R24: what a failed fsync left in memory may be gone, so this boot vouches for nothing (R21)."""
        if self._boot_id is not None and self._files.exists(self._directory / BOOT_ID_FILE):
            self._files.unlink(self._directory / BOOT_ID_FILE)

    def _ran_in_this_boot(self) -> bool:
        """Whether the node was let in since the machine was started: its page cache is there."""
        path = self._directory / BOOT_ID_FILE
        if self._boot_id is None or not self._files.exists(path):
            return False
        return read_file(self._files, path) == self._boot_id.encode()

    def at_start(self, topic_partition: TopicPartition, topic_id: UUID) -> LogOffsets:
        """As found at the start of the node; zeros for a topic that they do not speak of."""
        if self._topic_ids.get(topic_partition, topic_id.int) != topic_id.int:
            return LogOffsets(topic_id=topic_id)
        return LogOffsets(
            topic_id=topic_id,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start=self._log_starts.get(topic_partition, 0),
            high_watermark=self._high_watermarks.get(topic_partition),
        )

    def save(self, logs: Mapping[TopicPartition, LogOffsets]) -> None:
        """Blocking; on a thread. Ids last: offsets that a crash leaves beside another id are not believed."""
        self._write(RECOVERY_POINT_FILE, {name: log.recovery_point for name, log in logs.items()})
        self._write(LOG_START_FILE, {name: log.log_start for name, log in logs.items()})
        self.save_high_watermarks(logs)
        ids = {name: log.topic_id.int for name, log in logs.items()}
        if ids != self._saved_ids:
            self._write(TOPIC_ID_FILE, ids)
            self._saved_ids = ids

    def save_high_watermarks(self, logs: Mapping[TopicPartition, LogOffsets]) -> None:
        """Blocking; on a thread. Only where they changed: a node without replicas has none."""
        known = {name: log.high_watermark for name, log in logs.items() if log.high_watermark is not None}
        if known != self._saved_high_watermarks:
            self._write(HIGH_WATERMARK_FILE, known)
            self._saved_high_watermarks = known

    def mark_clean(self, node_epoch: int) -> None:
        """Blocking; on a thread. Nothing is marked while the cluster may count on what was lost before."""
        if not self._loss_is_known:
            return
        write_clean_marker(self._files, self._directory, node_epoch=node_epoch, boot_id=self._boot_id or "")

    def _read(self, name: str) -> dict[TopicPartition, int]:
        return read_offset_checkpoint(self._files, self._directory / name)

    def _write(self, name: str, numbers: Mapping[TopicPartition, int]) -> None:
        write_offset_checkpoint(self._files, self._directory / name, numbers)
