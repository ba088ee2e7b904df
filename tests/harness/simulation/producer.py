# SPDX-License-Identifier: Apache-2.0
"""A simulated producer: idempotent ones resend in order with the same sequences, others never resend.

Idempotent ones do as librdkafka does: all that is unanswered is sent again at once, a batch that is
acknowledged acknowledges those before it, and a batch that is the next due is never out of order.
Every record and what became of it goes to a History. Read next: clients.py, tests/harness/history.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from headrace.world import World
from tests.harness.history import History, Outcome, Send
from tests.harness.simulation.clients import (
    PATIENCE_MS,
    BrokenPromise,
    SimConnection,
    Target,
    TryAgain,
    awake,
    connect,
)

PRODUCE_VERSIONS = (3, 7, 8, 9, 11)
_RETRIABLE = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.request_timed_out,
    ErrorCode.kafka_storage_error,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.out_of_order_sequence_number,
}
_UNKNOWN_WHEN_WAITED_FOR = {ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower}
_UNKNOWN_OUTCOME = {ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append}


@dataclass(slots=True, kw_only=True)
class _Batch:
    partition: int
    data: bytes
    sends: list[Send]

    def __str__(self) -> str:
        return f"{self.sends[0].value[:20]!r} to partition {self.partition}"

    def ended(self, history: History, outcome: Outcome, base_offset: int = -1) -> None:
        has_offset = outcome == "ok" and base_offset >= 0
        for index, send in enumerate(self.sends):
            history.ended(send, outcome, base_offset + index if has_offset else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerKind:
    acks: int
    idempotent: bool = False
    depth: int = 1
    """Requests sent before the first is answered."""
    pause_s: float = 0.1
    """The longest between two of them."""

    def __str__(self) -> str:
        return f"acks={self.acks}{' idempotent' if self.idempotent else ''} depth={self.depth}"


class SimProducer:
    """`durable`: whether this run promises that what is acknowledged to this kind of producer stays."""

    def __init__(
        self,
        world: World,
        target: Target,
        history: History,
        random: Random,
        *,
        name: str,
        kind: ProducerKind,
        durable: bool,
        keys: int = 0,
    ) -> None:
        """`keys`: records have one of so many keys, and some are tombstones."""
        self.name = name
        self.kind = kind
        self.stopping = False
        self.awake = awake()
        """While cleared, it sends nothing new."""
        self.progress = ""
        self._keys = keys
        self._world = world
        self._target = target
        self._history = history
        self._random = random
        self._durable = durable
        self._refusal = ""
        self._producer_id = -1
        self._sequences = dict.fromkeys(target.indexes, 0)
        self._numbers = 0
        self._unacknowledged: list[_Batch] = []
        self._version = random.choice(PRODUCE_VERSIONS)

    async def run(self) -> None:
        """Until told to stop; an idempotent producer first brings home what it began."""
        while not self.stopping or self._unacknowledged:
            try:
                await self._use_one_connection()
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
                self._give_up_unknown()
                await asyncio.sleep(self._random.uniform(0.01, 0.3))

    async def _use_one_connection(self) -> None:
        connection = await connect(self._world, self._target, self.name)
        try:
            if self.kind.idempotent and self._producer_id < 0:
                reply = await connection.call(ApiKey.INIT_PRODUCER_ID, {"transactional_id": None})
                if reply.error_code is not ErrorCode.none:
                    raise TryAgain(reply.error_code.name)
                self._producer_id = reply.producer_id
            await self._pump(connection)
        finally:
            connection.abort()

    def _give_up_unknown(self) -> None:
        if not self.kind.idempotent:
            self._unacknowledged.clear()  # their outcome stays "info"

    async def _pump(self, connection: SimConnection) -> None:
        in_flight: deque[tuple[_Batch, asyncio.Future[Any]]] = deque()
        again = list(self._unacknowledged)
        while True:
            if not (again or in_flight):
                await self.awake.wait()
            while len(in_flight) < self.kind.depth:
                if not (again or self.awake.is_set()):
                    break
                batch = again.pop(0) if again else self._next_batch()
                if batch is None:
                    break
                in_flight.append((batch, self._send(connection, batch)))
                if self._random.random() < 0.6:
                    await asyncio.sleep(self._random.uniform(0, self.kind.pause_s))
            if not in_flight:
                if not self.awake.is_set():
                    continue
                return
            await self._take_reply(in_flight)

    async def _take_reply(self, in_flight: deque[tuple[_Batch, asyncio.Future[Any]]]) -> None:
        batch, reply = in_flight.popleft()
        if not await self._is_answered(batch, reply):
            while in_flight:  # a retry must not overtake what is under way
                await self._is_answered(*in_flight.popleft())
            raise TryAgain(self._refusal)

    def _next_batch(self) -> _Batch | None:
        if self.stopping:
            return None
        partition = self._random.choice(self._target.indexes)
        count = self._random.randint(1, 4)
        now_ms = self._world.clock.wall_ms()
        values = [self._next_value() for _ in range(count)]
        records = [Record(index, now_ms, *self._key_and_value(value)) for index, value in enumerate(values)]
        data = build_batch(
            records,
            codec=self._random.choice((0, 0, 0, 1, 3, 4 if self._version >= 7 else 0)),
            producer_id=self._producer_id,
            producer_epoch=0 if self.kind.idempotent else -1,
            base_sequence=self._sequences[partition] if self.kind.idempotent else -1,
        )
        self._sequences[partition] += count
        sends = [
            self._history.sent(
                Send(
                    producer=self.name,
                    partition=self._target.partition(partition),
                    value=value,
                    durable=self._durable,
                    ordered=self.kind.idempotent or self.kind.depth == 1,
                )
            )
            for value in values
        ]
        batch = _Batch(partition=partition, data=bytes(data), sends=sends)
        self._unacknowledged.append(batch)
        return batch

    def _next_value(self) -> bytes:
        self._numbers += 1
        padding = self._random.choice((0, 10, 100, 700))
        return f"{self.name}-{self._numbers}".encode() + b"." * padding

    def _key_and_value(self, value: bytes) -> tuple[bytes | None, bytes | None]:
        if not self._keys:
            return None, value
        key = b"key-%d" % self._random.randrange(self._keys)
        return key, None if self._random.random() < 0.1 else value

    def _send(self, connection: SimConnection, batch: _Batch) -> asyncio.Future[Any]:
        data = {"index": batch.partition, "records": batch.data}
        fields = {
            "transactional_id": None,
            "acks": self.kind.acks,
            "timeout": 10_000,
            "topic_data": [{"name": self._target.topic, "partition_data": [data]}],
        }
        if self.kind.acks:
            return connection.send(ApiKey.PRODUCE, fields, version=self._version)
        connection.send_without_reply(ApiKey.PRODUCE, fields, version=self._version)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply.set_result(None)
        return reply

    async def _is_answered(self, batch: _Batch, reply: asyncio.Future[Any]) -> bool:
        """Takes the answer into the history; False when the batch has to be sent again."""
        try:
            answer = await asyncio.wait_for(reply, PATIENCE_MS / 1000)
        except TimeoutError:
            raise BrokenPromise(f"{self.name}: no reply within {PATIENCE_MS} ms") from None
        if answer is None:  # acks=0: nobody knows
            self._unacknowledged.remove(batch)
            return True
        result = answer.responses[0].partition_responses[0]
        code: ErrorCode = result.error_code
        if self.kind.idempotent and code in _RETRIABLE:
            if code is ErrorCode.out_of_order_sequence_number and not self._before(batch):
                raise BrokenPromise(
                    f"{self.name}: {code.name} for {batch.sends[0].value[:20]!r}, the next due"
                )
            self._refusal = f"{code.name} for {batch.sends[0].value[:20]!r} to partition {batch.partition}"
            return False
        if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
            if self.kind.idempotent:
                self._acknowledge_before(batch)
            batch.ended(self._history, "ok", result.base_offset)
        else:
            batch.ended(self._history, self._outcome_of(code))
        self._unacknowledged.remove(batch)
        return True

    def _before(self, batch: _Batch) -> list[_Batch]:
        """What was sent to the same partition before it and is not acknowledged yet."""
        index = self._unacknowledged.index(batch)
        return [other for other in self._unacknowledged[:index] if other.partition == batch.partition]

    def _acknowledge_before(self, batch: _Batch) -> None:
        """They were written though their answers are lost: the broker takes sequences only in order (R28).

        It need not know them any more when they come again, as it remembers the last five batches.
        """
        for other in self._before(batch):
            other.ended(self._history, "ok")
            self._unacknowledged.remove(other)

    def _outcome_of(self, code: ErrorCode) -> Outcome:
        if self.kind.idempotent:
            raise BrokenPromise(f"{self.name}: {code.name} for a batch in order")
        # With acks=all a fault or another leader may come between the write and its commit; with acks=1 only
        # before.
        if code in _UNKNOWN_OUTCOME or (code in _UNKNOWN_WHEN_WAITED_FOR and self.kind.acks != 1):
            return "info"
        return "fail"
