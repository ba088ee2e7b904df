"""Sends encoded batches: several in flight per partition, in order, tried again until each is acknowledged.

Runs on one event loop; knows a batch by its rows, not what is in it. An idempotent producer's sequences make
another try of the same bytes harmless; with acks=0 there is none. Read next: cluster.py, writer.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from headrace.client.arrow.cluster import LOST, METADATA, Cluster, NoSuchTopic, Patience, TopicView
from headrace.client.arrow.encode import NOBODY, Producer
from headrace.client.arrow.results import Delivered, Refusal, WriteFailed
from headrace.client.connection import Connection, ConnectionLost
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.produce_request import FIRST_BY_ID, produce_request

PRODUCE = 0
INIT_PRODUCER_ID = 22
IN_FLIGHT = 5
"""Batches of a partition: as many as a leader remembers of each idempotent producer."""
_REPLY_GRACE_MS = 10_000
_PAUSE_AFTER_A_TRANSACTION_MS = 20
"""Until the one before is settled, brokers refuse batches of the next: a matter of milliseconds."""
_KNOWN_ALREADY = ErrorCode.duplicate_sequence_number
_OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number


@dataclass(slots=True, kw_only=True, eq=False)
class Outgoing:
    """A batch on its way. `rows` are numbers of the whole input, in the order of the batch's records."""

    partition: int
    batch: bytearray
    rows: Sequence[int]
    base_offset: int = -1
    """Where it lies once it is acknowledged; -1 too when the broker only knew that it had it already."""


class OpenTransaction(Protocol):
    """What batches have to know of the transaction that they are part of."""

    @property
    def transactional_id(self) -> str: ...

    @property
    def producer(self) -> Producer: ...

    @property
    def newest_produce(self) -> int:
        """The highest version of Produce that it may be written with."""

    async def enrol(self, topic: str, partition: int) -> None:
        """Before the first batch for a partition."""


