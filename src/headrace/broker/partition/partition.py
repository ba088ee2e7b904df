# SPDX-License-Identifier: Apache-2.0
"""One partition on this node: a log, a commit tracker and a role.

Checks batches before they reach the log, tracks the high watermark after it, and refuses requests that this
node must not serve. Independent of sockets and of the coordination store. From the checks in `append` to the
write there is no `await`, so a partition needs no lock.
Read next: commit_tracker.py, roles.py, log/partition_log.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.broker.metrics import TopicCounters
from headrace.broker.partition.commit_tracker import AckWaiter, CommitTracker, OnAck
from headrace.broker.partition.flusher import BegunFlush, Flusher
from headrace.broker.partition.readers import Readers
from headrace.broker.partition.roles import ReplicaFetch, Role, SoleReplica
from headrace.broker.partition.settings.topic_settings import FLUSH_ACK, FLUSH_INTERVAL, TopicSettings
from headrace.broker.partition.storage_faults import failed_disk, will_pass
from headrace.broker.partition.validation.record_validation import (
    DeepCheck,
    KeyRule,
    TurnAllowance,
    check_at_once,
    check_sound,
    is_sound_at_once,
)
from headrace.errors import ApiError, CorruptLogError, DiskFullError, StorageError
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.markers import EndTransactionMarker, build_marker
from headrace.log.producers.state import ProducerEntry, ProducerState
from headrace.log.producers.verification import NotVerified as NotVerified
from headrace.log.producers.verification import VerificationGuard as VerificationGuard
from headrace.log.segments.cold_read import ColdRead as ColdRead
from headrace.log.segments.log_slice import LogSlice
from headrace.log.time_lookup import Ask, Found
from headrace.types import TopicId, TopicPartition
from headrace.wire.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    BatchHeader,
    assign,
    read_header,
    read_sound_batch,
    split_batches,
)
from headrace.wire.error_codes import ErrorCode
from headrace.wire.record_layout import WALK
from headrace.wire.requests.produce_run import RunFrame
from headrace.world import Clock

logger = logging.getLogger(__name__)

NO_TIMESTAMP = -1
UNKNOWN_EPOCH = -1
ZSTD = 4
CAUGHT_UP_TIMEOUT_S = 1.0
MOST_BYTES_CHECKED = 4 << 20
"""Of a reply: all of one to a follower (replication/fetch_loop.py), the start of a larger one."""


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    answer: ErrorCode | None
    """To acks=all; None while it has to wait (R17)."""
    append_time_ms: int = NO_TIMESTAMP


class AppendedRun(NamedTuple):
    """The batches of several requests, appended in one write."""

    base_offsets: list[int]
    log_start_offset: int
    answer: ErrorCode | None
    """To the producer; None when it is given later (R17)."""


class EpochNotSaved(ApiError):
    """This node leads the partition and takes writes as soon as its leader epoch is on disk (R13)."""


class Disk(Protocol):
    """The disk that holds the log."""

    writable: bool
    """False while it is nearly full (R25)."""


class PartitionRead(NamedTuple):
    """The offsets for a Fetch reply, and the records, if there are any to send."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: LogSlice | None
    more: bool
    """More could be read than fits."""
    diverging: tuple[int, int] | None = None
    """For a follower: (epoch, end offset) where its log diverges from this one."""
    aborted: tuple[tuple[int, int], ...] = ()
    """With read_committed: (producer id, first offset) of aborted transactions with batches in `records`."""


