# SPDX-License-Identifier: Apache-2.0
"""Fetch (key 1), versions 4 to 18.

Long poll: replies when min_bytes are readable, when max_wait is over, or at once when there is an error.
The first batch is returned even when it is larger than max_bytes. Sessions (KIP-227) from version 7, topic
ids from 13. Consumers read below the high watermark, with read_committed below the last stable offset (R18).
A reply pins the files it is sent from, so the number of partitions with records in it is limited.
Followers (replica_id ≥ 0, from version 15) read to the log end offset, and get a diverging epoch (R12).
With an authorizer, partitions are authorized each time they are read: also after a wait and in a session. A
follower needs ClusterAction (S3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol
from uuid import UUID

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection, PendingReply
from headrace.broker.network.request_tasks import NOT_ANSWERED, RequestTasks
from headrace.broker.network.send_queue import LogSlice, Part
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.commit_tracker import CommitTracker, FetchWaiter
from headrace.broker.partition.fetch_sessions import NO_SESSION, FetchEntry, FetchPlan, FetchSessions
from headrace.broker.partition.leader_role import check_replica
from headrace.broker.partition.partition import ColdRead, Partition, PartitionRead
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.roles import ReplicaFetch
from headrace.broker.quotas.client_throttles import ClientThrottles
from headrace.broker.replication.leader_hints import NO_HINT, LeaderHints
from headrace.broker.security.authorization import Authorization
from headrace.broker.security.node_login import check_node
from headrace.errors import ApiError
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.fetch import FetchRequest, FetchResult, write_fetch_reply
from headrace.world import Clock, Tasks, Thread

logger = logging.getLogger(__name__)

_FETCH = ApiKey.FETCH.value
TOPIC_IDS_FROM = 13
READ_COMMITTED = 1
ZSTD_FROM = 10
CONSUMER = -1
LONGEST_WAIT_MS = 5 * 60 * 1000
"""A client that dies while it waits may go unnoticed: a longer wait would keep its connection open."""

COLD_TRIES = 16
"""How often a thread reads records of a partition into memory; then the event loop waits for the disk."""
MOST_AT_ONCE = 500
"""Partitions of a request that are read without letting other connections run."""

TopicResults = tuple[str | None, UUID | None, list[FetchResult]]


class FirstFetches(Protocol):
    @property
    def waiting(self) -> Sized: ...


class FetchObserver(Protocol):
    """The group timeline: called with fetches while it waits for the first one of a new assignment."""

    @property
    def first_fetches(self) -> FirstFetches: ...

    @property
    def moved(self) -> Sized: ...

    def fetched(
        self, connection: KafkaConnection, client_id: str | None, entries: list[FetchEntry]
    ) -> None: ...


class FetchHandler:
    """`codec` is the thread for long messages."""

    def __init__(
        self,
        *,
        node_id: int,
        view: Callable[[], ClusterView],
        partitions: Partitions,
        clock: Clock,
        tasks: Tasks,
        random: Random,
        metrics: Metrics,
        codec: Thread,
        cold_reads: Thread,
        request_tasks: RequestTasks,
        timeline: FetchObserver,
        throttles: ClientThrottles,
        max_bytes: int,
        session_slots: int,
        authorization: Authorization | None = None,
    ) -> None:
        self.request_tasks = request_tasks
        self.codec = codec
        self.cold_reads = cold_reads
        self.partitions = partitions
        self.hints = LeaderHints(node_id, view)
        self.metrics = metrics
        self.clock = clock
        self.tasks = tasks
        self.throttles = throttles
        self.max_bytes = max_bytes
        self.authorization = authorization
        self.view = view
        self._timeline = timeline
        self._first_fetches_of = timeline.first_fetches.waiting
        self._groups_moved = timeline.moved
        self._sessions = FetchSessions(random, session_slots)

    def __call__(
        self, connection: KafkaConnection, header: RequestHeader, request: FetchRequest, started: float
    ) -> None:
        try:
            if request.replica_id > CONSUMER:
                check_node(self.view(), connection.principal, request.replica_id)
                check_replica(self.view(), request.replica_id, request.replica_epoch)
            by_id = header.api_version >= TOPIC_IDS_FROM
            plan = self._sessions.plan(request, by_id=by_id, now=started)
        except ApiError as error:
            self.metrics.request_error(_FETCH, error.code, connection.activity)
            version, correlation_id = header.api_version, header.correlation_id
            connection.reply([*write_fetch_reply(version, correlation_id, error.code, NO_SESSION, [])])
            return
        if self._first_fetches_of or self._groups_moved:
            self._timeline.fetched(connection, header.client_id, plan.entries)
        _Fetch(self, connection, header, request, plan, started).attempt()


@dataclass(slots=True, kw_only=True, eq=False)
class Outcome:
    """Results and records of one reading of all partitions of a request."""

    bytes_left: int
    """How much more the reply may hold."""
    must_reply: bool
    """There is an error, or more to read than the reply can hold: it would not help to wait."""
    results: list[tuple[FetchEntry, FetchResult]] = field(default_factory=list)
    slices: list[LogSlice] = field(default_factory=list)
    size: int = 0
    """Of the slices."""
    waits_for: list[CommitTracker] = field(default_factory=list)
    """Of the partitions that could be read."""

    def release(self) -> None:
        for part in self.slices:
            part.release()


class _Fetch:
    """One fetch request; read in a task if it has many partitions or records are not in the page cache."""

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
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._pending: PendingReply | None = None
        self._throttle_ms = 0
        self._leaders: list[int] = []
        """Leaders named in errors, whose endpoints the reply contains."""

    def attempt(self) -> None:
        """Reads all partitions and replies, or waits once until there is more to read."""
        if len(self._plan.entries) > MOST_AT_ONCE:
            self._handler.request_tasks.start(self._connection, self._attempt_in_task())
            return
        try:
            outcome = self._read_all()
        except ColdRead as cold:
            cold.release()
            self._handler.request_tasks.start(self._connection, self._attempt_in_task())
            return
        if self._suffices(outcome):
            self._send(self._empty_reply(outcome) or self._reply(outcome))
        else:
            self._wait(outcome)

    async def _attempt_in_task(self) -> None:
        """The same for many partitions, or for records that have to be read from disk first."""
        outcome = await self._read_all_in_task()
        if self._suffices(outcome):
            self._send(self._empty_reply(outcome) or await self._long_reply(outcome))
        else:
            self._wait(outcome)

    def _suffices(self, outcome: Outcome) -> bool:
        request = self._request
        return (
            self._pending is not None  # it has waited
            or outcome.must_reply
            or outcome.size >= request.min_bytes
            or request.max_wait_ms <= 0
        )

    def _send(self, parts: list[Part]) -> None:
        if self._pending is not None:
            self._pending.complete(parts)
            return
        self._connection.reply(parts)
        handler = self._handler
        handler.metrics.request_done(_FETCH, handler.clock.monotonic() - self._started)

    # Long poll

    def _wait(self, outcome: Outcome) -> None:
        """Until min_bytes are readable or max_wait is over; the connection starts no other request."""
        outcome.release()
        request, connection = self._request, self._connection
        if connection.closed:
            return
        from_replica = request.replica_id > CONSUMER
        self._pending = connection.expect_reply(_FETCH, self._started)
        connection.block()
        waiter = FetchWaiter(
            outcome.waits_for,
            request.min_bytes - outcome.size,
            self._woken,
            of_replica=from_replica,
            committed_only=self._committed_only,
        )
        wait_ms = min(request.max_wait_ms, LONGEST_WAIT_MS)
        waiter.start_timer(self._handler.tasks.call_later(wait_ms / 1000, waiter.finish))
        connection.on_close = waiter.cancel
        if from_replica:  # its next request asks for more than this one waits for
            connection.on_more = waiter.finish

    def _woken(self) -> None:
        connection = self._connection
        connection.on_close = connection.on_more = None
        try:
            self.attempt()
        except Exception:
            logger.exception("fetch from %s failed", connection.peer)
            connection.refuse(NOT_ANSWERED)
            return
        connection.unblock()

    # Reading

    async def _read_all_in_task(self) -> Outcome:
        outcome = self._new_outcome()
        try:
            async for entry in yielding(self._plan.entries, MOST_AT_ONCE):
                await self._read_warm(outcome, entry)
        except BaseException:
            outcome.release()
            raise
        return outcome

    async def _read_warm(self, outcome: Outcome, entry: FetchEntry) -> None:
        """A thread brings records that are not in the page cache there first."""
        for tries_left in reversed(range(COLD_TRIES)):
            try:
                self._read_entry(outcome, entry, wait=not tries_left)
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

    def _new_outcome(self) -> Outcome:
        handler = self._handler
        max_bytes = min(self._request.max_bytes, handler.max_bytes)
        if handler.throttles.active and self._request.replica_id == CONSUMER:
            allowed = handler.throttles.fetch_max_bytes(self._connection.principal, self._header.client_id)
            max_bytes = int(min(max_bytes, allowed))
        return Outcome(bytes_left=max_bytes, must_reply=not self._plan.entries)

    def _read_all(self) -> Outcome:
        """Raises ColdRead when the event loop would have to wait for the disk."""
        outcome = self._new_outcome()
        try:
            for entry in self._plan.entries:
                self._read_entry(outcome, entry, wait=False)
        except BaseException:
            outcome.release()
            raise
        return outcome

    def _authorize(self, authorization: Authorization, entry: FetchEntry) -> None:
        """Raises ApiError. A topic id that does not exist is left to the look-up."""
        connection = self._connection
        access = connection.access or authorization.access(connection)
        if self._request.replica_id > CONSUMER:
            asked = Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
            if access.allows(*asked):
                return
        else:
            name = entry.name
            if name is None and entry.topic_id is not None:
                name = self._handler.view().topic_names.get(entry.topic_id)
            if name is None or access.readable[name]:
                return
            asked = Operation.READ, ResourceType.TOPIC, name
        authorization.refuse(connection, _FETCH, *asked)
        raise ApiError(ErrorCode.topic_authorization_failed)

    def _read_entry(self, outcome: Outcome, entry: FetchEntry, *, wait: bool) -> None:
        handler, index, first = self._handler, entry.partition.index, not outcome.slices
        may_add = first or len(outcome.slices) < handler.partitions.slices_per_reply
        max_bytes = outcome.bytes_left if may_add else 0
        try:
            if handler.authorization is not None:
                self._authorize(handler.authorization, entry)
            partition = handler.partitions.find(entry.name, entry.topic_id, index)
            read = self._read(partition, entry, max_bytes, first=first, wait=wait)
        except ApiError as error:
            outcome.must_reply = True
            handler.metrics.request_error(_FETCH, error.code, self._connection.activity)
            outcome.results.append((entry, self._error(entry, error.code)))
            return
        high_watermark, last_stable_offset, log_start_offset, records, more, diverging, aborted = read
        size = 0
        outcome.waits_for.append(partition.commits)
        if records is not None:
            size = records.size
            outcome.slices.append(records)
            outcome.size += size
            outcome.bytes_left -= size
        outcome.must_reply = outcome.must_reply or more
        result = FetchResult(
            index,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted if self._committed_only else None,
            size=size,
            diverging=diverging,
        )
        outcome.results.append((entry, result))

    def _read(
        self, partition: Partition, entry: FetchEntry, max_bytes: int, *, first: bool, wait: bool
    ) -> PartitionRead:
        wanted, request = entry.partition, self._request
        max_bytes = min(max_bytes, wanted.max_bytes)
        if request.replica_id > CONSUMER:
            asked = ReplicaFetch(
                request.replica_id,
                request.replica_epoch,
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
            )
            return partition.read_as_replica(asked, max_bytes, at_least_one=first, wait=wait)
        read = partition.read(
            wanted.fetch_offset,
            max_bytes,
            leader_epoch=wanted.current_leader_epoch,
            zstd_known=self._header.api_version >= ZSTD_FROM,
            committed_only=self._committed_only,
            at_least_one=first,
            wait=wait,
        )
        offset, client_id, records = wanted.fetch_offset, self._header.client_id, read.records
        sent = records is not None
        again = partition.readers.note(self._connection.peer, client_id, offset, self._started, sent=sent)
        if again and records is not None:
            partition.check_records(records, offset)
        return read

    def _error(self, entry: FetchEntry, code: ErrorCode) -> FetchResult:
        aborted = () if self._committed_only else None
        log_start = -1
        if code is ErrorCode.offset_out_of_range and self._request.replica_id > CONSUMER:
            # A follower that is too far behind starts again from there.
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

    def _empty_reply(self, outcome: Outcome) -> list[Part] | None:
        """For a client that has exceeded its quota of bytes; the fetch session stays as it is."""
        throttles = self._handler.throttles
        if not throttles.active or self._request.replica_id > CONSUMER:
            return None
        self._throttle_ms, empty = throttles.fetched(self._connection, self._header.client_id, outcome.size)
        if not empty:
            return None
        outcome.release()
        version, correlation_id = self._header.api_version, self._header.correlation_id
        chunks = write_fetch_reply(
            version,
            correlation_id,
            ErrorCode.none,
            self._plan.session_id,
            [],
            throttle_ms=self._throttle_ms,
        )
        return [*chunks]

    def _reply(self, outcome: Outcome) -> list[Part]:
        return _with_records(self._reply_writer(outcome)(), outcome.slices)

    async def _long_reply(self, outcome: Outcome) -> list[Part]:
        try:
            chunks = await self._handler.codec.run(self._reply_writer(outcome))
        except BaseException:
            outcome.release()
            raise
        return _with_records(chunks, outcome.slices)

    def _reply_writer(self, outcome: Outcome) -> Callable[[], list[bytes]]:
        header = self._header
        leaders, listener = self._leaders, self._connection.listener
        endpoints = self._handler.hints.endpoints(leaders, listener) if leaders else ()
        return partial(
            write_fetch_reply,
            header.api_version,
            header.correlation_id,
            ErrorCode.none,
            self._plan.session_id,
            self._changed(outcome.results),
            throttle_ms=self._throttle_ms,
            node_endpoints=endpoints,
        )

    def _changed(self, results: list[tuple[FetchEntry, FetchResult]]) -> list[TopicResults]:
        """Results by topic; in an incremental fetch only those that differ from the last reply.

        A topic appears again where the request named another in between: records follow in this order.
        """
        topics: list[TopicResults] = []
        session = self._plan.session
        for entry, result in results:
            if session is not None:
                changed = session.note_result(entry, result)
                if self._plan.incremental and not changed:
                    continue
            topic = entry.name, entry.topic_id
            if not topics or topics[-1][:2] != topic:
                topics.append((*topic, []))
            topics[-1][2].append(result)
        return topics


def _with_records(chunks: list[bytes], slices: list[LogSlice]) -> list[Part]:
    """The records of each partition between the chunks of the frame."""
    if not slices:
        return [*chunks]
    parts: list[Part] = []
    for chunk, records in zip(chunks, slices, strict=False):
        parts += (chunk, records)
    parts.append(chunks[-1])
    return parts