class Sender:
    """`open`, `put` for every batch, `finish`; any of them raises what made a batch fail for good."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: int,
        budget: int,
        timeout_ms: int,
        transaction: OpenTransaction | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._transaction = transaction
        self._budget = budget
        self.timeout_ms = timeout_ms
        self._view: TopicView | None = None
        self._lanes: dict[int, _Lane] = {}
        self._held = 0
        self._changed = asyncio.Condition()
        self._entrance = asyncio.Lock()  # first come, first in line
        self._failure: BaseException | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self.delivered = Delivered(topic)

    async def open(self, *, idempotent: bool) -> Producer:
        self._view = await self._cluster.find(self._topic)
        if self._transaction is not None:
            return self._transaction.producer
        return await self._producer() if idempotent else NOBODY

    @property
    def partitions(self) -> int:
        assert self._view is not None
        return len(self._view.leaders)

    async def put(self, outgoing: Outgoing) -> None:
        """Returns when the batch is in line; waits while more than the budget is on its way.

        Calls may overlap: batches get in line in the order of the calls.
        """
        size = len(outgoing.batch)
        async with self._entrance, self._changed:
            await self._changed.wait_for(
                lambda: self._failure is not None or not self._held or self._held + size <= self._budget
            )
            self._raise_failure()
            self._held += size
            lane = self._lanes.get(outgoing.partition)
            if lane is None:
                lane = self._lanes[outgoing.partition] = _Lane(self, outgoing.partition)
            lane.put(outgoing)

    async def finish(self) -> Delivered:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failure is not None or not self._held)
        self._raise_failure()
        return self.delivered

    async def close(self) -> None:
        await self.fail(ConnectionLost(f"writing to {self._topic!r} was ended"))
        for lane in self._lanes.values():
            await lane.close()

    async def settle(self) -> None:
        """After a failure: sends no more, and waits a while for the replies to what is on its way.

        A batch that came after the end of its transaction would stay open in the log of brokers before 3.6.
        """
        await self.close()
        flying = [reply for lane in self._lanes.values() for reply in lane.replies()]
        if flying:
            done, _ = await asyncio.wait(flying, timeout=_REPLY_GRACE_MS / 1000)
            await asyncio.gather(*done, return_exceptions=True)  # none is left unheard

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- for lanes -----------------------------------------------------------------------------------------

    def patience(self) -> Patience:
        if self._transaction is None:
            return Patience(self.timeout_ms)
        return Patience(self.timeout_ms, first_ms=_PAUSE_AFTER_A_TRANSACTION_MS)

    @property
    def forgets(self) -> bool:
        """acks=0: nobody answers for a batch, so that none is sent twice."""
        return self._acks == 0

    async def connection(self, partition: int) -> Connection:
        """To the partition's leader, with the partition part of the transaction if there is one."""
        assert self._view is not None
        if self._transaction is not None:
            await self._transaction.enrol(self._topic, partition)
        leader = self._view.leaders.get(partition, -1)
        if leader < 0:
            raise ConnectionLost(f"partition {partition} of topic {self._topic!r} has no leader now")
        return await self._cluster.connection(leader)

    async def refresh(self) -> None:
        """Asks anew who leads; lanes that want it at the same time share one answer."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._find_topic())
        await asyncio.shield(self._refreshing)

    def send(self, connection: Connection, outgoing: Outgoing) -> asyncio.Future[Any]:
        """The future holds the reply; with acks=0, that of a question which the broker gets to after it."""
        assert self._view is not None
        view, transaction = self._view, self._transaction
        version = connection.version_for(PRODUCE)
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

        if self.forgets:
            connection.send_unanswered(frame)
            return connection.send(METADATA, {"topics": [], "allow_auto_topic_creation": False})
        return connection.send_parts(PRODUCE, version, frame)

    async def settled(self, outgoing: Outgoing, base_offset: int) -> None:
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
        view = await self._cluster.topic(self._topic)
        if self._view is not None and view.topic_id != self._view.topic_id:
            raise ClientError(f"topic {self._topic!r} was deleted and created anew while it was written")
        self._view = view

    async def _producer(self) -> Producer:
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        patience = self.patience()
        while True:
            try:
                connection = await self._cluster.any_connection()
                reply = await connection.call(INIT_PRODUCER_ID, fields)
                code = ErrorCode(int(reply.error_code))
                if code is ErrorCode.none:
                    return Producer(int(reply.producer_id), int(reply.producer_epoch))
                error = ClientError(f"no producer id was given: {code.name}", code=code.name.upper())
                if not code.retriable:
                    raise error
            except LOST as lost:
                error = lost
            await patience.wait(error)


class _Flight(NamedTuple):
    outgoing: Outgoing
    reply: asyncio.Future[Any]
    connection: Connection


class _Lane:
    """The batches of one partition: sent in order, up to IN_FLIGHT at a time, acknowledged in order."""

    def __init__(self, sender: Sender, partition: int) -> None:
        self._sender = sender
        self._partition = partition
        self._waiting: deque[Outgoing] = deque()
        self._flying: deque[_Flight] = deque()
        self._arrived = asyncio.Event()
        self._patience = sender.patience()
        self._window = 1
        """Of batches in flight. A leader that does not know the producer yet takes any sequence as its first:
        the second batch would pass where the first was refused, as by a leader that was just made."""
        self._connection: Connection | None = None
        """While a reply is waited for: what comes meanwhile is sent there at once."""
        self._task = asyncio.create_task(self._run())

    def put(self, outgoing: Outgoing) -> None:
        self._waiting.append(outgoing)
        self._arrived.set()
        if self._connection is not None:
            with suppress(*LOST):  # the reply that is waited for tells as much
                self._fill_window(self._connection)

    def replies(self) -> list[asyncio.Future[Any]]:
        return [flight.reply for flight in self._flying]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                if not self._waiting and not self._flying:
                    self._arrived.clear()
                    await self._arrived.wait()
                problem = await self._send_and_settle()
                if problem is not None:
                    await self._patience.wait(problem)
                    await self._refresh()
        except ClientError as error:
            await self._sender.fail(self._named(error))
        except Exception as error:  # noqa: BLE001  # a fault of ours must reach the caller too
            await self._sender.fail(error)

    async def _refresh(self) -> None:
        try:
            await self._sender.refresh()
        except (*LOST, NoSuchTopic) as error:
            await self._patience.wait(error)

    async def _send_and_settle(self) -> ClientError | None:
        """Fills the window and waits for the oldest reply. A problem: all that flew waits again, in order."""
        try:
            connection = await self._sender.connection(self._partition)
            self._fill_window(connection)
            answer = await self._oldest_reply(connection)
        except LOST as error:
            return await self._land(error)
        problem = await self._judge(self._flying[0].outgoing, answer, first=True)
        if problem is not None:
            return await self._land(problem)
        self._flying.popleft()
        return None

    async def _oldest_reply(self, connection: Connection) -> Any:
        self._connection = connection
        try:
            return await self._reply(self._flying[0])
        finally:
            self._connection = None

    async def _reply(self, flight: _Flight) -> Any:
        """Never for ever: a leader that hangs keeps its connections, also after another one leads."""
        try:
            async with asyncio.timeout((self._sender.timeout_ms + _REPLY_GRACE_MS) / 1000):
                return await asyncio.shield(flight.reply)
        except TimeoutError:
            flight.connection.abort()  # what it still may say is of no use
            raise ConnectionLost("no answer to a batch in time") from None

    def _fill_window(self, connection: Connection) -> None:
        while self._waiting and len(self._flying) < self._window:
            reply = self._sender.send(connection, self._waiting[0])
            self._flying.append(_Flight(self._waiting.popleft(), reply, connection))

    async def _land(self, problem: ClientError) -> ClientError:
        """Waits for every reply that is still to come; what was not acknowledged is sent again."""
        unsettled: list[Outgoing] = []
        for flight in list(self._flying):
            outgoing = flight.outgoing
            try:
                answer = await self._reply(flight)
                acknowledged = await self._judge(outgoing, answer, first=not unsettled) is None
            except LOST:
                acknowledged = False
            if not acknowledged:
                unsettled.append(outgoing)
        self._flying.clear()
        self._waiting.extendleft(reversed(unsettled))
        if unsettled and self._sender.forgets:
            raise problem
        return problem

    async def _judge(self, outgoing: Outgoing, answer: Any, *, first: bool) -> ClientError | None:
        """None when the batch is in the log, a problem that another try may solve, or WriteFailed."""
        if self._sender.forgets:
            self._patience.progress()
            self._window = IN_FLIGHT
            await self._sender.settled(outgoing, -1)
            return None
        (entry,) = (entry for topic in answer.responses for entry in topic.partition_responses)
        code = ErrorCode(int(entry.error_code))
        if code in (ErrorCode.none, _KNOWN_ALREADY):
            self._patience.progress()
            self._window = IN_FLIGHT
            await self._sender.settled(outgoing, int(entry.base_offset))
            return None
        refusal = Refusal(outgoing.partition, outgoing.rows, code, entry)
        if code.retriable or (code is _OUT_OF_ORDER and not first):
            return refusal.as_problem()
        raise WriteFailed(refusal, self._sender.delivered)

    def _named(self, error: ClientError) -> ClientError:
        """Of batches that were given up on, the rows are named too."""
        lost = [*(flight.outgoing for flight in self._flying), *self._waiting]
        if isinstance(error, WriteFailed) or not lost:
            return error
        rows = [row for outgoing in lost for row in outgoing.rows]
        return WriteFailed.gave_up(self._partition, rows, error, self._sender.delivered)