class Partition:
    """One replica of a partition; `role` is its part in the replication."""

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
        disk: Disk,
        call_soon: Callable[[Callable[[], None]], None],
        persist_offsets: Callable[[], Awaitable[None]],
        high_watermark: int | None = None,
        on_trouble: Callable[[Partition], None] = lambda partition: None,
        allowance: TurnAllowance | None = None,
    ) -> None:
        """`high_watermark`: from the checkpoint; None for a sole replica. `on_trouble`: the disk refused.
        `allowance`: the node's, for all its partitions together; None: one of its own.
        """
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        """For housekeeping, roles and the registry; handlers use the methods of the partition."""
        self.settings = settings
        flushed_only = settings.flush == FLUSH_ACK
        # All that survived recovery is committed, once it is as safe as an append must be; of a replicated
        # partition as much as was known to be.
        durable = log.flushed_offset if flushed_only else log.log_end_offset
        known = durable if high_watermark is None else min(high_watermark, durable)
        # The log start is written down at each deletion, the high watermark now and then.
        known = max(known, log.log_start_offset)
        self.commits = CommitTracker(log, known, call_soon, flushed_only=flushed_only)
        self.role: Role = SoleReplica(log, self.commits)
        self.readers = Readers()
        self.online = True
        self.damage: str | None = None
        """Why the log is offline (R27)."""
        self.damaged_at: int | None = None
        """The base offset of the segment whose damage that is, where it is known."""
        self.damaged_segments: dict[int, str] = {}
        """By base offset: damage in a log that stays online, since no other replica can lead (R27)."""
        self.recovery_limit: int | None = None
        """Set before a truncation: the recovery point in the checkpoint must not lie above it."""
        self._clock = clock
        self._flusher = flusher
        self._counters = counters
        self._disk = disk
        self._allowance = allowance or TurnAllowance(call_soon)
        self._persist_offsets = persist_offsets
        self._on_trouble = on_trouble
        self._refusal: ErrorCode | None = None
        """The answer to reads while the log is offline or another node leads."""
        self._write_refusal: ErrorCode | None = None
        self._when_writable: list[Callable[[], None]] = []
        self._flushes_begun = 0
        self._until_flushed: list[tuple[int, asyncio.Future[None]]] = []
        self._sent_to_replicas: dict[int, int] = {}
        """By node: the offset from which its last fetch was answered with records."""
        self.saving_epoch = False
        if self.commits.high_watermark < log.log_end_offset:
            flusher.request(self)

    # Offsets

    @property
    def high_watermark(self) -> int:
        return self.commits.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.commits.last_stable_offset

    @property
    def open_transaction_since_ms(self) -> int | None:
        """When the transaction began that is open longest; None: none is open."""
        return self.log.producers.open_since_ms

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.flushed_offset

    @property
    def recovery_point(self) -> int:
        flushed = self.log.flushed_offset
        return flushed if self.recovery_limit is None else min(flushed, self.recovery_limit)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    def offset_for_timestamp(self, timestamp_ms: int, ask: Ask) -> Found | None:
        return self._committed(self.log.offset_for_timestamp(timestamp_ms, ask))

    def offset_of_max_timestamp(self, ask: Ask) -> Found | None:
        return self._committed(self.log.offset_of_max_timestamp(ask))

    def _committed(self, found: Found | None) -> Found | None:
        """R18: records that are not below the high watermark are not visible."""
        return found if found is not None and found[1] < self.commits.high_watermark else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written."""
        return self.log.epochs.epoch_for(offset)

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.log.producers.active())

    # Role

    @property
    def leads(self) -> bool:
        """Whether this node answers requests for the leader."""
        return self._refusal is None

    @property
    def takes_writes(self) -> bool:
        return self._write_refusal is None

    @property
    def is_sole(self) -> bool:
        return isinstance(self.role, SoleReplica)

    def check_leader_epoch(self, epoch: int) -> None:
        """R11; UNKNOWN_EPOCH comes from clients without leader epochs."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch)
        raise ApiError(ErrorCode.unknown_leader_epoch)

    def become_sole_replica(self, leader_epoch: int) -> None:
        """Becomes the sole replica: what is stored here is committed."""
        self.leader_epoch = leader_epoch
        if self.online and not self.is_sole:
            self.role = SoleReplica(self.log, self.commits)
            self._refuse(reads=None, writes=None)
            self.role.on_log_change(self.commits.appended_bytes)

    def become_leader(self, role: Role, leader_epoch: int) -> None:
        """Serves reads at once, writes after `open_for_writes`, when the epoch is on disk (R13)."""
        self.role = role
        self.leader_epoch = leader_epoch
        if self.online:
            self._refuse(reads=None, writes=ErrorCode.not_leader_or_follower)

    def open_for_writes(self) -> None:
        """The leader epoch is on disk (R13)."""
        if self.online:
            self._refuse(reads=None, writes=None)

    def become_follower(self, role: Role, leader_epoch: int) -> None:
        self.role = role
        self.leader_epoch = leader_epoch
        if self.online:
            self.suspend()

    def drop_role(self, leader_epoch: int) -> None:
        """No leader can be followed: this node has not joined the cluster, or not again."""
        self.become_follower(Role(), leader_epoch)

    def suspend(self) -> None:
        """Refuses requests for the leader: another node leads, or the session may have expired (R7)."""
        self._refuse(reads=ErrorCode.not_leader_or_follower, writes=ErrorCode.not_leader_or_follower)

    def _refuse(self, *, reads: ErrorCode | None, writes: ErrorCode | None) -> None:
        """Requests that wait for what is refused from now on are answered with the error (R17)."""
        self._refusal, self._write_refusal = reads, writes
        if writes is None or reads is not None:
            waiting, self._when_writable = self._when_writable, []
            for callback in waiting:
                callback()
        if reads is not None:
            self.commits.fail_ack_waiters(reads)
            self.commits.finish_fetches()

    def when_writable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back once the leader epoch is saved and writes are accepted (R13), or another node leads:
        in the order of these calls, before any other write. Must not raise. Returns what undoes the call.
        """
        self._when_writable.append(callback)
        return lambda: self._when_writable.remove(callback) if callback in self._when_writable else None

    async def writable(self) -> None:
        """Returns when writes are accepted, or another node leads."""
        if self._write_refusal is not None and self.leads:
            opened = asyncio.Event()
            self.when_writable(opened.set)
            await opened.wait()

    def begin_epoch_save(self) -> Callable[[], None] | None:
        """The write of the epoch checkpoint, for a thread; None when it is up to date. Not during a flush.

        Nor during another save, which may write what is needed and is not done yet (R13).
        """
        write = self.log.epochs.take_unsaved()
        self.saving_epoch = write is not None
        return write

    def end_epoch_save(self) -> None:
        self.saving_epoch = False
        if self.settings.flush == FLUSH_ACK:
            self.request_flush()

    # Flush

    def begin_flush(self) -> BegunFlush | None:
        """Raises OSError when the disk has failed. On a full disk, waiting requests get the error."""
        try:
            flush = self.log.begin_flush() if self.online and not self.saving_epoch else None
        except OSError as error:
            if not will_pass(error):
                raise
            self.commits.fail_ack_waiters(ErrorCode.kafka_storage_error)
            return None
        if flush is None:
            return None
        self._flushes_begun += 1
        return BegunFlush(flush, self.commits.appended_bytes)

    def end_flush(self, begun: BegunFlush) -> None:
        self._flushes_begun -= 1
        self.log.end_flush(begun.flush)
        self.role.on_log_change(begun.appended_bytes)
        if self._until_flushed:
            self._resume_flushed()

    def _resume_flushed(self) -> None:
        log = self.log
        waiting, self._until_flushed = self._until_flushed, []
        for offset, flushed in waiting:
            if log.flushed_offset < min(offset, log.log_end_offset) and self.online:
                self._until_flushed.append((offset, flushed))
            elif not flushed.done():
                flushed.set_result(None)

    @property
    def flushing(self) -> bool:
        return self._flushes_begun > 0

    async def flushed(self) -> None:
        """Returns when what is in the log now is flushed, or the partition goes offline."""
        self.request_flush()
        if self.online and self.log.flushed_offset < self.log.log_end_offset:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._until_flushed.append((self.log.log_end_offset, flushed))
            await flushed

    def flush_by_interval(self) -> None:
        if self.settings.flush == FLUSH_INTERVAL:
            self.request_flush()

    def request_flush(self) -> None:
        if self.online and self.log.flushed_offset < self.log.log_end_offset:
            self._flusher.request(self)

    # Produce

    def append(
        self,
        view: memoryview,
        start: int,
        end: int,
        *,
        acks_all: bool = False,
        zstd_known: bool = True,
        checked: bool = False,
        guard: VerificationGuard | None = None,
        has_transactional_id: bool = True,
    ) -> Appended:
        """Checks and appends a client's batch in `view[start:end]`. Raises ApiError when nothing was written:
        EpochNotSaved when the caller may append again by `when_writable`, NotVerified when it may append
        again with the guard of `begin_verification`.

        `acks_all`: only with min.insync.replicas in sync (R17). Raises TakesLong when its records have to
        be validated and are many; the caller appends again with `checked` once that is done.
        `guard`: from `begin_verification`, for a batch that may begin a transaction.
        `has_transactional_id`: of the request; without one it must not contain a batch of a transaction.
        """
        role = self.role
        if self._write_refusal is not None:
            self._note_refused(view, start, end)
            raise self._refused(self._write_refusal)
        if acks_all and role.needs_insync and (refusal := role.refusal_before_append()) is not None:
            self._note_refused(view, start, end)
            raise refusal
        settings = self.settings
        max_bytes = settings.log.max_message_bytes
        header = read_sound_batch(view, start, end, max_bytes)
        if header is None:
            ((start, header),) = split_batches(view, start, end, max_batch_bytes=max_bytes, single=True)
        batches = [(start, header)]
        if header.attributes & ~settings.plain_attributes or (settings.checks_records and not checked):
            view, batches = self._check_unusual(view, batches, checked, has_transactional_id)
            header = batches[0][1]
        elif settings.validates_by_kernels and not checked:
            check_sound(view, start, header, self._allowance)
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
            duplicate = self.log.producers.check(header, guard)
            if duplicate is not None:
                last_offset = duplicate + header.last_offset_delta
                return Appended(duplicate, last_offset, role.answer_for(last_offset))
        base_offset, answer = self._write(view, batches)
        append_time_ms = now_ms if settings.log.append_time else NO_TIMESTAMP
        return Appended(base_offset, base_offset + header.last_offset_delta, answer, append_time_ms)

    def append_own(self, batch: bytearray, *, guard: VerificationGuard | None = None) -> int:
        """Appends a valid, uncompressed batch that this node made; its last offset. Raises ApiError.

        With a producer id (offsets of a transaction) only the epoch is checked: there are no sequences.
        `guard`: of a transaction that was verified; it must not have ended since.
        """
        header = read_header(batch)
        if header.producer_id < 0:
            return self.append(memoryview(batch), 0, len(batch), checked=True).last_offset
        self._check_writable()
        self.log.producers.check_own(header, guard)
        self._write(memoryview(batch), [(0, header)])
        return self.log.log_end_offset - 1

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """Ends the transaction of a producer, as its coordinator decided. Raises ApiError.

        acks=all: its coordinator counts it as written once `answer` is none (R17).
        """
        self._check_writable()
        if self.role.needs_insync and (refusal := self.role.refusal_before_append()) is not None:
            raise refusal
        batch = build_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
        )
        header = read_header(batch)
        self.log.producers.check_marker(header, marker, transaction_version)
        offset, answer = self._write(memoryview(batch), [(0, header)])
        return Appended(offset, offset, answer)

    def begin_verification(
        self, view: memoryview, start: int, *, begins_at_zero: bool
    ) -> VerificationGuard | None:
        """Before the coordinator is asked whether the transaction of the batch is known to it (KIP-890).

        The guard goes with the append; None when the transaction is open here: nobody needs to be asked.
        `begins_at_zero`: transaction version 2.
        """
        return self.log.producers.begin_verification(read_header(view, start), begins_at_zero=begins_at_zero)

    def check_own(self, batch: bytearray, guard: VerificationGuard | None) -> None:
        """Whether `append_own` would take a batch of this producer now. Raises ApiError.

        `guard`: of a transaction that was verified; it must not have ended since.
        """
        self.log.producers.check_own(read_header(batch), guard)

    def _check_writable(self) -> None:
        if self._write_refusal is not None:
            raise self._refused(self._write_refusal)

    def append_run(
        self, view: memoryview, frames: Sequence[RunFrame], on_ack: OnAck | None
    ) -> AppendedRun | None:
        """Writes the batches of several requests at once; None when the first has to go through `append`.

        As many from the first on as need no further check; the others are for `append`.
        `on_ack`: of acks=all, only with min.insync.replicas in sync; called later where the role has no
        answer yet (R17). Raises ApiError when nothing was written; the batches are unchanged.
        """
        settings = self.settings
        if self._write_refusal is not None or not (self._disk.writable and settings.is_plain):
            return None
        role = self.role
        if on_ack is not None and role.needs_insync and (refusal := role.refusal_before_append()) is not None:
            raise refusal
        batches = _plain_batches(
            view, frames, settings, self.log.producers, self._allowance, self._clock.wall_ms()
        )
        if not batches:
            return None
        try:
            offset, answer = self._write(view, batches)
        except ApiError:
            for start, header in batches:
                assign(view, start, header.base_offset, header.batch_length, header.leader_epoch)
            raise
        base_offsets = []
        for _, header in batches:
            base_offsets.append(offset)
            offset += header.record_count
        if on_ack is None:
            answer = ErrorCode.none
        elif answer is None:
            self.commits.ack_waiters.append(AckWaiter(offset - 1, *on_ack))
        return AppendedRun(base_offsets, self.log.log_start_offset, answer)

    def append_as_replica(self, view: memoryview) -> None:
        """Appends batches from the leader, with its offsets and epochs. DiskFullError: retry later.

        ApiError: a batch is corrupt (R27), or the log is and the partition is offline.
        """
        if not self._disk.writable:
            raise DiskFullError("the disk is nearly full; free some space")
        batches = split_batches(view, 0, len(view), max_batch_bytes=None, producer=False)
        try:
            self.log.append_as_replica(view, batches)
        except DiskFullError:
            self._on_trouble(self)
            raise
        except StorageError as error:
            if (failure := failed_disk(error)) is not None:
                self._flusher.disk_failed(failure)
            raise self.fault(error) from error
        self.commits.appended_bytes += len(view)
        if self.settings.flush == FLUSH_ACK or self.log.wants_flush:
            self._flusher.request(self)

    def _write(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]]
    ) -> tuple[int, ErrorCode | None]:
        """Appends batches that were checked; the offset of the first, the answer to acks=all (R17), which is
        None while it has to wait. Raises ApiError."""
        if not self._disk.writable:
            raise self._no_room(batches[0][1], "the disk is nearly full; free some space")
        log, commits, counters = self.log, self.commits, self._counters
        try:
            base_offset = log.append(view, batches, self.leader_epoch)
        except DiskFullError as error:
            self._on_trouble(self)
            raise self._no_room(batches[0][1], str(error)) from error
        except StorageError as error:
            if (failure := failed_disk(error)) is not None:
                self._flusher.disk_failed(failure)
            raise self.fault(error) from error
        size = 0
        for _, header in batches:
            size += header.batch_length + LOG_OVERHEAD
        counters.produces += len(batches)
        counters.records_in += log.log_end_offset - base_offset
        counters.bytes_in += size
        commits.appended_bytes += size
        answer = self.role.on_append(log.log_end_offset - 1)
        if commits.flushed_only or log.wants_flush:
            self._flusher.request(self)
        return base_offset, answer

    def _note_refused(self, view: memoryview, start: int, end: int) -> None:
        """It may be accepted on retry: batches sent after a producer's first one must not overtake it."""
        header = read_sound_batch(view, start, end, self.settings.log.max_message_bytes)
        if header is not None:
            self.log.producers.refused(header)

    def _no_room(self, header: BatchHeader, why: str) -> ApiError:
        self.log.producers.refused(header)
        return ApiError(ErrorCode.kafka_storage_error, why)

    def _check_unusual(
        self,
        view: memoryview,
        batches: list[tuple[int, BatchHeader]],
        checked: bool,
        has_transactional_id: bool,
    ) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
        """Handles what is off the hot path: transactions, record validation, recompression."""
        position, header = batches[0]
        if header.is_transactional and not has_transactional_id:
            raise ApiError(
                ErrorCode.transactional_id_authorization_failed,
                "a batch of a transaction in a request without a transactional id",
            )
        if header.is_transactional and header.producer_id < 0:
            raise ApiError(ErrorCode.invalid_txn_state, "a transactional batch without a producer id")
        settings = self.settings
        if checked or not settings.checks_records:
            if settings.validates_by_kernels and not checked:
                check_sound(view, position, header, self._allowance)
            return view, batches
        keys = self.key_rule
        validates = settings.validates_records or keys is not None or settings.validates_by_kernels
        check = DeepCheck(validates, settings.requires_key, settings.codec, keys)
        batch = view[position : position + header.size]
        made = check_at_once(check, batch, header, self._allowance)
        if made is batch:
            return view, batches
        limit = settings.log.max_message_bytes
        return made, split_batches(made, 0, len(made), max_batch_bytes=limit, single=True)

    @property
    def key_rule(self) -> KeyRule | None:
        """The keys that records must have, where the topic enforces key ranges."""
        ranges = self.settings.key_ranges
        return None if ranges is None else KeyRule(ranges, self.topic_partition.partition)

    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done` as the role decides, at once where nothing has to be waited for (R17)."""
        if self._write_refusal is not None:
            done(self._write_refusal)
            return
        code = self.role.answer_for(last_offset)
        if code is None:
            self.commits.ack_waiters.append(AckWaiter(last_offset, deadline, done))
        else:
            done(code)

    async def caught_up(self) -> None:
        """Returns when a sole replica has committed what is in its log now, after acks=1 for instance.

        Or after CAUGHT_UP_TIMEOUT_S. Replicated partitions do not wait here for other replicas.
        """
        if not self.is_sole or self.commits.high_watermark >= self.log.log_end_offset:
            return
        caught_up = asyncio.Event()
        deadline = self._clock.monotonic() + CAUGHT_UP_TIMEOUT_S
        waiter = AckWaiter(self.log.log_end_offset - 1, deadline, lambda code: caught_up.set())
        self.commits.ack_waiters.append(waiter)
        await caught_up.wait()

    def on_tick(self, now: float) -> None:
        """Once a second: timeouts, and appends whose flush could not begin. Raises StorageError, OSError."""
        self.commits.expire_ack_waiters(now)
        if self.settings.flush == FLUSH_ACK:
            self.request_flush()

    def recover_if_fenced(self) -> None:
        """There is room on the disk again. Raises StorageError when it was not for lack of room."""
        if self.log.fenced:
            self.log.recover_in_place()
            logger.warning("%s accepts records again", self.topic_partition)

    # Fetch

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool,
        at_least_one: bool,
        leader_epoch: int = UNKNOWN_EPOCH,
        zstd_known: bool = True,
        wait: bool = True,
    ) -> PartitionRead:
        """For a consumer. Raises ColdRead when it would wait for the disk, unless `wait`."""
        self.check_leader_epoch(leader_epoch)
        if not zstd_known and self.settings.codec == ZSTD:
            raise ApiError(ErrorCode.unsupported_compression_type)
        if self._refusal is not None:
            raise self._refused(self._refusal)
        log, commits = self.log, self.commits
        start, high_watermark, stable = (
            log.log_start_offset, commits.high_watermark, commits.last_stable_offset,
        )  # fmt: skip
        if not start <= offset <= log.log_end_offset:
            raise ApiError(ErrorCode.offset_out_of_range)
        limit = stable if committed_only else high_watermark
        records: LogSlice | None = None
        aborted: tuple[tuple[int, int], ...] = ()
        if offset < limit and (max_bytes > 0 or at_least_one):
            try:
                records = log.read(offset, max_bytes, limit, at_least_one=at_least_one, wait=wait)
                if committed_only and records is not None:
                    aborted = self._aborted_in(records, offset, wait)
            except (StorageError, OSError) as error:
                raise self._unreadable(error) from error
        if records is not None:
            if self.damaged_segments:
                self.check_records(records, offset)
            records.on_failure = self._on_send_failure(self.leader_epoch)
            self._counters.fetches += 1
            self._counters.bytes_out += records.size
            more = records.next_offset < limit
            return PartitionRead(high_watermark, stable, start, records, more, None, aborted)
        return PartitionRead(high_watermark, stable, start, None, offset < limit and not at_least_one)

    def _aborted_in(self, records: LogSlice, offset: int, wait: bool) -> tuple[tuple[int, int], ...]:
        try:
            found = self.log.aborted_transactions(offset, records.next_offset, wait=wait)
        except BaseException:
            records.release()
            raise
        return tuple((each.producer_id, each.first_offset) for each in found)

    def read_as_replica(
        self, asked: ReplicaFetch, max_bytes: int, *, at_least_one: bool, wait: bool = True
    ) -> PartitionRead:
        """For a follower: up to the log end, once its log is known to be a prefix of this one (R11, R12)."""
        if self._refusal is not None:
            raise self._refused(self._refusal)
        log, role, commits = self.log, self.role, self.commits
        diverging = role.diverges(asked)
        if diverging is not None:
            return PartitionRead(commits.high_watermark, -1, log.log_start_offset, None, True, diverging)
        if not log.log_start_offset <= asked.offset <= log.log_end_offset:
            raise ApiError(ErrorCode.offset_out_of_range)
        records = None
        if asked.offset < log.log_end_offset and (max_bytes > 0 or at_least_one):
            try:
                records = log.read(
                    asked.offset, max_bytes, log.log_end_offset, at_least_one=at_least_one, wait=wait
                )
            except (StorageError, OSError) as error:
                raise self._unreadable(error) from error
        try:
            role.fetched(asked)
        except ApiError:
            if records is not None:
                records.release()
            raise
        if records is not None:
            if self._sent_to_replicas.get(asked.node) == asked.offset:  # it may have found them corrupt
                self.check_records(records, asked.offset)
            self._sent_to_replicas[asked.node] = asked.offset
            records.on_failure = self._on_send_failure(self.leader_epoch)
        reached = asked.offset if records is None else records.next_offset
        more = reached < log.log_end_offset
        return PartitionRead(
            commits.high_watermark, commits.last_stable_offset, log.log_start_offset, records, more
        )

    # Settings, deletion

    def reconfigure(self, settings: TopicSettings) -> None:
        commits = self.commits
        weaker = commits.flushed_only and settings.flush != FLUSH_ACK
        commits.flushed_only = settings.flush == FLUSH_ACK
        self.settings = settings
        self.log.reconfigure(settings.log)
        if weaker:
            self.role.on_log_change(commits.appended_bytes)

    async def delete_records_before(self, offset: int) -> int:
        """Returns the new log start, once it would survive a crash."""
        self.log.delete_records_before(offset)
        self.role.on_log_change(self.commits.appended_bytes)
        self.commits.wake_replicas()
        await self._persist_offsets()
        return self.log.log_start_offset

    # Faults, end

    def report_damage(self, base_offset: int, what: str) -> ApiError:
        """Damage that the scrub, a reader or compaction found in a segment (R27).

        The partition goes offline where another replica can take over, and is fetched from it. A replica
        that is needed serves what is sound; requests for the rest are answered with the error.
        """
        if self.role.is_replaceable or not self.online:
            error = CorruptLogError(what)
            error.base_offset = base_offset
            return self.fault(error)
        if base_offset not in self.damaged_segments:
            self.damaged_segments[base_offset] = what
            first, end = self.log.segment_range(base_offset)
            logger.error(
                "%s is damaged between offsets %d and %d, and no other replica can take over; "
                "records before and after can be read: %s",
                *(self.topic_partition, first, end - 1, what),
            )
            self._on_trouble(self)
        return ApiError(ErrorCode.corrupt_message, what)

    def damage_is_gone(self, base_offset: int) -> None:
        """The segment was checked again and is sound, or is not part of the log any more."""
        logger.info("%s: the damage at offset %d is gone", self.topic_partition, base_offset)
        del self.damaged_segments[base_offset]
        self._on_trouble(self)

    def _unreadable(self, error: StorageError | OSError) -> ApiError:
        if isinstance(error, CorruptLogError) and error.base_offset is not None:
            return self.report_damage(error.base_offset, str(error))
        return self.fault(error)

    def check_records(self, records: LogSlice, offset: int) -> None:
        """Checks what is about to be sent to a reader that asks for `offset` again, or reads here first.

        What comes before a damaged batch may be sent. Raises ApiError, and releases the slice, when there is
        nothing before it. What is not in memory is left to the scrub.
        """
        if not records.cached(MOST_BYTES_CHECKED):
            return
        path = records.path
        fault = records.cut_at_fault(MOST_BYTES_CHECKED)
        if fault is None:
            return
        error = self.report_damage(self.log.segment_range(offset)[0], f"{path}: {fault}")
        if self.online and records.size:
            return
        records.release()
        raise error

    def fault(self, error: StorageError | OSError) -> ApiError:
        """The log could not be read or written: the partition goes offline (R27), unless it will pass."""
        if self.online and not will_pass(error):
            logger.error("%s goes offline: %s", self.topic_partition, error)
            self.damage = str(error)
            self.damaged_at = error.base_offset if isinstance(error, CorruptLogError) else None
            self.take_offline()
            self._on_trouble(self)
        return ApiError(ErrorCode.kafka_storage_error, str(error))

    def _on_send_failure(self, leader_epoch: int) -> Callable[[OSError], None]:
        """For records that are sent later: a former leader may have truncated its log meanwhile (R12)."""

        def failed(error: OSError) -> None:
            if self.leads and self.leader_epoch == leader_epoch:
                self.fault(error)

        return failed

    def take_offline(self) -> None:
        self._end(ErrorCode.kafka_storage_error)

    def resign(self) -> None:
        """The topic was deleted, the partition moved to other nodes, or this node stops."""
        self._end(ErrorCode.not_leader_or_follower)

    def _end(self, code: ErrorCode) -> None:
        self.online = False
        self.role = Role()
        self._refuse(reads=code, writes=code)
        self._resume_flushed()

    def _refused(self, code: ErrorCode) -> ApiError:
        if self.leads:
            return EpochNotSaved(code, f"{self.topic_partition} is not open for writes yet")
        why = "is offline" if code is ErrorCode.kafka_storage_error else "is led by another node"
        return ApiError(code, f"{self.topic_partition} {why}")


def _plain_batches(
    view: memoryview,
    frames: Sequence[RunFrame],
    settings: TopicSettings,
    producers: ProducerState,
    allowance: TurnAllowance,
    now_ms: int,
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of batches of a run, up to the first that needs a further check."""
    batches: list[tuple[int, BatchHeader]] = []
    uncompressed: list[int] = []  # start, size, start, size, …
    max_bytes = settings.log.max_message_bytes
    oldest = now_ms - settings.timestamp_before_max_ms
    newest = now_ms + settings.timestamp_after_max_ms
    odd_attributes = ~settings.plain_attributes
    before: BatchHeader | None = None
    for _, start, end, _ in frames:
        header = read_sound_batch(view, start, end, max_bytes)
        if (
            header is None
            or header.attributes & odd_attributes
            or not oldest <= header.max_timestamp <= newest
            or (header.producer_id >= 0 and not _continues(producers, before, header))
        ):
            break
        if not header.attributes & CODEC_MASK:
            uncompressed += (start, end - start)
        elif settings.validates_by_kernels and not is_sound_at_once(view, start, header, allowance):
            break
        batches.append((start, header))
        before = header
    if settings.validates_by_kernels and uncompressed:
        assert WALK is not None
        sound = 2 * WALK.count_sound(view, uncompressed)
        if sound < len(uncompressed):
            batches = [each for each in batches if each[0] < uncompressed[sound]]
    return batches


def _continues(producers: ProducerState, before: BatchHeader | None, header: BatchHeader) -> bool:
    """Whether an idempotent producer's batch is in sequence, after one that is not appended yet."""
    if before is None:
        return producers.check(header) is None
    return (
        header.producer_id == before.producer_id
        and header.producer_epoch == before.producer_epoch
        and header.base_sequence == before.base_sequence + before.record_count
    )
