# SPDX-License-Identifier: Apache-2.0
"""The high watermark of one partition, and the requests that wait for it.

acks=all produce requests wait for the high watermark, consumer fetches for readable bytes (those of
read_committed readers for bytes below the last stable offset), replica fetches for any change of the log's
start or end. How far the high watermark may move, and what a waiting produce is answered, is decided by the
partition's role. Requests wait as objects with callbacks instead of tasks: thousands may wait at once, and
completing one costs one call. Read next: roles.py, leader_role.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.log.partition_log import PartitionLog
from headrace.wire.error_codes import ErrorCode

AnswerFor = Callable[[int], ErrorCode | None]
"""The answer to an acks=all produce by its last offset; None while it has to wait (R17)."""


class OnAck(NamedTuple):
    """Who wants the answer to an acks=all produce, and until when."""

    deadline: float
    done: Callable[[ErrorCode], None]


class AckWaiter(NamedTuple):
    """An acks=all produce that waits until the high watermark has passed `last_offset` (R17)."""

    last_offset: int
    deadline: float
    done: Callable[[ErrorCode], None]


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class FetchSource(Protocol):
    """A partition as a waiting fetch sees it."""

    def add_fetch_waiter(self, waiter: FetchWaiter) -> None: ...
    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None: ...


class FetchWaiter:
    """A fetch that waits until `missing_bytes` have become readable in its partitions, or for its timeout.

    The fetch of a replica is completed by any change of a log's start or end.
    """

    __slots__ = ("_complete", "_missing_bytes", "_sources", "_timer", "committed_only", "of_replica")

    def __init__(
        self,
        sources: Sequence[FetchSource],
        missing_bytes: int,
        complete: Callable[[], None],
        *,
        of_replica: bool = False,
        committed_only: bool = False,
    ) -> None:
        self.of_replica = of_replica
        self.committed_only = committed_only
        """With read_committed: bytes at or above the last stable offset do not count."""
        self._sources = sources
        self._missing_bytes = missing_bytes
        self._complete: Callable[[], None] | None = complete
        self._timer: Cancellable | None = None
        for source in sources:
            source.add_fetch_waiter(self)

    def start_timer(self, timer: Cancellable) -> None:
        self._timer = timer

    def more(self, byte_count: int) -> None:
        self._missing_bytes -= byte_count
        if self._missing_bytes <= 0:
            self.finish()

    def finish(self) -> None:
        """Completes the fetch, once: it timed out, has enough bytes, or a partition changed its leader."""
        complete = self._complete
        self.cancel()
        if complete is not None:
            complete()

    def cancel(self) -> None:
        self._complete = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for source in self._sources:
            source.remove_fetch_waiter(self)


class CommitTracker:
    __slots__ = (
        "_call_soon",
        "_fetch_waiters",
        "_log",
        "_readers_notified",
        "_replica_waiters",
        "_replicas_notified",
        "ack_waiters",
        "appended_bytes",
        "flushed_only",
        "high_watermark",
        "readable_bytes",
    )

    def __init__(
        self,
        log: PartitionLog,
        high_watermark: int,
        call_soon: Callable[[Callable[[], None]], None],
        *,
        flushed_only: bool,
    ) -> None:
        self.high_watermark = high_watermark
        self.flushed_only = flushed_only
        """Flush policy `ack`: only flushed records count as stored on this node (R23)."""
        self.appended_bytes = 0
        """Since the partition was opened."""
        self.readable_bytes = 0
        """The part of `appended_bytes` that lies below the high watermark."""
        self.ack_waiters: deque[AckWaiter] = deque()
        """The partition appends to it."""
        self._log = log
        self._call_soon = call_soon
        self._fetch_waiters: dict[FetchWaiter, int] = {}
        """With the readable bytes that each has counted."""
        self._replica_waiters: dict[FetchWaiter, None] = {}
        self._readers_notified = False
        self._replicas_notified = False
        log.high_watermark_is(high_watermark)

    @property
    def durable_end(self) -> int:
        """The end of what counts as stored on this node."""
        return self._log.flushed_offset if self.flushed_only else self._log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and its marker replicated."""
        unstable = self._log.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self._log.log_start_offset))

    def reset(self, high_watermark: int) -> None:
        """The log was truncated, or a new leader's high watermark is lower: it may move back."""
        self.high_watermark = high_watermark
        self._log.high_watermark_is(high_watermark)

    def advance(self, offset: int, readable_bytes: int, answer_for: AnswerFor) -> None:
        """Moves the high watermark, never back (R14), and answers the requests that waited for it."""
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        producers = self._log.producers
        if producers.first_unstable_offset is not None:
            producers.high_watermark_moved(offset)
        waiters = self.ack_waiters
        while waiters and (code := answer_for(waiters[0].last_offset)) is not None:
            waiters.popleft().done(code)
        self.readable_bytes = readable_bytes
        if self._fetch_waiters and not self._readers_notified:
            self._readers_notified = True
            self._call_soon(self._notify_readers)

    @property
    def _stable_bytes(self) -> int:
        """The part of `appended_bytes` that lies below the last stable offset."""
        if self._log.producers.first_unstable_offset is None:
            return self.readable_bytes
        behind = self.appended_bytes - self._log.bytes_from(self.last_stable_offset)
        return min(behind, self.readable_bytes)

    # Acknowledgements

    def expire_ack_waiters(self, now: float) -> None:
        waiters = self.ack_waiters
        if all(waiter.deadline > now for waiter in waiters):
            return
        self.ack_waiters = deque(waiter for waiter in waiters if waiter.deadline > now)
        for waiter in waiters:
            if waiter.deadline <= now:
                waiter.done(ErrorCode.request_timed_out)

    def fail_ack_waiters(self, code: ErrorCode) -> None:
        waiters, self.ack_waiters = self.ack_waiters, deque()
        while waiters:
            waiters.popleft().done(code)

    # Fetches

    def add_fetch_waiter(self, waiter: FetchWaiter) -> None:
        if waiter.of_replica:
            self._replica_waiters[waiter] = None
        else:
            self._fetch_waiters[waiter] = self._stable_bytes if waiter.committed_only else self.readable_bytes

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        if waiter.of_replica:
            self._replica_waiters.pop(waiter, None)
        else:
            self._fetch_waiters.pop(waiter, None)

    def finish_fetches(self) -> None:
        """Completes every waiting fetch: the partition is not served here any more."""
        for fetch in (*self._fetch_waiters, *self._replica_waiters):
            fetch.finish()

    def _notify_readers(self) -> None:
        """Once per turn of the event loop: the appends of one turn reach readers in one reply."""
        self._readers_notified = False
        all_bytes, waiters = self.readable_bytes, self._fetch_waiters
        stable_bytes = self._stable_bytes if any(fetch.committed_only for fetch in waiters) else all_bytes
        for fetch, counted in list(waiters.items()):
            if fetch in waiters:
                readable = stable_bytes if fetch.committed_only else all_bytes
                waiters[fetch] = readable
                fetch.more(readable - counted)

    def wake_replicas(self) -> None:
        """The log's start or end moved: followers learn it before it is committed."""
        if self._replica_waiters and not self._replicas_notified:
            self._replicas_notified = True
            self._call_soon(self._notify_replicas)

    def _notify_replicas(self) -> None:
        self._replicas_notified = False
        for fetch in list(self._replica_waiters):
            fetch.finish()
