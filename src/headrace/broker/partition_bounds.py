"""Where a partition begins and ends, and what of it is committed: everything that only looks.

Read next: partition.py (which appends, flushes and moves the high watermark), handlers/offsets.py.
"""

from __future__ import annotations

from headrace.errors import ApiError
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerEntry
from headrace.log.time_lookup import Ask, Found
from headrace.wire.error_codes import ErrorCode


class PartitionBounds:
    def __init__(self, log: PartitionLog, leader_epoch: int, high_watermark: int) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark

    @property
    def log(self) -> PartitionLog:
        """For housekeeping and the registry of partitions; handlers stay with the methods above."""
        return self._log

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def last_stable_offset(self) -> int:
        unstable = self._log.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def offset_for_timestamp(self, timestamp_ms: int, ask: Ask) -> Found | None:
        return self._readable(self._log.offset_for_timestamp(timestamp_ms, ask))

    def offset_of_max_timestamp(self, ask: Ask) -> Found | None:
        return self._readable(self._log.offset_of_max_timestamp(ask))

    def _readable(self, found: Found | None) -> Found | None:
        """R18: what is not below the high watermark does not exist yet."""
        return found if found is not None and found[1] < self.high_watermark else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._log.epochs.end_offset_for(epoch, self._log.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written."""
        return self._log.epochs.epoch_for(offset)

    def active_producers(self) -> list[ProducerEntry]:
        return list(self._log.producers.active())

    def check_leader_epoch(self, epoch: int) -> None:
        """R11; -1 is a client that does not know epochs."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch)
        raise ApiError(ErrorCode.unknown_leader_epoch)
