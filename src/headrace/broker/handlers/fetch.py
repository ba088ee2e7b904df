"""Fetch (key 1), versions 4 to 18.

Long poll: answers when min_bytes are readable, when max_wait is over, or at once when anything is wrong.
The first batch is returned even when it is larger than max_bytes. Sessions (KIP-227) from version 7, topic
ids from 13. Readers see what is below the high watermark, with read_committed below the last stable offset
(R18). A reply pins the files it is sent from, so it holds slices of at most so many partitions.
Followers (replica_id ≥ 0, from version 15) read to the log's end and are told where their log parts (R12).
Gap: no ACLs, so a registered node's id and epoch are believed (S3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.fetch_outcome import Outcome, is_news, reply_parts
from headrace.broker.fetch_sessions import NO_SESSION, FetchEntry, FetchPlan, FetchSessions
from headrace.broker.leader_hints import NO_HINT, LeaderHints
from headrace.broker.partition import ZSTD, ColdRead, Partition, PartitionRead
from headrace.broker.replica_role import ReplicaFetch, check_replica
from headrace.broker.turns import in_turns
from headrace.broker.waiters import FetchWaiter
from headrace.errors import ApiError
from headrace.wire.api_table import RequestHeader
from headrace.wire.error_codes import ErrorCode
from headrace.wire.produce_fetch import FetchRequest, FetchResult, read_fetch, write_fetch_reply
from headrace.wire.topic_entries import NodeEndpoint
from headrace.world import Thread

if TYPE_CHECKING:
    from headrace.broker.node import Broker
    from headrace.broker.outbox import Part

logger = logging.getLogger(__name__)

FETCH_KEY = 1
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
ZSTD_FROM = 10
CONSUMER = -1
LONGEST_WAIT_MS = 5 * 60 * 1000
"""While a client waits, its end may go unnoticed: a wait of days would keep a dead one's connection."""

COLD_TRIES = 16
"""So often a look at a partition has something brought into memory; then it waits for the disk."""
MOST_AT_ONCE = 500
"""Partitions of a request that are looked at in one turn of the loop."""

TopicResults = tuple[str | None, UUID | None, list[FetchResult]]
StartTask = Callable[[KafkaConnection, Coroutine[Any, Any, None]], None]
"""Runs the rest of a request in a task; nothing else of the connection starts meanwhile."""


class FetchHandler:
    """`codec` is the thread for long messages."""

    def __init__(self, broker: Broker, start_task: StartTask, codec: Thread) -> None:
        self.start_task = start_task
        self.codec = codec
        self.cold_reads = broker.hub.cold_reads
        self.partitions = broker.partitions
        self._cluster = broker.cluster
        self.hints = LeaderHints(broker.node_id, lambda: broker.cluster.view)
        self.metrics = broker.metrics
        self.clock = broker.world.clock
        self.tasks = broker.world.tasks
        self.max_bytes: int = broker.config["fetch.max.bytes"]
        self._timeline = broker.timeline
        self._first_fetches_of = broker.timeline.first_fetches.waiting
        self._groups_moved = broker.timeline.moved
        self.waiting: dict[FetchWaiter, None] = {}
        """Of the requests that are answered in a task."""
        self._sessions = FetchSessions(
            broker.world.random, broker.config["max.incremental.fetch.session.cache.slots"]
        )

    def __call__(
        self, connection: KafkaConnection, header: RequestHeader, view: memoryview, end: int, started: float
    ) -> None:
        request = read_fetch(view, header.body_position, end, header.api_version)
        fetch = self._planned(connection, header, request, started)
        if fetch is not None:
            fetch.start()

    async def answer(
        self, connection: KafkaConnection, header: RequestHeader, request: FetchRequest, started: float
    ) -> None:
        """For requests that are too large to be handled at once."""
        fetch = self._planned(connection, header, request, started)
        if fetch is not None:
            await fetch.answer_in_turns()

    def end_waits(self) -> None:
        """The node stops: who waits in a task gets what there is."""
        for waiter in list(self.waiting):
            waiter.finish()

    def _planned(
        self, connection: KafkaConnection, header: RequestHeader, request: FetchRequest, started: float
    ) -> _Fetch | None:
        try:
            plan = self._plan(request, header, started)
        except ApiError as error:
            self.metrics.request_error(FETCH_KEY, error.code)
            frame = write_fetch_reply(
                header.api_version, header.correlation_id, error.code, NO_SESSION, []
            )
            connection.reply([*frame])
            return None
        if self._first_fetches_of or self._groups_moved:
            self._timeline.fetched(connection, header.client_id, plan.entries)
        return _Fetch(self, connection, header, request, plan, started)

    def _plan(self, request: FetchRequest, header: RequestHeader, now: float) -> FetchPlan:
        if request.replica_id > CONSUMER:
            check_replica(self._cluster.view, request.replica_id, request.replica_epoch)
        return self._sessions.plan(request, by_id=header.api_version >= TOPIC_IDS_FROM, now=now)


