"""What becomes of a partition's appends: flushed, counted, committed, as this node's role in it demands.

A sole replica commits what is as safe as its settings ask; a leader and a follower go by their machines.
Knows no request. Read next: replica_role.py, replication.py (who gives out the roles), flusher.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.flusher import Flusher
from headrace.broker.partition_waits import PartitionWaits
from headrace.broker.replica_role import Following, Leading
from headrace.broker.storage_faults import will_pass
from headrace.broker.topic_settings import FLUSH_ACK, FLUSH_INTERVAL, TopicSettings
from headrace.log.flush import Flush
from headrace.log.partition_log import PartitionLog
from headrace.wire.error_codes import ErrorCode


class BegunFlush(NamedTuple):
    flush: Flush
    appended_bytes: int
    """In all, when the flush began: what becomes readable when it is done."""


class PartitionRoles(PartitionWaits):
    def __init__(
        self,
        log: PartitionLog,
        leader_epoch: int,
        high_watermark: int,
        settings: TopicSettings,
        flusher: Flusher,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(log, leader_epoch, high_watermark, call_soon)
        self.settings = settings
        self.online = True
        self._flusher = flusher
        self._flushes_begun = 0
        self._saving_epoch = False
        self._until_flushed: list[tuple[int, asyncio.Future[None]]] = []
        self.recovery_limit: int | None = None
        """Set before the log is cut: the recovery point that is written down must not lie above the cut."""

    # Flush and high watermark

    def begin_flush(self) -> BegunFlush | None:
        """Raises OSError when the disk has failed. On a full one, whoever waits is told so."""
        try:
            flush = self._log.begin_flush() if self.online and not self._saving_epoch else None
        except OSError as error:
            if not will_pass(error):
                raise
            self._fail_ack_waiters(ErrorCode.kafka_storage_error)
            return None
        if flush is None:
            return None
        self._flushes_begun += 1
        return BegunFlush(flush, self._appended_bytes)

    def end_flush(self, begun: BegunFlush) -> None:
        self._flushes_begun -= 1
        self._log.end_flush(begun.flush)
        if self.leading is not None:
            self.leading.log_moved()
        elif self.is_sole:
            self.advance_high_watermark(self._log.flushed_offset, begun.appended_bytes)
        if self._until_flushed:
            self._tell_flushed()

    def _tell_flushed(self) -> None:
        waiting, self._until_flushed = self._until_flushed, []
        for offset, flushed in waiting:
            if self._log.flushed_offset < min(offset, self._log.log_end_offset) and self.online:
                self._until_flushed.append((offset, flushed))
            elif not flushed.done():
                flushed.set_result(None)

    async def flushed(self) -> None:
        """Returns when what is in the log now is on disk, or never will be."""
        self.request_flush()
        if self.online and self._log.flushed_offset < self._log.log_end_offset:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._until_flushed.append((self._log.log_end_offset, flushed))
            await flushed

    def flush_by_interval(self) -> None:
        if self.settings.flush == FLUSH_INTERVAL:
            self.request_flush()

    def request_flush(self) -> None:
        if self.online and self._log.flushed_offset < self._log.log_end_offset:
            self._flusher.request(self)

    # Roles

    def lead_alone(self, leader_epoch: int) -> None:
        """There is no other replica, so that what is safe here is committed."""
        self.leader_epoch = leader_epoch
        if self.leading is None and self.following is None and self.leads:
            return
        self.leading = self.following = None
        if self.online:
            self._refuse(reads=None, writes=None)
            durable = self.settings.flush != FLUSH_ACK
            end = self._log.log_end_offset if durable else self._log.flushed_offset
            self.advance_high_watermark(end, self._appended_bytes)

    def lead(self, leading: Leading, leader_epoch: int) -> None:
        """Reads at once; writes after `take_writes`, when the epoch is written down (R13)."""
        self.leading, self.following = leading, None
        self.leader_epoch = leader_epoch
        if self.online:
            self._refuse(reads=None, writes=ErrorCode.not_leader_or_follower)

    def take_writes(self) -> None:
        if self.online and self.leading is not None:
            self._refuse(reads=None, writes=None)

    def follow(self, following: Following | None, leader_epoch: int) -> None:
        """None: nobody can be followed. Who waits here asks again, elsewhere (R17)."""
        self.leading, self.following = None, following
        self.leader_epoch = leader_epoch
        if self.online:
            self.step_aside()

    def step_aside(self) -> None:
        """Whether this node still leads is in doubt (R7), or another does."""
        self._refuse(reads=ErrorCode.not_leader_or_follower, writes=ErrorCode.not_leader_or_follower)

    def begin_epoch_save(self) -> Callable[[], None] | None:
        """The write of the epoch file, for a thread; None when it is up to date. Not during a flush.

        Nor during another, which may write what is needed and is not done yet (R13).
        """
        write = self._log.epochs.take_unsaved()
        self._saving_epoch = write is not None
        return write

    def end_epoch_save(self) -> None:
        self._saving_epoch = False
        if self.settings.flush == FLUSH_ACK:
            self.request_flush()

    @property
    def recovery_point(self) -> int:
        flushed = self._log.flushed_offset
        return flushed if self.recovery_limit is None else min(flushed, self.recovery_limit)

    @property
    def is_sole(self) -> bool:
        """No other node has to do with it: its high watermark follows from its log."""
        return self.leading is None and self.following is None and self.leads

    @property
    def saving_epoch(self) -> bool:
        return self._saving_epoch

    @property
    def flushing(self) -> bool:
        return self._flushes_begun > 0

    def follow_high_watermark(self, offset: int) -> None:
        """As a follower knows it: back only where its log was cut."""
        offset = max(offset, self._log.log_start_offset)
        if offset < self.high_watermark:
            self.high_watermark = offset
        else:
            self.advance_high_watermark(offset, self._appended_bytes)

    def truncate_to(self, offset: int) -> None:
        """R12. Where no record is cut, an epoch in which this node led and wrote nothing may end."""
        if offset < self._log.log_end_offset:
            self._log.truncate_to(offset)
        else:
            self._log.epochs.truncate_from_end(offset)
            self._log.epochs.save()
        self.high_watermark = min(self.high_watermark, self._log.log_end_offset)

    def restart_at(self, offset: int) -> None:
        """The leader no longer has what comes next: nothing here is of use any more."""
        self._log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
