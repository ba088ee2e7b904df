"""One partition on this node: leader checks before the log, high watermark and waiting requests after it.

Knows the log of its partition and nothing of sockets or the cluster store. From the checks in `append` to
the write there is no `await`, so a partition needs no lock. A sole replica is its own judge; where there are
others, `leading` or `following` says what may be done.
Read next: partition_waits.py, replica_role.py, log/partition_log.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headrace.broker.deep_check import DeepCheck, check_at_once, check_uncompressed
from headrace.broker.flusher import Flusher
from headrace.broker.metrics import TopicCounters
from headrace.broker.partition_faults import PartitionFaults
from headrace.broker.plain_batches import plain_batches
from headrace.broker.replica_role import ReplicaFetch
from headrace.broker.storage_faults import failed_disk
from headrace.broker.topic_settings import FLUSH_ACK, TopicSettings
from headrace.broker.waiters import AckWaiter
from headrace.errors import ApiError, DiskFullError, StorageError
from headrace.log.cold_read import ColdRead as ColdRead
from headrace.log.log_slice import LogSlice
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicId, TopicPartition
from headrace.wire.batch import LOG_OVERHEAD, BatchHeader, assign, read_sound_batch, split_batches
from headrace.wire.error_codes import ErrorCode
from headrace.wire.produce_run import RunFrame
from headrace.world import Clock

logger = logging.getLogger(__name__)

NO_TIMESTAMP = -1
ZSTD = 4
SETTLE_S = 1.0


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int = NO_TIMESTAMP


class PartitionRead(NamedTuple):
    """The bounds a reader is told, and the records, if there are any for it."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | None
    more: bool
    """There is more for it than it got."""
    diverging: tuple[int, int] | None = None
    """To a replica: where its log parts from this one."""


