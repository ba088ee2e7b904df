"""Fetch (key 1), versions 4 to 18.

Long poll: answers when min_bytes are readable, when max_wait is over, or at once when anything is wrong.
The first batch is returned even when it is larger than max_bytes. Sessions (KIP-227) from version 7, topic
ids from 13. Readers see what is below the high watermark, with read_committed below the last stable offset
(R18). A reply pins the files it is sent from, so it holds slices of at most so many partitions.
Not served yet: fetches of followers (replica_id ≥ 0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.fetch_sessions import NO_SESSION, FetchEntry, FetchPlan, FetchSessions
from headrace.broker.partition import ZSTD, ColdRead, Partition, PartitionRead
from headrace.broker.waiters import FetchWaiter
from headrace.errors import ApiError
from headrace.wire.api_table import RequestHeader
from headrace.wire.error_codes import ErrorCode
from headrace.wire.produce_fetch import FetchRequest, FetchResult, read_fetch, write_fetch_reply

if TYPE_CHECKING:
    from headrace.broker.node import Broker
    from headrace.broker.outbox import Part
    from headrace.log.log_slice import LogSlice

logger = logging.getLogger(__name__)

FETCH_KEY = 1
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
ZSTD_FROM = 10
CONSUMER = -1
LONGEST_WAIT_MS = 5 * 60 * 1000
"""While a client waits, its end may go unnoticed: a wait of days would keep a dead one's connection."""

COLD_TRIES = 16
"""So often a request has something brought into memory; then it waits for the disk where it is."""

TopicResults = tuple[str | None, UUID | None, list[FetchResult]]
StartTask = Callable[[KafkaConnection, Coroutine[Any, Any, None]], None]
"""Runs the rest of a request in a task; nothing else of the connection starts meanwhile."""


class FetchHandler:
    def __init__(self, broker: Broker, start_task: StartTask) -> None:
        self.start_task = start_task
        self.cold_reads = broker.hub.cold_reads
        self.partitions = broker.partitions
        self.metrics = broker.metrics
        self.clock = broker.world.clock
        self.tasks = broker.world.tasks
        self.max_bytes: int = broker.config["fetch.max.bytes"]
        self._sessions = FetchSessions(
            broker.world.random, broker.config["max.incremental.fetch.session.cache.slots"]
        )

    def __call__(
        self, connection: KafkaConnection, header: RequestHeader, view: memoryview, end: int, started: float
    ) -> None:
        request = read_fetch(view, header.body_position, end, header.api_version)
        try:
            plan = self._plan(request, header, started)
        except ApiError as error:
            self.metrics.request_error(FETCH_KEY, error.code)
            frame = write_fetch_reply(
                header.api_version, header.correlation_id, error.code, NO_SESSION, []
            )
            connection.reply([*frame])
            return
        _Fetch(self, connection, header, request, plan).start(started)

    def _plan(self, request: FetchRequest, header: RequestHeader, now: float) -> FetchPlan:
        if request.replica_id > CONSUMER:
            raise ApiError(ErrorCode.cluster_authorization_failed, "there are no followers on one node")
        return self._sessions.plan(request, by_id=header.api_version >= TOPIC_IDS_FROM, now=now)


