# SPDX-License-Identifier: Apache-2.0
"""Decides which record may be handled next: order of keys, retries, rebalances. Pure.

Records of one lane (a key, a partition, or one record alone) are handled one after another; lanes run in
parallel. Time is an argument. Read next: work_queue.py.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from headrace.client.parallel.commit_position import Prefix, Ticket
from headrace.client.parallel.flow_control import Limits, Load
from headrace.client.parallel.record import Order, Record
from headrace.types import TopicPartition

LaneId = tuple[TopicPartition, bytes | int | None]


@dataclass(slots=True, eq=False)
class Lane:
    """At most one of its records runs. A lane is ready, waits for a retry, or runs."""

    lane_id: LaneId
    queue: deque[Entry] = field(default_factory=deque)
    running: Entry | None = None


@dataclass(slots=True, eq=False)
class Tenure:
    """The period between assignment and revocation of a partition."""

    partition: TopicPartition
    prefix: Prefix = field(default_factory=Prefix)
    records: int = 0
    bytes: int = 0
    last_begun: int = -1
    ending: bool = False
    """Being revoked: only records before a started one may still be started."""
    over: bool = False
    """Revoked: records that finish now do not count."""


@dataclass(slots=True, eq=False)
class Entry:
    """A received record."""

    number: int
    """Its place in the order of arrival, over all partitions."""
    record: Record
    size: int
    tenure: Tenure
    lane: Lane
    ticket: Ticket
    failures: int = 0

    @property
    def cancelled(self) -> bool:
        return self.tenure.over


class Scheduler:
    def __init__(self, order: Order, limits: Limits, may_begin: Callable[[], bool] | None = None) -> None:
        """`may_begin` is called before a record is handled for the first time."""
        self._order = order
        self._limits = limits
        self._may_begin = may_begin or (lambda: True)
        self._tenures: dict[TopicPartition, Tenure] = {}
        self._lanes: dict[LaneId, Lane] = {}
        self._ready: list[tuple[int, Lane]] = []
        """A heap in order of arrival, so that few records finish ahead of the committable prefix."""
        self._waiting: list[tuple[float, int, Lane]] = []
        self._numbers = count()
        self.records = 0
        self.bytes = 0
        self.running = 0

    # -- partitions come and go ----------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._tenures)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._tenures[partition] = Tenure(partition)

    def begin_end(self, partitions: Iterable[TopicPartition], *, fill_gaps: bool = True) -> None:
        """Begins revocation: drops records that need not be handled.

        With `fill_gaps`, records before a started one are kept, so that it can be committed; failed records
        are not retried.
        """
        for partition in partitions:
            tenure = self._tenures.get(partition)
            if tenure is not None:
                tenure.ending = True
                self._drop(partition, tenure.last_begun if fill_gaps else -1)
        self._tidy()

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends revocation. A running record keeps its lane busy, so that its key stays in order here."""
        for partition in partitions:
            tenure = self._tenures.pop(partition, None)
            if tenure is not None:
                tenure.ending = tenure.over = True
                self._drop(partition, -1)
        self._tidy()

    def held_in(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self._tenures[partition].records for partition in partitions if partition in self._tenures)

    # -- records -------------------------------------------------------------------------------------------

    def add(self, record: Record) -> bool:
        """Adds a received record; False when its partition is not assigned."""
        tenure = self._tenures.get(record.topic_partition)
        if tenure is None or tenure.ending:
            return False
        lane_id = self._lane_id(record, tenure.partition)
        lane = self._lanes.get(lane_id)
        is_new = lane is None
        if lane is None:
            lane = self._lanes[lane_id] = Lane(lane_id)
        size, ticket = record.size, tenure.prefix.receive(record.offset)
        lane.queue.append(Entry(next(self._numbers), record, size, tenure, lane, ticket))
        if is_new:
            self._make_ready(lane)
        self.records += 1
        self.bytes += size
        tenure.records += 1
        tenure.bytes += size
        return True

    def take(self, now_ms: float) -> Entry | None:
        """The next record to handle, if one may be handled now."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            self._make_ready(heapq.heappop(self._waiting)[2])
        not_yet: list[tuple[int, Lane]] = []
        taken: Entry | None = None
        while self._ready and taken is None:
            item = heapq.heappop(self._ready)
            if item[1].queue[0].failures or self._may_begin():
                taken = self._begin(item[1])
            else:
                not_yet.append(item)
        for item in not_yet:
            heapq.heappush(self._ready, item)
        return taken

    def finish(self, entry: Entry) -> bool:
        """The record is handled or a dead letter. False when its partition was revoked."""
        if not entry.tenure.over:
            entry.tenure.prefix.finish(entry.ticket)
        self._leave(entry)
        return not entry.tenure.over

    def retry(self, entry: Entry, due_ms: float) -> bool:
        """Retries at `due_ms`; its lane waits. False when dropped: its partition is being revoked."""
        if entry.tenure.ending:
            self.abandon(entry)
            return False
        lane = entry.lane
        self._stop_running(entry)
        lane.queue.appendleft(entry)
        heapq.heappush(self._waiting, (due_ms, next(self._numbers), lane))
        return True

    def abandon(self, entry: Entry) -> None:
        """Leaves it unfinished, with all records behind it in its lane of the same tenure."""
        while entry.lane.queue and entry.lane.queue[-1].tenure is entry.tenure:
            self._let_go(entry.lane.queue.pop())
        self._leave(entry)

    @property
    def next_due_ms(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    # -- queries -------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.records >= self._limits.records or self.bytes >= self._limits.bytes

    def positions(self) -> dict[TopicPartition, int]:
        """Committable offsets by partition."""
        return {
            partition: tenure.prefix.position
            for partition, tenure in self._tenures.items()
            if tenure.prefix.position is not None
        }

    def loads(self) -> dict[TopicPartition, Load]:
        return {
            partition: Load(records=tenure.records, bytes=tenure.bytes, ahead=len(tenure.prefix))
            for partition, tenure in self._tenures.items()
        }

    # -- inside --------------------------------------------------------------------------------------------

    def _lane_id(self, record: Record, partition: TopicPartition) -> LaneId:
        if self._order == "partition":
            return partition, None
        if self._order == "key" and record.key is not None:
            return partition, record.key
        return partition, record.offset

    def _begin(self, lane: Lane) -> Entry:
        entry = lane.queue.popleft()
        lane.running = entry
        entry.tenure.last_begun = max(entry.tenure.last_begun, entry.number)
        self.running += 1
        return entry

    def _make_ready(self, lane: Lane) -> None:
        heapq.heappush(self._ready, (lane.queue[0].number, lane))

    def _stop_running(self, entry: Entry) -> None:
        entry.lane.running = None
        self.running -= 1

    def _drop(self, partition: TopicPartition, last_begun: int) -> None:
        """Drops waiting records, except those that never failed and stand before the last started one."""
        for lane in [lane for lane in self._lanes.values() if lane.lane_id[0] == partition]:
            failed = bool(lane.queue and lane.queue[0].failures)
            while lane.queue and (failed or lane.queue[-1].number > last_begun):
                self._let_go(lane.queue.pop())
            if lane.running is None and not lane.queue:
                del self._lanes[lane.lane_id]

    def _tidy(self) -> None:
        """Removes empty lanes from the ready and waiting heaps."""
        self._ready = [item for item in self._ready if item[1].queue]
        self._waiting = [item for item in self._waiting if item[2].queue]
        heapq.heapify(self._ready)
        heapq.heapify(self._waiting)

    def _leave(self, entry: Entry) -> None:
        self._stop_running(entry)
        self._let_go(entry)
        if entry.lane.queue:
            self._make_ready(entry.lane)
        else:
            del self._lanes[entry.lane.lane_id]

    def _let_go(self, entry: Entry) -> None:
        self.records -= 1
        self.bytes -= entry.size
        entry.tenure.records -= 1
        entry.tenure.bytes -= entry.size
