# SPDX-License-Identifier: Apache-2.0
"""A read_committed reader of one partition of the output, and one who looks at the committed offsets.

A reader leaves out aborted records as consumers do: by the aborted transactions in the reply and the markers
that it passes. Now and then it looks at an earlier range. Read next: requests.py,
tests/harness/transactions/history.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from headrace.client.errors import ClientError
from headrace.log.producers.markers import read_marker
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import read_records
from headrace.world import World
from tests.harness.simulation.clients import SimConnection, TryAgain
from tests.harness.simulation.routing import Address, LeaderTarget, open_coordinator
from tests.harness.simulation.transactions import requests as wire
from tests.harness.transactions.history import CommittedRead, OffsetRead, TransactionHistory, Value

_PAUSE_S = 0.4


class CommittedReader:
    def __init__(
        self, world: World, target: LeaderTarget, history: TransactionHistory, random: Random, *, name: str
    ) -> None:
        self.name = name
        self.position = 0
        self.progress = ""
        self._world = world
        self._target = target
        self._partition = target.partition(target.index)
        self._history = history
        self._random = random

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._use_one_connection()
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
                await asyncio.sleep(self._random.uniform(0.01, 0.3))

    async def _use_one_connection(self) -> None:
        connection = await self._target.connect(self._world, self.name)
        try:
            while True:
                self.position = await self._read(connection, self.position)
                if self._random.random() < 0.1:
                    await self._read(connection, self._random.randint(0, self.position), seek=True)
                await asyncio.sleep(self._random.uniform(0, _PAUSE_S))
        finally:
            connection.abort()

    async def _read(self, connection: SimConnection, start: int, *, seek: bool = False) -> int:
        """The position behind what was read."""
        max_bytes = self._random.choice((1, 2_000, 100_000))
        fields = wire.fetch_fields(self._partition, start, max_bytes, committed=True)
        reply = await connection.call(ApiKey.FETCH, fields, version=wire.FETCH_VERSION)
        code = wire.code_of_fetch(reply)
        if code is not ErrorCode.none:
            raise TryAgain(code.name)
        data = reply.responses[0].partitions[0]
        aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        end, records = committed_records(bytes(data.records or b""), aborted, start)
        answered_at = self._history.tick()
        read = CommittedRead(self.name, self._partition, start, end, records, answered_at, seek)
        self._history.reads.append(read)
        return end


def committed_records(
    data: bytes, aborted: Sequence[tuple[int, int]], start: int
) -> tuple[int, list[tuple[int, Value]]]:
    """The position behind the batches, and the records that are not left out.

    `aborted`: first offsets and producers.
    """
    pending, active = sorted(aborted), set[int]()
    records: list[tuple[int, Value]] = []
    view, at, position = memoryview(data), 0, start
    while at < len(view):
        header = read_header(view, at)
        batch = view[at : at + header.size]
        at += header.size
        position = max(position, header.next_offset)
        while pending and pending[0][0] <= header.last_offset:
            active.add(pending.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.commits:
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            records += [
                (each.offset, each.value or b"") for each in read_records(batch) if each.offset >= start
            ]
    return position, records


class OffsetWatcher:
    """Reads the committed offset of one source, now and then."""

    def __init__(
        self,
        world: World,
        addresses: Sequence[Address],
        source: TopicPartition,
        history: TransactionHistory,
        random: Random,
        *,
        group_id: str,
    ) -> None:
        self.offset = -1
        self.progress = ""
        self._world = world
        self._addresses = addresses
        self._source = source
        self._history = history
        self._random = random
        self._group_id = group_id

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._use_one_connection()
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
                await asyncio.sleep(self._random.uniform(0.05, 0.4))

    async def _use_one_connection(self) -> None:
        connection = await open_coordinator(self._world, self._addresses, self._group_id, "watcher")
        try:
            while True:
                await self._look(connection)
                await asyncio.sleep(self._random.uniform(0, _PAUSE_S))
        finally:
            connection.abort()

    async def _look(self, connection: SimConnection) -> None:
        stable = self._random.random() < 0.3
        fields = wire.fetch_offset_fields(self._group_id, self._source, require_stable=stable)
        asked_at = self._history.tick()
        reply = await connection.call(ApiKey.OFFSET_FETCH, fields, version=wire.FETCH_OFFSET_VERSION)
        code = wire.code_of_fetched_offset(reply)
        if code is ErrorCode.unstable_offset_commit:
            return
        if code is not ErrorCode.none:
            raise TryAgain(code.name)
        found = reply.groups[0].topics[0].partitions[0]
        self.offset = int(found.committed_offset)
        number = int(found.metadata) if found.metadata else None
        answered_at = self._history.tick()
        self._history.offset_reads.append(
            OffsetRead(self._source, self.offset, number, asked_at, answered_at, stable)
        )