class _Outcome(NamedTuple):
    """One look at all partitions of a request."""

    results: list[tuple[FetchEntry, FetchResult]]
    slices: list[LogSlice]
    readable: list[Partition]
    full: bool = False
    """There is more than this reply can hold, or an error to tell: waiting would not make it better."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.slices)

    def release(self) -> None:
        for part in self.slices:
            part.release()


class _Fetch:
    """One fetch request from its first look at the log to its reply."""

    def __init__(
        self,
        handler: FetchHandler,
        connection: KafkaConnection,
        header: RequestHeader,
        request: FetchRequest,
        plan: FetchPlan,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._header = header
        self._request = request
        self._plan = plan
        self._pending: PendingReply | None = None

    def start(self, started: float) -> None:
        try:
            outcome = self._look(wait=False)
        except ColdRead as cold:
            self._handler.start_task(self._connection, self._answer_cold(cold, started))
            return
        request = self._request
        if outcome.full or outcome.size >= request.min_bytes or request.max_wait_ms <= 0:
            self._connection.reply(self._reply(outcome))
            handler = self._handler
            handler.metrics.request_done(FETCH_KEY, handler.clock.monotonic() - started)
            return
        outcome.release()
        self._pending = self._connection.expect_reply(FETCH_KEY, started)
        self._wait(outcome)

    async def _answer_cold(self, cold: ColdRead, started: float) -> None:
        """What is on disk only is there already: whatever of it is found is the answer."""
        handler = self._handler
        for tries_left in reversed(range(COLD_TRIES)):
            try:
                await handler.cold_reads.run(cold.warm)
            except OSError as error:
                logger.warning("%s, and could not be read: %s", cold, error)
            finally:
                cold.release()
            try:
                outcome = self._look(wait=not tries_left)
                break
            except ColdRead as more:
                cold = more
        self._connection.reply(self._reply(outcome))
        handler.metrics.request_done(FETCH_KEY, handler.clock.monotonic() - started)

    def _wait(self, outcome: _Outcome) -> None:
        connection, handler = self._connection, self._handler
        connection.block()
        waiter = FetchWaiter(outcome.readable, self._request.min_bytes - outcome.size, self._finish)
        wait_ms = min(self._request.max_wait_ms, LONGEST_WAIT_MS)
        waiter.start_timer(handler.tasks.call_later(wait_ms / 1000, waiter.finish))
        connection.on_close = waiter.cancel

    def _finish(self) -> None:
        connection = self._connection
        connection.on_close = None
        assert self._pending is not None
        try:
            reply = self._reply(self._look(wait=True))
        except Exception:
            logger.exception("fetch from %s failed", connection.peer)
            connection.refuse("the request could not be answered; see the line before")
            return
        self._pending.complete(reply)
        connection.unblock()

    def _look(self, *, wait: bool) -> _Outcome:
        outcome = _Outcome([], [], [])
        try:
            return self._look_at_all(outcome, wait)
        except BaseException:
            outcome.release()
            raise

    def _look_at_all(self, outcome: _Outcome, wait: bool) -> _Outcome:
        handler, entries = self._handler, self._plan.entries
        left = min(self._request.max_bytes, handler.max_bytes)
        most_slices = handler.partitions.slices_per_reply
        full = not entries
        for entry in entries:
            try:
                partition = handler.partitions.find(entry.name, entry.topic_id, entry.partition.index)
                budget = left if len(outcome.slices) < most_slices else 0
                read = self._read(partition, entry, budget, first=not outcome.slices, wait=wait)
            except ApiError as error:
                full = True
                handler.metrics.request_error(FETCH_KEY, error.code)
                outcome.results.append((entry, self._error(entry, error.code)))
                continue
            outcome.readable.append(partition)
            if read.records is not None:
                outcome.slices.append(read.records)
                left -= read.records.size
            full = full or read.more
            outcome.results.append((entry, self._result(entry, read)))
        return outcome._replace(full=full)

    def _read(
        self, partition: Partition, entry: FetchEntry, budget: int, *, first: bool, wait: bool
    ) -> PartitionRead:
        wanted = entry.partition
        partition.check_leader_epoch(wanted.current_leader_epoch)
        if self._header.api_version < ZSTD_FROM and partition.settings.codec == ZSTD:
            raise ApiError(ErrorCode.unsupported_compression_type)
        return partition.read(
            wanted.fetch_offset,
            min(budget, wanted.max_bytes),
            committed_only=self._request.isolation_level == READ_COMMITTED,
            at_least_one=first,
            wait=wait,
        )

    def _result(self, entry: FetchEntry, read: PartitionRead) -> FetchResult:
        return FetchResult(
            entry.partition.index,
            0,
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            () if self._request.isolation_level == READ_COMMITTED else None,
            size=0 if read.records is None else read.records.size,
        )

    def _error(self, entry: FetchEntry, code: ErrorCode) -> FetchResult:
        aborted = () if self._request.isolation_level == READ_COMMITTED else None
        return FetchResult(entry.partition.index, code, aborted=aborted)

    def _reply(self, outcome: _Outcome) -> list[Part]:
        chunks = write_fetch_reply(
            self._header.api_version,
            self._header.correlation_id,
            ErrorCode.none,
            self._plan.session_id,
            self._told(outcome.results),
        )
        if not outcome.slices:
            return [*chunks]
        parts: list[Part] = []
        for chunk, records in zip(chunks, outcome.slices, strict=False):
            parts += (chunk, records)
        parts.append(chunks[-1])
        return parts

    def _told(self, results: list[tuple[FetchEntry, FetchResult]]) -> list[TopicResults]:
        """Results by topic; in an incremental fetch only those that say something new."""
        topics: dict[object, TopicResults] = {}
        session = self._plan.session
        for entry, result in results:
            if session is not None:
                news = _is_news(entry, result)
                entry.told_high_watermark = result.high_watermark
                entry.log_start_offset = result.log_start_offset
                if result.size:
                    session.served(entry)
                if self._plan.incremental and not news:
                    continue
            topic = topics.setdefault(entry.topic_key, (entry.name, entry.topic_id, []))
            topic[2].append(result)
        return list(topics.values())


def _is_news(entry: FetchEntry, result: FetchResult) -> bool:
    return (
        result.size > 0
        or result.error_code != 0
        or result.high_watermark != entry.told_high_watermark
        or result.log_start_offset != entry.log_start_offset
    )