class Partition(PartitionFaults):
    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leader_epoch: int,
        log: PartitionLog,
        settings: TopicSettings,
        clock: Clock,
        flusher: Flusher,
        counters: TopicCounters,
        accepts_writes: Callable[[], bool],
        call_soon: Callable[[Callable[[], None]], None],
        persist_offsets: Callable[[], Awaitable[None]],
        high_watermark: int | None = None,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        """`high_watermark`: as written down; None for the only replica. `on_trouble`: the disk refused."""
        # All that survived recovery is committed, once it is as safe as an append must be; of a replicated
        # partition as much as was known to be.
        safe = log.flushed_offset if settings.flush == FLUSH_ACK else log.log_end_offset
        high_watermark = safe if high_watermark is None else min(high_watermark, safe)
        super().__init__(log, leader_epoch, high_watermark, settings, flusher, call_soon)
        self.topic_partition = topic_partition
        self._on_trouble = on_trouble
        self.topic_id = topic_id
        self._clock = clock
        self._counters = counters
        self._accepts_writes = accepts_writes
        self._persist_offsets = persist_offsets
        if self.high_watermark < log.log_end_offset:
            flusher.request(self)

    # Produce

    def append(
        self, view: memoryview, start: int, end: int, *, zstd_known: bool = True, checked: bool = False
    ) -> Appended:
        """Checks and writes the batch in `view[start:end]`. Raises ApiError when nothing was written.

        NeedsWorker: its records have to be looked into, and there are many; `checked` once that is done.
        """
        if self._write_refusal is not None:
            raise self._refused_batch(self._write_refusal, view, start, end)
        settings = self.settings
        max_bytes = settings.log.max_message_bytes
        header = read_sound_batch(view, start, end, max_bytes)
        if header is None:
            ((start, header),) = split_batches(view, start, end, max_batch_bytes=max_bytes, single=True)
        batches = [(start, header)]
        if header.attributes & ~settings.plain_attributes or (settings.checks_records and not checked):
            view, batches = self._check_unusual(view, batches, checked)
            header = batches[0][1]
        elif settings.validates_uncompressed and not (checked or header.codec):
            check_uncompressed(view, start, header)
        if not zstd_known and header.codec == ZSTD:
            raise ApiError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7 or later")
        now_ms = self._clock.wall_ms()
        if not (
            now_ms - settings.timestamp_before_max_ms
            <= header.max_timestamp
            <= now_ms + settings.timestamp_after_max_ms
        ):
            settings.check_timestamps(header, now_ms)
        if header.producer_id >= 0:
            duplicate = self._log.producers.check(header)
            if duplicate is not None:
                return Appended(duplicate, duplicate + header.last_offset_delta)
        return self._write(view, batches, header, now_ms)

    def check_insync(self, view: memoryview, start: int, end: int) -> None:
        """For acks=all, before `append` (R17). Raises ApiError."""
        if self.leading is not None:
            try:
                self.leading.check_insync()
            except ApiError as refusal:
                self._refused_batch(refusal.code, view, start, end)
                raise

    def append_own(self, batch: bytearray) -> int:
        """Writes what this node made itself, uncompressed and sound; the last offset. ApiError as above."""
        return self.append(memoryview(batch), 0, len(batch), checked=True).last_offset

    def append_run(self, view: memoryview, frames: Sequence[RunFrame], *, acks_all: bool) -> list[int]:
        """Writes the batches of several requests at once; their offsets.

        As many from the first on as are plain and can be acknowledged at once; the others are for `append`.
        Raises ApiError when nothing was written; the batches are then as they came.
        """
        settings = self.settings
        if (
            self._write_refusal is not None
            or not self._accepts_writes()
            or not settings.is_plain
            or (acks_all and (settings.flush == FLUSH_ACK or self.leading is not None))
        ):
            return []
        batches = plain_batches(view, frames, settings, self._log.producers, self._clock.wall_ms())
        if not batches:
            return []
        try:
            offset = self._log_append(view, batches)
        except ApiError:
            for start, header in batches:
                assign(view, start, header.base_offset, header.leader_epoch)
            raise
        offsets = []
        records = size = 0
        for _, header in batches:
            offsets.append(offset + records)
            records += header.record_count
            size += header.batch_length + LOG_OVERHEAD
        self._note_append(len(batches), records, size)
        return offsets

    def append_as_replica(self, view: memoryview) -> None:
        """Writes what the leader sent, with the offsets and epochs it gave. DiskFullError: try again later.

        ApiError: a batch is damaged (R27), or the log is and the partition is offline.
        """
        if not self._accepts_writes():
            raise DiskFullError("the disk is nearly full; free some space")
        batches = split_batches(view, 0, len(view), max_batch_bytes=None, producer=False)
        try:
            self._log.append_as_replica(view, batches)
        except DiskFullError:
            self._on_trouble()
            raise
        except StorageError as error:
            if (failure := failed_disk(error)) is not None:
                self._flusher.disk_failed(failure)
            raise self.fault(error) from error
        self._appended_bytes += len(view)
        if self.settings.flush == FLUSH_ACK or self._log.wants_flush:
            self._flusher.request(self)

    def _write(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]], header: BatchHeader, now_ms: int
    ) -> Appended:
        base_offset = self._log_append(view, batches)
        self._note_append(1, header.record_count, header.batch_length + LOG_OVERHEAD)
        append_time_ms = now_ms if self.settings.log.append_time else NO_TIMESTAMP
        return Appended(base_offset, base_offset + header.last_offset_delta, append_time_ms)

    def _log_append(self, view: memoryview, batches: list[tuple[int, BatchHeader]]) -> int:
        if not self._accepts_writes():
            raise self._no_room(batches[0][1], "the disk is nearly full; free some space")
        try:
            return self._log.append(view, batches, self.leader_epoch)
        except DiskFullError as error:
            self._on_trouble()
            raise self._no_room(batches[0][1], str(error)) from error
        except StorageError as error:
            if (failure := failed_disk(error)) is not None:
                self._flusher.disk_failed(failure)
            raise self.fault(error) from error

    def _note_append(self, batches: int, records: int, size: int) -> None:
        counters = self._counters
        counters.produces += batches
        counters.records_in += records
        counters.bytes_in += size
        self._appended_bytes += size
        if self.leading is not None:
            self.leading.log_grew(self._appended_bytes)
        if self.settings.flush == FLUSH_ACK:
            self._flusher.request(self)
        else:
            if self.leading is None:
                self.advance_high_watermark(self._log.log_end_offset, self._appended_bytes)
            if self._log.wants_flush:
                self._flusher.request(self)

    def _refused_batch(self, code: ErrorCode, view: memoryview, start: int, end: int) -> ApiError:
        """It may be taken a moment later: those sent right behind a producer's first must not overtake it."""
        header = read_sound_batch(view, start, end, self.settings.log.max_message_bytes)
        if header is not None:
            self._log.producers.refused(header)
        return self._refused(code)

    def _no_room(self, header: BatchHeader, why: str) -> ApiError:
        self._log.producers.refused(header)
        return ApiError(ErrorCode.kafka_storage_error, why)

    def _check_unusual(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]], checked: bool
    ) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
        """Whatever makes a batch leave the hot path: transactions, deep validation, another codec."""
        position, header = batches[0]
        if header.is_transactional:
            raise ApiError(ErrorCode.invalid_txn_state, "transactions are not served yet")
        settings = self.settings
        if checked or not settings.checks_records:
            return view, batches
        validates = settings.validates_records or (settings.validates_uncompressed and not header.codec)
        check = DeepCheck(validates, settings.requires_key, settings.codec)
        batch = view[position : position + header.size]
        made = check_at_once(check, batch, header)
        if made is batch:
            return view, batches
        limit = settings.log.max_message_bytes
        return made, split_batches(made, 0, len(made), max_batch_bytes=limit, single=True)

    async def caught_up(self) -> None:
        """Returns when what is in the log now is committed: whoever got acks=1 may ask for it at once.

        Bounded: after SETTLE_S the answer is what there is by then. Nobody waits here for other replicas.
        """
        if self.high_watermark >= self._log.log_end_offset or not self.online or self.leading is not None:
            return
        if not self.leads:
            return
        caught_up = asyncio.Event()
        deadline = self._clock.monotonic() + SETTLE_S
        waiter = AckWaiter(self._log.log_end_offset - 1, deadline, lambda code: caught_up.set())
        self._ack_waiters.append(waiter)
        await caught_up.wait()

    def look_after(self, now: float) -> None:
        """Once a second: time-outs, and appends whose flush could not begin. Raises StorageError, OSError."""
        if self._ack_waiters:
            self._expire_ack_waiters(now)
        if self.settings.flush == FLUSH_ACK:
            self.request_flush()

    def recover_if_fenced(self) -> None:
        """There is room on the disk again. Raises StorageError when it was not for lack of room."""
        if self._log.fenced:
            self._log.recover_in_place()
            logger.warning("%s accepts records again", self.topic_partition)

    # Fetch

    def read(
        self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool, wait: bool = True
    ) -> PartitionRead:
        """Raises ColdRead when the disk would be waited for, unless `wait`."""
        if self._refusal is not None:
            raise self._refused(self._refusal)
        log = self._log
        start, high_watermark, stable = log.log_start_offset, self.high_watermark, self.last_stable_offset
        if not start <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.offset_out_of_range)
        limit = stable if committed_only else high_watermark
        records = None
        if offset < limit and (max_bytes > 0 or at_least_one):
            try:
                records = log.read(offset, max_bytes, limit, at_least_one=at_least_one, wait=wait)
            except (StorageError, OSError) as error:
                raise self.fault(error) from error
        if records is not None:
            records.on_failure = self._while_it_leads(self.leader_epoch)
            self._counters.fetches += 1
            self._counters.bytes_out += records.size
            return PartitionRead(high_watermark, stable, start, records, records.next_offset < limit)
        return PartitionRead(high_watermark, stable, start, None, offset < limit and not at_least_one)

    def read_as_replica(
        self, asked: ReplicaFetch, max_bytes: int, *, at_least_one: bool, wait: bool = True
    ) -> PartitionRead:
        """For a follower: up to the log's end, once its log is known to be a prefix of it (R11, R12)."""
        if self._refusal is not None:
            raise self._refused(self._refusal)
        if self.leading is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"{self.topic_partition} has no followers")
        log, leading = self._log, self.leading
        diverging = leading.diverges(asked)
        if diverging is not None:
            return PartitionRead(self.high_watermark, -1, log.log_start_offset, None, True, diverging)
        if not log.log_start_offset <= asked.offset <= log.log_end_offset:
            raise ApiError(ErrorCode.offset_out_of_range)
        records = None
        if asked.offset < log.log_end_offset and (max_bytes > 0 or at_least_one):
            try:
                records = log.read(
                    asked.offset, max_bytes, log.log_end_offset, at_least_one=at_least_one, wait=wait
                )
            except (StorageError, OSError) as error:
                raise self.fault(error) from error
        try:
            leading.fetched(asked)
        except ApiError:
            if records is not None:
                records.release()
            raise
        if records is not None:
            records.on_failure = self._while_it_leads(self.leader_epoch)
        reached = asked.offset if records is None else records.next_offset
        more = reached < log.log_end_offset
        return PartitionRead(
            self.high_watermark, self.last_stable_offset, log.log_start_offset, records, more
        )

    # Life

    def reconfigure(self, settings: TopicSettings) -> None:
        was_ack = self.settings.flush == FLUSH_ACK
        self.settings = settings
        self._log.reconfigure(settings.log)
        if was_ack and settings.flush != FLUSH_ACK:
            if self.leading is not None:
                self.leading.log_moved()
            elif self.is_sole:
                self.advance_high_watermark(self._log.log_end_offset, self._appended_bytes)

    async def delete_records_before(self, offset: int) -> int:
        """Returns the new log start, once it would survive a crash."""
        self._log.delete_records_before(offset)
        if self.leading is not None:
            self.leading.log_moved()
            self.wake_replicas()
        await self._persist_offsets()
        return self._log.log_start_offset
