# SPDX-License-Identifier: Apache-2.0
"""One life of a transactional client: it gets its producer id, then copies in transactions until it dies.

A good client: it resends what was not answered, with the same sequences; it starts where the group's offsets
are stable; after an abort that left a batch behind, one of protocol 1 asks for a new epoch. What it leaves
behind arrives late: batches of a dead or aborted transaction, the end that a dead client had asked for and,
with protocol 2, second copies of any request. (Protocol 1 does not protect a client against a second copy of
its own EndTxn or TxnOffsetCommit in its next transaction, so there are none.)
Read next: copier.py, links.py, requests.py, tests/harness/transactions/history.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.records import Record
from headrace.world import World
from tests.harness.simulation.clients import records_in
from tests.harness.simulation.routing import Address, LeaderTarget
from tests.harness.simulation.transactions import requests as wire
from tests.harness.simulation.transactions.links import Coordinator, LateRequests, Links, Place, Request
from tests.harness.simulation.transactions.requests import ClientVersions, Producer
from tests.harness.transactions.history import Transaction, TransactionHistory, Value

MOST_RECORDS = 8
"""Of the input, in one transaction."""
_LATE_S = 3.0
_FETCH_BYTES = 20_000
_OF_TRANSACTIONS, _OF_THE_GROUP = Coordinator.OF_TRANSACTIONS, Coordinator.OF_THE_GROUP


class Died(Exception):
    """The process of the client ended, without a word to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often a client does what: once in so many."""

    aborts: int = 32
    deaths: int = 40
    """Before any of its requests."""
    replacements: int = 20
    """Looks at a client, three in a second, after which it is replaced while it goes on."""
    copies: int = 8
    """Requests that arrive once more, late (protocol 2)."""
    timeouts_ms: Sequence[int] = (800, 3_000, 60_000)
    """Of transactions; drawn for each life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all clients of a run share."""

    world: World
    addresses: Sequence[Address]
    history: TransactionHistory
    late: LateRequests
    outputs: Sequence[LeaderTarget]
    group_id: str
    habits: Habits


class Life:
    def __init__(
        self,
        surroundings: Surroundings,
        source: LeaderTarget,
        random: Random,
        *,
        transactional_id: str,
        versions: ClientVersions,
    ) -> None:
        self.careful = False
        """The run ends: it does not die any more, and has more patience."""
        self.position = -1
        """Of the input: where the next transaction begins."""
        self.versions = versions
        self._name = surroundings.history.begin_life(transactional_id)
        self._around = surroundings
        self._source = source
        self._random = random
        self._producer = Producer(transactional_id)
        self.links = Links(
            surroundings.world,
            surroundings.addresses,
            transactional_id=transactional_id,
            group_id=surroundings.group_id,
            name=f"copier {transactional_id}",
        )
        self._timeout_ms = 10_000 if versions.protocol == 1 else random.choice((700, 2_000, 10_000))
        self._patience_s = random.uniform(1, 6)
        self._transaction_timeout_ms = random.choice(surroundings.habits.timeouts_ms)
        self._sequences: dict[TopicPartition, int] = {}
        self._unsent: list[Request] = []
        """What a client that dies now may have left behind."""

    @property
    def _input(self) -> TopicPartition:
        return self._source.partition(self._source.index)

    async def run(self) -> None:
        """Until it is cancelled. Raises Died, Refused and GaveUp."""
        try:
            await self._initialize(Producer(self._producer.transactional_id))
            self.position = await self._committed_offset()
            while True:
                await self._copy_some()
        finally:
            self.links.close()

    # -- requests -----------------------------------------------------------------------------------------

    async def _ask(self, request: Request) -> Any:
        self._may_die()
        return await self._send(request)

    def _may_die(self) -> None:
        if not self.careful and self._happens(self._around.habits.deaths):
            raise Died

    async def _send(self, request: Request) -> Any:
        return await self.links.ask(
            request,
            patience_s=60 if self.careful else self._patience_s,
            timeout_ms=self._timeout_ms,
            random=self._random,
        )

    def _happens(self, one_in: int) -> bool:
        return self._random.random() * one_in < 1

    def _copy_late(self, request: Request) -> None:
        """A second copy of what was answered is still under way."""
        if self.versions.protocol == 2 and self._happens(self._around.habits.copies):
            self._around.late.send(self.links, request, most_s=_LATE_S)

    async def _initialize(self, producer: Producer) -> None:
        """With the producer that it was before: for a new epoch (KIP-360)."""
        fields = wire.init_fields(producer, self._transaction_timeout_ms)
        request = Request(_OF_TRANSACTIONS, ApiKey.INIT_PRODUCER_ID, fields, self.versions.init, wire.code_of)
        self._become(await self._ask(request))

    def _become(self, reply: Any) -> None:
        producer = self._producer._replace(producer_id=reply.producer_id, epoch=reply.producer_epoch)
        if producer != self._producer:
            self._sequences.clear()
        self._producer = producer

    async def _committed_offset(self) -> int:
        fields = wire.fetch_offset_fields(self._around.group_id, self._input, require_stable=True)
        version, code_of = wire.FETCH_OFFSET_VERSION, wire.code_of_fetched_offset
        reply = await self._ask(Request(_OF_THE_GROUP, ApiKey.OFFSET_FETCH, fields, version, code_of))
        return max(int(reply.groups[0].topics[0].partitions[0].committed_offset), 0)

    async def _read(self) -> list[Record]:
        fields = wire.fetch_fields(self._input, self.position, _FETCH_BYTES, committed=True)
        request = Request(self._source, ApiKey.FETCH, fields, wire.FETCH_VERSION, wire.code_of_fetch)
        data = (await self._ask(request)).responses[0].partitions[0].records
        found = [record for record in records_in(bytes(data or b"")) if record.offset >= self.position]
        return found[: self._random.randint(1, MOST_RECORDS)]

    # -- a transaction ------------------------------------------------------------------------------------

    async def _copy_some(self) -> None:
        records = await self._read()
        if not records:
            await asyncio.sleep(self._random.uniform(0.05, 0.3))
            return
        transaction = self._begin(records)
        aborts = not self.careful and self._happens(self._around.habits.aborts)
        try:
            if aborts and self._random.random() < 0.5:
                await self._abort_with_a_batch_under_way(transaction)
                return
            await self._write(transaction)
            await asyncio.sleep(self._random.choice((0, 0, 0, 0.05, 0.5)))
            await self._end(transaction, committed=not aborts)
            if not aborts:
                self.position = transaction.next_offset
        except Died:
            self._leave_behind(transaction)
            raise

    def _begin(self, records: Sequence[Record]) -> Transaction:
        assigned: dict[TopicPartition, list[Value]] = {}
        for record in records:
            target = self._random.choice(self._around.outputs)
            assigned.setdefault(target.partition(target.index), []).append(record.value or b"")
        history = self._around.history
        polled = [(record.offset, record.value or b"") for record in records]
        return history.begin(
            self._input, self.position, records[-1].offset + 1, assigned, client=self._name, polled=polled
        )

    async def _write(self, transaction: Transaction) -> None:
        """All copies, then the offset."""
        await self._add_partitions(transaction)
        batches = self._batches(transaction)
        offsets = self._offsets_request(transaction)
        self._unsent = [*batches, offsets]
        for batch in batches:
            await self._ask(batch)
            self._unsent.remove(batch)
            self._copy_late(batch)
        await self._add_offsets()
        await self._ask(offsets)
        self._unsent = []
        self._copy_late(offsets)

    async def _abort_with_a_batch_under_way(self, transaction: Transaction) -> None:
        """As after a time-out of the client: its last batch arrives when it will."""
        await self._add_partitions(transaction)
        *batches, last = self._unsent = self._batches(transaction)
        for batch in batches:
            await self._ask(batch)
        self._around.late.send(self.links, last, most_s=self._random.choice((0.05, _LATE_S)))
        await asyncio.sleep(self._random.choice((0, 0.02)))
        await self._end(transaction, committed=False)
        if self.versions.protocol == 1:
            await self._initialize(self._producer)

    async def _add_partitions(self, transaction: Transaction) -> None:
        if self.versions.protocol == 1:
            fields = wire.add_partitions_fields(self._producer, list(transaction.copies))
            version, code_of = self.versions.add_partitions, wire.code_of_added
            await self._ask(Request(_OF_TRANSACTIONS, ApiKey.ADD_PARTITIONS_TO_TXN, fields, version, code_of))

    async def _add_offsets(self) -> None:
        if self.versions.protocol == 1:
            fields = wire.add_offsets_fields(self._producer, self._around.group_id)
            version, code_of = self.versions.add_offsets, wire.code_of
            await self._ask(Request(_OF_TRANSACTIONS, ApiKey.ADD_OFFSETS_TO_TXN, fields, version, code_of))

    def _batches(self, transaction: Transaction) -> list[Request]:
        """One or two for each partition."""
        found = []
        for where, copies in transaction.copies.items():
            middle = self._random.randint(0, len(copies))
            found += [self._batch(where, part) for part in (copies[:middle], copies[middle:]) if part]
        return found

    def _batch(self, where: TopicPartition, values: Sequence[Value]) -> Request:
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(values)
        fields = wire.produce_fields(
            self._producer, where, values, sequence, self._around.world.clock.wall_ms()
        )
        version, code_of = self.versions.produce, wire.code_of_produce
        return Request(self._leader(where), ApiKey.PRODUCE, fields, version, code_of)

    def _leader(self, where: TopicPartition) -> Place:
        return next(target for target in self._around.outputs if target.index == where.partition)

    def _offsets_request(self, transaction: Transaction) -> Request:
        fields = wire.commit_offsets_fields(
            self._producer,
            self._around.group_id,
            self._input,
            transaction.next_offset,
            str(transaction.number),
        )
        version, code_of = self.versions.commit_offsets, wire.code_of_commit
        return Request(_OF_THE_GROUP, ApiKey.TXN_OFFSET_COMMIT, fields, version, code_of)

    def _end_request(self, *, committed: bool) -> Request:
        fields = wire.end_fields(self._producer, committed=committed)
        return Request(_OF_TRANSACTIONS, ApiKey.END_TXN, fields, self.versions.end, wire.code_of)

    async def _end(self, transaction: Transaction, *, committed: bool) -> None:
        request = self._end_request(committed=committed)
        self._unsent = [request]
        self._may_die()
        self._unsent = []
        if committed:
            self._around.history.commit_asked(transaction)
        reply = await self._send(request)
        if committed:
            self._around.history.committed(transaction)
        self._copy_late(request)
        if self.versions.protocol == 2:
            self._become(reply)

    def _leave_behind(self, transaction: Transaction) -> None:
        """What a dead client had handed to its connections."""
        if not self._unsent or self._random.random() < 0.3:
            return
        history, request, accepted = self._around.history, self._unsent[0], None
        if request.fields.get("committed"):
            history.commit_asked(transaction)
            accepted = partial(history.committed, transaction)
        self._around.late.send(self.links, request, most_s=_LATE_S, accepted=accepted)