class _Fetch:
    """One fetch request from its first look at the log to its reply.

    At once, in the read that brought it, when what it asks for is little and in memory; else in a task.
    """

    def __init__(
        self,
        handler: FetchHandler,
        connection: KafkaConnection,
        header: RequestHeader,
        request: FetchRequest,
        plan: FetchPlan,
        started: float,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._header = header
        self._request = request
        self._plan = plan
        self._started = started
        self._pending: PendingReply | None = None
        self._leaders: list[int] = []
        """Who was named to lead instead."""

    def start(self) -> None:
        if len(self._plan.entries) > MOST_AT_ONCE:
            self._handler.start_task(self._connection, self.answer_in_turns())
            return
        try:
            outcome = self._look(wait=False)
        except ColdRead as cold:
            cold.release()
            self._handler.start_task(self._connection, self.answer_in_turns())
            return
        if self._suffices(outcome):
            self._connection.reply(self._reply(outcome))
            self._done()
            return
        outcome.release()
        self._pending = self._connection.expect_reply(FETCH_KEY, self._started)
        self._connection.block()
        waiter = self._waiter(outcome, self._finish)
        self._connection.on_close = waiter.cancel
        self._let_go_when_asked(waiter)

    def _suffices(self, outcome: Outcome) -> bool:
        request = self._request
        return outcome.full or outcome.size >= request.min_bytes or request.max_wait_ms <= 0

    def _waiter(self, outcome: Outcome, complete: Callable[[], None]) -> FetchWaiter:
        waiter = FetchWaiter(
            outcome.readable,
            self._request.min_bytes - outcome.size,
            complete,
            of_replica=self._request.replica_id > CONSUMER,
        )
        wait_ms = min(self._request.max_wait_ms, LONGEST_WAIT_MS)
        waiter.start_timer(self._handler.tasks.call_later(wait_ms / 1000, waiter.finish))
        return waiter

    def _let_go_when_asked(self, waiter: FetchWaiter) -> None:
        """A replica that asks again has more to ask for than what is waited for here."""
        if self._request.replica_id > CONSUMER:
            self._connection.on_more = waiter.finish

    def _finish(self) -> None:
        connection = self._connection
        connection.on_close = connection.on_more = None
        assert self._pending is not None
        try:
            reply = self._reply(self._look(wait=True))
        except Exception:
            logger.exception("fetch from %s failed", connection.peer)
            connection.refuse("the request could not be answered; see the line before")
            return
        self._pending.complete(reply)
        connection.unblock()

    def _done(self) -> None:
        handler = self._handler
        handler.metrics.request_done(FETCH_KEY, handler.clock.monotonic() - self._started)

    # In a task

    async def answer_in_turns(self) -> None:
        outcome = await self._look_in_turns()
        if not self._suffices(outcome):
            outcome.release()
            await self._more_or_late(outcome)
            if self._connection.closed:
                return
            outcome = await self._look_in_turns()
        self._connection.reply(await self._long_reply(outcome))
        self._done()

    async def _look_in_turns(self) -> Outcome:
        outcome = self._new_outcome()
        try:
            async for entry in in_turns(self._plan.entries, MOST_AT_ONCE):
                await self._look_at_warm(outcome, entry)
        except BaseException:
            outcome.release()
            raise
        return outcome

    async def _look_at_warm(self, outcome: Outcome, entry: FetchEntry) -> None:
        """What is on disk only is brought into memory by a thread first."""
        for tries_left in reversed(range(COLD_TRIES)):
            try:
                self._look_at(outcome, entry, wait=not tries_left)
                return
            except ColdRead as cold:
                await self._warm(cold)

    async def _warm(self, cold: ColdRead) -> None:
        try:
            await self._handler.cold_reads.run(cold.warm)
        except OSError as error:
            logger.warning("%s, and could not be read: %s", cold, error)
        finally:
            cold.release()

    async def _more_or_late(self, outcome: Outcome) -> None:
        woken = asyncio.Event()
        waiter = self._waiter(outcome, woken.set)
        self._connection.on_close = waiter.finish
        self._let_go_when_asked(waiter)
        self._handler.waiting[waiter] = None
        try:
            await woken.wait()
        finally:
            waiter.cancel()
            del self._handler.waiting[waiter]
            self._connection.on_close = self._connection.on_more = None

    async def _long_reply(self, outcome: Outcome) -> list[Part]:
        try:
            write = partial(write_fetch_reply, node_endpoints=self._endpoints())
            chunks = await self._handler.codec.run(write, *self._told(outcome))
        except BaseException:
            outcome.release()
            raise
        return reply_parts(chunks, outcome.slices)

    # What there is

    def _new_outcome(self) -> Outcome:
        outcome = Outcome(min(self._request.max_bytes, self._handler.max_bytes))
        outcome.full = not self._plan.entries
        return outcome

    def _look(self, *, wait: bool) -> Outcome:
        """Raises ColdRead when the disk would be waited for, unless `wait`."""
        outcome = self._new_outcome()
        try:
            for entry in self._plan.entries:
                self._look_at(outcome, entry, wait=wait)
        except BaseException:
            outcome.release()
            raise
        return outcome

    def _look_at(self, outcome: Outcome, entry: FetchEntry, *, wait: bool) -> None:
        handler = self._handler
        budget = outcome.left if len(outcome.slices) < handler.partitions.slices_per_reply else 0
        try:
            partition = handler.partitions.find(entry.name, entry.topic_id, entry.partition.index)
            read = self._read(partition, entry, budget, first=not outcome.slices, wait=wait)
        except ApiError as error:
            outcome.full = True
            handler.metrics.request_error(FETCH_KEY, error.code)
            outcome.results.append((entry, self._error(entry, error.code)))
            return
        outcome.readable.append(partition)
        if read.records is not None:
            outcome.slices.append(read.records)
            outcome.left -= read.records.size
        outcome.full = outcome.full or read.more
        outcome.results.append((entry, self._result(entry, read)))

    def _read(
        self, partition: Partition, entry: FetchEntry, budget: int, *, first: bool, wait: bool
    ) -> PartitionRead:
        wanted = entry.partition
        if self._request.replica_id > CONSUMER:
            asked = ReplicaFetch(
                self._request.replica_id,
                self._request.replica_epoch,
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
            )
            return partition.read_as_replica(
                asked, min(budget, wanted.max_bytes), at_least_one=first, wait=wait
            )
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
            diverging=read.diverging,
        )

    def _error(self, entry: FetchEntry, code: ErrorCode) -> FetchResult:
        aborted = () if self._request.isolation_level == READ_COMMITTED else None
        log_start = -1
        if code is ErrorCode.offset_out_of_range and self._request.replica_id > CONSUMER:
            # A replica that is too far behind begins there anew.
            partitions = self._handler.partitions
            log_start = partitions.find(entry.name, entry.topic_id, entry.partition.index).log_start_offset
        index = entry.partition.index
        hint = self._handler.hints.hint(code, entry.name, entry.topic_id, index)
        if hint is not NO_HINT:
            self._leaders.append(hint.leader)
        return FetchResult(
            index,
            code,
            log_start_offset=log_start,
            aborted=aborted,
            leader_id=hint.leader,
            leader_epoch=hint.leader_epoch,
        )

    # The reply

    def _reply(self, outcome: Outcome) -> list[Part]:
        chunks = write_fetch_reply(*self._told(outcome), node_endpoints=self._endpoints())
        return reply_parts(chunks, outcome.slices)

    def _endpoints(self) -> list[NodeEndpoint]:
        if not self._leaders:
            return []
        return self._handler.hints.endpoints(self._leaders, self._connection.listener)

    def _told(self, outcome: Outcome) -> tuple[int, int, int, int, list[TopicResults]]:
        """What the reply is written from."""
        header = self._header
        topics = self._news(outcome.results)
        return header.api_version, header.correlation_id, ErrorCode.none, self._plan.session_id, topics

    def _news(self, results: list[tuple[FetchEntry, FetchResult]]) -> list[TopicResults]:
        """Results by topic; in an incremental fetch only those that say something new."""
        topics: dict[object, TopicResults] = {}
        session = self._plan.session
        for entry, result in results:
            if session is not None:
                news = is_news(entry, result)
                entry.told_high_watermark = result.high_watermark
                entry.log_start_offset = result.log_start_offset
                if result.size:
                    session.served(entry)
                if self._plan.incremental and not news:
                    continue
            topic = topics.setdefault(entry.topic_key, (entry.name, entry.topic_id, []))
            topic[2].append(result)
        return list(topics.values())
