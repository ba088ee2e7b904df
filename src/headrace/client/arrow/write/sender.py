# SPDX-License-Identifier: Apache-2.0
"""Sends encoded batches: several in flight per partition, in order, retried until acknowledged.

Runs on one event loop. The sequence numbers of an idempotent producer make retries of the same bytes safe;
with acks=0 nothing is retried. Read next: client/network_client.py, writer.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from headrace.client.arrow.write.encode import NOBODY, Producer
from headrace.client.arrow.write.results import Delivered, Refusal, WriteFailed
from headrace.client.connection import Connection, ConnectionLost
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import LOST, Backoff, retry
from headrace.client.topic_creation import Create, find_or_create
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.produce_request import FIRST_BY_ID, produce_request

IN_FLIGHT = 5
"""Batches of a partition in flight: as many as a leader remembers of each idempotent producer."""
_REPLY_GRACE_MS = 10_000
_PAUSE_AFTER_A_TRANSACTION_MS = 20
"""Brokers refuse batches of a transaction until the one before is complete: a matter of milliseconds."""
_KNOWN_ALREADY = ErrorCode.duplicate_sequence_number
_OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number


@dataclass(slots=True, kw_only=True, eq=False)
class Outgoing:
    """A batch to be sent. `rows` are row numbers of the whole input, in the order of the batch's records."""

    partition: int
    batch: bytearray
    rows: Sequence[int]
    base_offset: int = -1
    """Its base offset once it is acknowledged; -1 if the broker answered that it is a duplicate."""


