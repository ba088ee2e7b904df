"""Who waits for a partition: producers for the high watermark, readers for bytes, replicas for the log's end.

Moves the high watermark and wakes whom it concerns; whether it may move is decided by a sole replica's own
log (partition.py) or by the machine of a replicated one (replica_role.py). Read next: waiters.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.broker.partition_bounds import PartitionBounds
from headrace.broker.replica_role import Following, Leading
from headrace.broker.waiters import AckWaiter, FetchWaiter
from headrace.log.partition_log import PartitionLog
from headrace.wire.error_codes import ErrorCode


class PartitionWaits(PartitionBounds):
    def __init__(
        self,
        log: PartitionLog,
        leader_epoch: int,
        high_watermark: int,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(log, leader_epoch, high_watermark)
        self.leading: Leading | None = None
        """Set while this node leads and others follow; a sole replica has neither role."""
        self.following: Following | None = None
        self._call_soon = call_soon
        self._refusal: ErrorCode | None = None
        """What reads are answered with: the log is broken, or others lead."""
        self._write_refusal: ErrorCode | None = None
        self._ack_waiters: deque[AckWaiter] = deque()
        self._fetch_waiters: dict[FetchWaiter, int] = {}
        """With the readable bytes each has counted."""
        self._replica_waiters: dict[FetchWaiter, None] = {}
        self._until_writable: list[asyncio.Future[None]] = []
        self._appended_bytes = 0  # in all; what a fetch that waits counts
        self._readable_bytes = 0
        self._announcing = False
        self._announcing_end = False

    @property
    def readable_bytes(self) -> int:
        return self._readable_bytes

    @property
    def leads(self) -> bool:
        """Whether requests for its leader are answered here."""
        return self._refusal is None

    @property
    def takes_writes(self) -> bool:
        return self._write_refusal is None

    # Acknowledgements

    def wait_for_ack(self, waiter: AckWaiter) -> None:
        """Tells it at once when there is nothing to wait for."""
        if self._write_refusal is not None:
            waiter.done(self._write_refusal)
        elif self.high_watermark > waiter.last_offset:
            waiter.done(ErrorCode.none if self.leading is None else self.leading.acknowledgement)
        else:
            self._ack_waiters.append(waiter)

    def _expire_ack_waiters(self, now: float) -> None:
        waiters = self._ack_waiters
        if all(waiter.deadline > now for waiter in waiters):
            return
        self._ack_waiters = deque(waiter for waiter in waiters if waiter.deadline > now)
        for waiter in waiters:
            if waiter.deadline <= now:
                waiter.done(ErrorCode.request_timed_out)

    def _fail_ack_waiters(self, code: ErrorCode) -> None:
        waiters, self._ack_waiters = self._ack_waiters, deque()
        for waiter in waiters:
            waiter.done(code)

    async def writable(self) -> None:
        """Returns when records are taken, or never will be: a new leader first notes its epoch (R13)."""
        if self._write_refusal is not None and self.leads:
            opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._until_writable.append(opened)
            await opened

    def _refuse(self, *, reads: ErrorCode | None, writes: ErrorCode | None) -> None:
        """Who waits for what is refused from now on is told so (R17)."""
        self._refusal, self._write_refusal = reads, writes
        if writes is None or reads is not None:
            waiting, self._until_writable = self._until_writable, []
            for opened in waiting:
                if not opened.done():
                    opened.set_result(None)
        if reads is not None:
            self._fail_ack_waiters(reads)
            for fetch in (*self._fetch_waiters, *self._replica_waiters):
                fetch.finish()

    # High watermark

    def advance_high_watermark(self, offset: int, appended_bytes: int) -> None:
        """Never back (R14), and all who waited for it are told."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self._log.producers.high_watermark_moved(offset)
        waiters = self._ack_waiters
        while waiters and waiters[0].last_offset < offset:
            waiters.popleft().done(ErrorCode.none)
        self._readable_bytes = appended_bytes
        if self._fetch_waiters and not self._announcing:
            self._announcing = True
            self._call_soon(self._announce)

    def _announce(self) -> None:
        """Once per turn of the loop, however many appends it brought: readers get them in one piece."""
        self._announcing = False
        readable, waiters = self._readable_bytes, self._fetch_waiters
        for fetch, counted in list(waiters.items()):
            if fetch in waiters:
                waiters[fetch] = readable
                fetch.more(readable - counted)

    # Fetches

    def add_fetch_waiter(self, waiter: FetchWaiter) -> None:
        if waiter.of_replica:
            self._replica_waiters[waiter] = None
        else:
            self._fetch_waiters[waiter] = self._readable_bytes

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        if waiter.of_replica:
            self._replica_waiters.pop(waiter, None)
        else:
            self._fetch_waiters.pop(waiter, None)

    def wake_replicas(self) -> None:
        """The log ends or begins elsewhere: followers learn it at once, not only when it is committed."""
        if self._replica_waiters and not self._announcing_end:
            self._announcing_end = True
            self._call_soon(self._announce_end)

    def _announce_end(self) -> None:
        self._announcing_end = False
        for fetch in list(self._replica_waiters):
            fetch.finish()
