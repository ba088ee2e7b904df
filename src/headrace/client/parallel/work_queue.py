# SPDX-License-Identifier: Apache-2.0
"""A thread-safe queue around the scheduler: workers take records, the polling thread adds them.

One lock guards it; it is never held for long. Read next: workers.py, consumer.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from headrace.client.parallel.budget import Budget
from headrace.client.parallel.flow_control import Limits, Load
from headrace.client.parallel.record import Order, Record
from headrace.client.parallel.scheduler import Entry, Scheduler
from headrace.types import TopicPartition


@dataclass(slots=True)
class Counts:
    received: int = 0
    finished: int = 0
    retried: int = 0
    dead_lettered: int = 0
    dropped: int = 0


class WorkQueue:
    def __init__(self, order: Order, limits: Limits, budget: Budget | None = None) -> None:
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._budget = budget
        self._scheduler = Scheduler(order, limits, None if budget is None else budget.begin)
        self._closed = False
        self.error: BaseException | None = None
        """The first error that stops the consumer."""
        self.counts = Counts()

    # -- for workers ---------------------------------------------------------------------------------------

    def take(self) -> Entry | None:
        """Waits for a record to handle; None when the queue is closed."""
        with self._work:
            while not self._closed and self.error is None:
                now_ms = _now_ms()
                entry = self._scheduler.take(now_ms)
                if entry is not None:
                    return entry
                due_ms = self._scheduler.next_due_ms
                self._work.wait(None if due_ms is None else max(due_ms - now_ms, 1) / 1000)
            return None

    def finish(self, entry: Entry, *, dead_letter: bool = False) -> None:
        def count(counted: bool) -> None:
            self.counts.finished += counted
            self.counts.dead_lettered += counted and dead_letter
            self._count_end(counted=counted)

        self._leave(lambda: count(self._scheduler.finish(entry)))

    def retry(self, entry: Entry, delay_ms: float) -> bool:
        """False when it was dropped, since its partition is being revoked."""
        kept = False

        def put_back() -> None:
            nonlocal kept
            kept = self._scheduler.retry(entry, _now_ms() + delay_ms)
            if kept:
                self.counts.retried += 1
            else:
                self._count_end(counted=False)

        self._leave(put_back)
        return kept

    def abandon(self, entry: Entry) -> None:
        def leave() -> None:
            self._scheduler.abandon(entry)
            self._count_end(counted=False)

        self._leave(leave)

    def halt(self, error: BaseException) -> None:
        """Stops: no further record is started."""
        with self._lock:
            self.error = self.error or error
            self._scheduler.begin_end(self._scheduler.partitions, fill_gaps=False)
            self._work.notify_all()
            self._progress.notify_all()

    # -- for the polling thread ----------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        with self._lock:
            if self._scheduler.add(record):
                self.counts.received += 1
                self._work.notify()

    def wait_for_room(self, timeout_s: float) -> bool:
        with self._progress:
            return self._progress.wait_for(lambda: not self._scheduler.full or bool(self.error), timeout_s)

    def wait_until_idle(self, partitions: Collection[TopicPartition], timeout_s: float) -> int:
        """Waits until these partitions have no records left; returns how many are left at the timeout."""
        with self._progress:
            self._progress.wait_for(lambda: self._idle(partitions), timeout_s)
            return self._scheduler.held_in(partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._scheduler.assign(partitions)

    def begin_end(self, partitions: Iterable[TopicPartition]) -> None:
        """Begins revocation; see Scheduler."""
        with self._lock:
            self._scheduler.begin_end(partitions, fill_gaps=self.error is None and self._may_begin)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._scheduler.end(partitions)

    def close(self) -> None:
        """No further record is started; waiting workers return."""
        with self._work:
            self._closed = True
            self._work.notify_all()

    def positions(self) -> dict[TopicPartition, int]:
        with self._lock:
            return self._scheduler.positions()

    def loads(self) -> tuple[dict[TopicPartition, Load], bool]:
        """Records and bytes by partition, and whether the limit is reached."""
        with self._lock:
            return self._scheduler.loads(), self._scheduler.full

    def idle(self, partitions: Collection[TopicPartition]) -> bool:
        with self._lock:
            return self._idle(partitions)

    @property
    def full(self) -> bool:
        return self._scheduler.full

    @property
    def running(self) -> int:
        return self._scheduler.running

    @property
    def held(self) -> tuple[int, int]:
        """Records and bytes in flight."""
        with self._lock:
            return self._scheduler.records, self._scheduler.bytes

    @property
    def partitions(self) -> list[TopicPartition]:
        with self._lock:
            return self._scheduler.partitions

    # -- inside --------------------------------------------------------------------------------------------

    def _idle(self, partitions: Collection[TopicPartition]) -> bool:
        gaps_stay = not self._may_begin and not self._scheduler.running
        return gaps_stay or not self._scheduler.held_in(partitions)

    @property
    def _may_begin(self) -> bool:
        return self._budget is None or self._budget.left > 0

    def _leave(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            self._work.notify()  # the lane's next record, or a new time to wait for
            self._progress.notify()

    def _count_end(self, *, counted: bool) -> None:
        if not counted:
            self.counts.dropped += 1
        if self._budget is not None:
            (self._budget.finish if counted else self._budget.give_back)()


def _now_ms() -> float:
    return time.monotonic() * 1000