class OpenTransaction(Protocol):
    """The open transaction that batches are part of."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def producer(self) -> Producer: ...

    @property
    def newest_produce(self) -> int:
        """The highest version of Produce to use."""

    async def add_partition(self, topic: str, partition: int) -> None:
        """Before the first batch for a partition."""


class Sender:
    """`open`, `put` for every batch, `finish`; each raises the error of a batch that failed."""

    def __init__(
        self,
        client: NetworkClient,
        topic: str,
        *,
        acks: int,
        budget: int,
        timeout_ms: int,
        transaction: OpenTransaction | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._transaction = transaction
        self._budget = budget
        self.timeout_ms = timeout_ms
        self._view: TopicView | None = None
        self._partition_senders: dict[int, _PartitionSender] = {}
        self._held = 0
        self._changed = asyncio.Condition()
        self._entrance = asyncio.Lock()  # keeps the order of calls
        self._failure: BaseException | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self.delivered = Delivered(topic)

    async def open(self, *, idempotent: bool, create: Create = False) -> Producer:
        self._view = await find_or_create(self._client, self._topic, create)
        if self._transaction is not None:
            return self._transaction.producer
        return await self._producer() if idempotent else NOBODY

    @property
    def partitions(self) -> int:
        assert self._view is not None
        return len(self._view.leaders)

    async def put(self, outgoing: Outgoing) -> None:
        """Returns when the batch is queued; waits while more bytes than the budget are unacknowledged.

        Calls may overlap: batches are queued in the order of the calls.
        """
        size = len(outgoing.batch)
        async with self._entrance, self._changed:
            await self._changed.wait_for(
                lambda: self._failure is not None or not self._held or self._held + size <= self._budget
            )
            self._raise_failure()
            self._held += size
            partition_sender = self._partition_senders.get(outgoing.partition)
            if partition_sender is None:
                partition_sender = self._partition_senders[outgoing.partition] = _PartitionSender(
                    self, outgoing.partition
                )
            partition_sender.put(outgoing)

    async def finish(self) -> Delivered:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None or not self._held)
        self._raise_failure()
        return self.delivered

    async def close(self) -> None:
        await self.fail(ConnectionLost(f"writing to {self._topic!r} was closed"))
        for partition_sender in self._partition_senders.values():
            await partition_sender.close()

    async def await_replies(self) -> None:
        """After a failure: sends no more, and waits a while for the replies to batches in flight.

        On brokers before 3.6, a batch that arrives after the end of its transaction hangs in the log.
        """
        await self.close()
        replies = [
            reply
            for partition_sender in self._partition_senders.values()
            for reply in partition_sender.replies()
        ]
        if replies:
            done, _ = await asyncio.wait(replies, timeout=_REPLY_GRACE_MS / 1000)
            await asyncio.gather(*done, return_exceptions=True)  # retrieves their errors

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- for partition senders ---------------------------------------------------------------

    def backoff(self) -> Backoff:
        if self._transaction is None:
            return Backoff(self.timeout_ms)
        return Backoff(self.timeout_ms, first_ms=_PAUSE_AFTER_A_TRANSACTION_MS)

    @property
    def sends_once(self) -> bool:
        """acks=0: brokers do not answer, so no batch is retried."""
        return self._acks == 0

    async def connection(self, partition: int) -> Connection:
        """To the partition's leader, after the partition was added to the transaction, if there is one."""
        assert self._view is not None
        if self._transaction is not None:
            await self._transaction.add_partition(self._topic, partition)
        leader = self._view.leaders.get(partition, -1)
        if leader < 0:
            raise ConnectionLost(f"partition {partition} of topic {self._topic!r} has no leader now")
        return await self._client.connection(leader)

    async def refresh(self) -> None:
        """Refreshes the metadata; concurrent callers share one refresh."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._find_topic())
        await asyncio.shield(self._refreshing)

    def send(self, connection: Connection, outgoing: Outgoing) -> asyncio.Future[Any]:
        """The future holds the reply; with acks=0 the reply to a Metadata request sent behind the batch."""
        assert self._view is not None
        view, transaction = self._view, self._transaction
        version = connection.version_for(ApiKey.PRODUCE)
        if transaction is not None:
            version = min(version, transaction.newest_produce)
        topic: str | UUID = view.name
        if version >= FIRST_BY_ID and view.topic_id is not None:
            topic = view.topic_id
        else:
            version = min(version, FIRST_BY_ID - 1)

        def frame(correlation_id: int, client_id: str) -> Sequence[bytes | bytearray]:
            return produce_request(
                version,
                correlation_id,
                client_id,
                topic,
                outgoing.partition,
                outgoing.batch,
                acks=self._acks,
                timeout_ms=self.timeout_ms,
                transactional_id=transaction.transactional_id if transaction else None,
            )

        if self.sends_once:
            connection.send_unanswered(frame)
            return connection.send(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
        return connection.send_parts(ApiKey.PRODUCE, version, frame)

    async def acknowledged(self, outgoing: Outgoing, base_offset: int) -> None:
        outgoing.base_offset = base_offset
        async with self._changed:
            self.delivered.add(outgoing.partition, len(outgoing.rows), base_offset)
            self._held -= len(outgoing.batch)
            self._changed.notify_all()

    async def fail(self, error: BaseException) -> None:
        async with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    # -- private -------------------------------------------------------------------------------------------

    async def _find_topic(self) -> None:
        view = await self._client.topic(self._topic)
        if self._view is not None and view.topic_id != self._view.topic_id:
            raise ClientError(f"topic {self._topic!r} was deleted and recreated while it was written")
        self._view = view

    async def _producer(self) -> Producer:
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        async def attempt() -> Producer:
            connection = await self._client.any_connection()
            reply = await connection.call(ApiKey.INIT_PRODUCER_ID, fields)
            code = ErrorCode(int(reply.error_code))
            if code is not ErrorCode.none:
                raise BrokerError(f"the broker assigned no producer id: {code.name}", code)
            return Producer(int(reply.producer_id), int(reply.producer_epoch))

        return await retry(attempt, self.backoff().wait)


class _InFlight(NamedTuple):
    outgoing: Outgoing
    reply: asyncio.Future[Any]
    connection: Connection


class _PartitionSender:
    """The batches of one partition: sent in order, up to IN_FLIGHT at a time, acknowledged in order."""

    def __init__(self, sender: Sender, partition: int) -> None:
        self._sender = sender
        self._partition = partition
        self._waiting: deque[Outgoing] = deque()
        self._in_flight: deque[_InFlight] = deque()
        self._arrived = asyncio.Event()
        self._backoff = sender.backoff()
        self._window = 1
        """Limit of batches in flight, 1 before the first is acknowledged: a leader that does not know the
        producer accepts any sequence number as its first, so a second batch could pass a refused first."""
        self._connection: Connection | None = None
        """Set while a reply is awaited: batches queued meanwhile are sent on it at once."""
        self._task = asyncio.create_task(self._run())

    def put(self, outgoing: Outgoing) -> None:
        self._waiting.append(outgoing)
        self._arrived.set()
        if self._connection is not None:
            with suppress(*LOST):  # the awaited reply fails as well
                self._fill_window(self._connection)

    def replies(self) -> list[asyncio.Future[Any]]:
        return [sent.reply for sent in self._in_flight]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                if not self._waiting and not self._in_flight:
                    self._arrived.clear()
                    await self._arrived.wait()
                problem = await self._send_and_acknowledge()
                if problem is not None:
                    await self._backoff.wait(problem)
                    await self._refresh()
        except ClientError as error:
            await self._sender.fail(self._with_rows(error))
        except Exception as error:  # noqa: BLE001  # a bug must reach the caller too
            await self._sender.fail(error)

    async def _refresh(self) -> None:
        try:
            await self._sender.refresh()
        except (*LOST, NoSuchTopic) as error:
            await self._backoff.wait(error)

    async def _send_and_acknowledge(self) -> ClientError | None:
        """Sends up to the limit and waits for the oldest reply; after an error queues all again."""
        try:
            connection = await self._sender.connection(self._partition)
            self._fill_window(connection)
            answer = await self._oldest_reply(connection)
        except LOST as error:
            return await self._requeue(error)
        problem = await self._check_reply(self._in_flight[0].outgoing, answer, first=True)
        if problem is not None:
            return await self._requeue(problem)
        self._in_flight.popleft()
        return None

    async def _oldest_reply(self, connection: Connection) -> Any:
        self._connection = connection
        try:
            return await self._reply(self._in_flight[0])
        finally:
            self._connection = None

    async def _reply(self, sent: _InFlight) -> Any:
        """With a timeout: a leader that hangs keeps its connections open, also after an election."""
        try:
            async with asyncio.timeout((self._sender.timeout_ms + _REPLY_GRACE_MS) / 1000):
                return await asyncio.shield(sent.reply)
        except TimeoutError:
            sent.connection.abort()  # its late replies are useless
            raise ConnectionLost("no reply to a batch in time") from None

    def _fill_window(self, connection: Connection) -> None:
        while self._waiting and len(self._in_flight) < self._window:
            reply = self._sender.send(connection, self._waiting[0])
            self._in_flight.append(_InFlight(self._waiting.popleft(), reply, connection))

    async def _requeue(self, problem: ClientError) -> ClientError:
        """Waits for all outstanding replies, then queues unacknowledged batches again, in order."""
        unacknowledged: list[Outgoing] = []
        for sent in list(self._in_flight):
            outgoing = sent.outgoing
            try:
                answer = await self._reply(sent)
                acknowledged = await self._check_reply(outgoing, answer, first=not unacknowledged) is None
            except LOST:
                acknowledged = False
            if not acknowledged:
                unacknowledged.append(outgoing)
        self._in_flight.clear()
        self._waiting.extendleft(reversed(unacknowledged))
        if unacknowledged and self._sender.sends_once:
            raise problem
        return problem

    async def _check_reply(self, outgoing: Outgoing, answer: Any, *, first: bool) -> ClientError | None:
        """None when the batch is in the log, else a retriable error. Raises WriteFailed for others."""
        if self._sender.sends_once:
            self._backoff.reset()
            self._window = IN_FLIGHT
            await self._sender.acknowledged(outgoing, -1)
            return None
        (entry,) = (entry for topic in answer.responses for entry in topic.partition_responses)
        code = ErrorCode(int(entry.error_code))
        if code in (ErrorCode.none, _KNOWN_ALREADY):
            self._backoff.reset()
            self._window = IN_FLIGHT
            await self._sender.acknowledged(outgoing, int(entry.base_offset))
            return None
        refusal = Refusal(outgoing.partition, outgoing.rows, code, entry)
        if code.retriable or (code is _OUT_OF_ORDER and not first):
            return refusal.as_problem()
        raise WriteFailed(refusal, self._sender.delivered)

    def _with_rows(self, error: ClientError) -> ClientError:
        """Adds the row numbers of unacknowledged batches."""
        lost = [*(sent.outgoing for sent in self._in_flight), *self._waiting]
        if isinstance(error, WriteFailed) or not lost:
            return error
        rows = [row for outgoing in lost for row in outgoing.rows]
        return WriteFailed.gave_up(self._partition, rows, error, self._sender.delivered)
