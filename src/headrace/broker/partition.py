"""One partition on this node: leader checks before the log, high watermark and waiting requests after it.

Knows the log of its partition and nothing of sockets or the cluster store. From the checks in `append` to
the write there is no `await`, so a partition needs no lock. Read next: log/partition_log.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from headrace.broker.flusher import Flusher
from headrace.broker.metrics import TopicCounters
from headrace.broker.topic_settings import FLUSH_ACK, FLUSH_INTERVAL, TopicSettings
from headrace.broker.waiters import AckWaiter, FetchWaiter
from headrace.errors import ApiError, DiskFullError, StorageError
from headrace.log.flush import Flush
from headrace.log.log_slice import LogSlice
from headrace.log.partition_log import PartitionLog
from headrace.log.producer_state import ProducerEntry
from headrace.types import TopicId, TopicPartition
from headrace.wire.batch import BatchHeader, split_batches
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import recompress, validate_records
from headrace.world import Clock

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


class BegunFlush(NamedTuple):
    flush: Flush
    appended_bytes: int
    """In all, when the flush began: what becomes readable when it is done."""


class Partition:
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
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.settings = settings
        self.online = True
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._log = log
        self._clock = clock
        self._flusher = flusher
        self._counters = counters
        self._accepts_writes = accepts_writes
        self._call_soon = call_soon
        self._persist_offsets = persist_offsets
        self._ack_waiters: deque[AckWaiter] = deque()
        self._appended_bytes = 0  # in all; what a fetch that waits counts
        self._readable_bytes = 0
        self._announced_bytes = 0
        self._announcing = False
        # The only replica: all that survived recovery is committed, once it is as safe as an append must be.
        self.high_watermark = log.flushed_offset if settings.flush == FLUSH_ACK else log.log_end_offset
        if self.high_watermark < log.log_end_offset:
            flusher.request(self)

    # What others ask

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

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        return self._readable(self._log.offset_for_timestamp(timestamp_ms))

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        return self._readable(self._log.offset_of_max_timestamp())

    def _readable(self, found: tuple[int, int] | None) -> tuple[int, int] | None:
        """R18: what is not below the high watermark does not exist yet."""
        return found if found is not None and found[1] < self.high_watermark else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._log.epochs.end_offset_for(epoch, self._log.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written."""
        return self._log.epochs.epoch_for(offset)

    def active_producers(self) -> list[ProducerEntry]:
        return list(self._log.producers.active())

    # Produce

    def append(self, view: memoryview, start: int, end: int, *, zstd_known: bool = True) -> Appended:
        """Checks and writes the batch in `view[start:end]`. Raises ApiError when nothing was written."""
        if not self.online:
            raise ApiError(ErrorCode.kafka_storage_error, f"{self.topic_partition} is offline")
        if not self._accepts_writes():
            raise ApiError(ErrorCode.kafka_storage_error, "the disk is nearly full; free some space")
        settings = self.settings
        batches = split_batches(view, start, end, max_batch_bytes=settings.log.max_message_bytes, single=True)
        header = batches[0][1]
        if header.attributes & ~settings.plain_attributes or settings.checks_records:
            view, batches = self._check_unusual(view, batches)
            header = batches[0][1]
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

    def _write(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]], header: BatchHeader, now_ms: int
    ) -> Appended:
        try:
            base_offset = self._log.append(view, batches, self.leader_epoch)
        except DiskFullError as error:
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error
        except StorageError as error:
            self.take_offline()
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error
        counters = self._counters
        counters.produces += 1
        counters.records_in += header.record_count
        counters.bytes_in += header.size
        self._appended_bytes += header.size
        if self.settings.flush == FLUSH_ACK:
            self._flusher.request(self)
        else:
            self._advance_high_watermark(self._log.log_end_offset, self._appended_bytes)
            if self._log.wants_flush:
                self._flusher.request(self)
        append_time_ms = now_ms if self.settings.log.append_time else NO_TIMESTAMP
        return Appended(base_offset, base_offset + header.last_offset_delta, append_time_ms)

    def _check_unusual(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]]
    ) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
        """Whatever makes a batch leave the hot path: transactions, deep validation, another codec."""
        position, header = batches[0]
        if header.is_transactional:
            raise ApiError(ErrorCode.invalid_txn_state, "transactions are not served yet")
        batch = view[position : position + header.size]
        settings = self.settings
        if settings.validates_records:
            validate_records(batch, require_key=settings.requires_key)
        if settings.codec is not None and settings.codec != header.codec:
            rebuilt = memoryview(recompress(batch, settings.codec))
            return rebuilt, split_batches(rebuilt, 0, len(rebuilt), max_batch_bytes=None, single=True)
        return view, batches

    def wait_for_ack(self, waiter: AckWaiter) -> bool:
        """False when there is nothing to wait for."""
        if self.high_watermark > waiter.last_offset:
            return False
        self._ack_waiters.append(waiter)
        return True

    async def caught_up(self) -> None:
        """Returns when what is in the log now is committed: whoever got acks=1 may ask for it at once.

        Bounded: after SETTLE_S the answer is what there is by then.
        """
        if self.high_watermark >= self._log.log_end_offset or not self.online:
            return
        caught_up = asyncio.Event()
        deadline = self._clock.monotonic() + SETTLE_S
        waiter = AckWaiter(self._log.log_end_offset - 1, deadline, lambda code: caught_up.set())
        self._ack_waiters.append(waiter)
        await caught_up.wait()

    def expire_ack_waiters(self, now: float) -> None:
        waiters = self._ack_waiters
        if not waiters or all(waiter.deadline > now for waiter in waiters):
            return
        self._ack_waiters = deque(waiter for waiter in waiters if waiter.deadline > now)
        for waiter in waiters:
            if waiter.deadline <= now:
                waiter.done(ErrorCode.request_timed_out)

    # Flush and high watermark

    def begin_flush(self) -> BegunFlush | None:
        flush = self._log.begin_flush() if self.online else None
        return None if flush is None else BegunFlush(flush, self._appended_bytes)

    def end_flush(self, begun: BegunFlush) -> None:
        self._log.end_flush(begun.flush)
        self._advance_high_watermark(self._log.flushed_offset, begun.appended_bytes)

    @property
    def flushes_by_interval(self) -> bool:
        return self.settings.flush == FLUSH_INTERVAL

    def request_flush(self) -> None:
        if self.online and self._log.flushed_offset < self._log.log_end_offset:
            self._flusher.request(self)

    def _advance_high_watermark(self, offset: int, appended_bytes: int) -> None:
        """R14 for a single replica: never back, and all who waited for it are told."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._log.producers.high_watermark_moved(offset)
        waiters = self._ack_waiters
        while waiters and waiters[0].last_offset < offset:
            waiters.popleft().done(ErrorCode.none)
        self._readable_bytes = appended_bytes
        if self.fetch_waiters and not self._announcing:
            self._announcing = True
            self._call_soon(self._announce)

    def _announce(self) -> None:
        """Once per turn of the loop, however many appends it brought: readers get them in one piece."""
        self._announcing = False
        newly_readable = self._readable_bytes - self._announced_bytes
        self._announced_bytes = self._readable_bytes
        for fetch in list(self.fetch_waiters):
            fetch.more(newly_readable)

    # Fetch

    def check_leader_epoch(self, epoch: int) -> None:
        """R11; -1 is a client that does not know epochs."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch)
        raise ApiError(ErrorCode.unknown_leader_epoch)

    def read(
        self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool
    ) -> PartitionRead:
        if not self.online:
            raise ApiError(ErrorCode.kafka_storage_error, f"{self.topic_partition} is offline")
        log = self._log
        start, high_watermark, stable = log.log_start_offset, self.high_watermark, self.last_stable_offset
        if not start <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.offset_out_of_range)
        limit = stable if committed_only else high_watermark
        records = None
        if offset < limit and (max_bytes > 0 or at_least_one):
            records = log.read(offset, max_bytes, limit, at_least_one=at_least_one)
        if records is not None:
            self._counters.fetches += 1
            self._counters.bytes_out += records.size
        return PartitionRead(high_watermark, stable, start, records)

    # Life

    def reconfigure(self, settings: TopicSettings) -> None:
        was_ack = self.settings.flush == FLUSH_ACK
        self.settings = settings
        self._log.reconfigure(settings.log)
        if was_ack and settings.flush != FLUSH_ACK:
            self._advance_high_watermark(self._log.log_end_offset, self._appended_bytes)

    async def delete_records_before(self, offset: int) -> int:
        """Returns the new log start, once it would survive a crash."""
        self._log.delete_records_before(offset)
        await self._persist_offsets()
        return self._log.log_start_offset

    def take_offline(self) -> None:
        self.online = False
        self._fail_waiters(ErrorCode.kafka_storage_error)

    def resign(self) -> None:
        """The topic is gone or leads elsewhere: nobody waits here any more."""
        self.online = False
        self._fail_waiters(ErrorCode.not_leader_or_follower)

    def _fail_waiters(self, code: ErrorCode) -> None:
        waiters, self._ack_waiters = self._ack_waiters, deque()
        for waiter in waiters:
            waiter.done(code)
        for fetch in list(self.fetch_waiters):
            fetch.finish()

    @property
    def log(self) -> PartitionLog:
        """For housekeeping and the registry of partitions; handlers stay with the methods above."""
        return self._log
