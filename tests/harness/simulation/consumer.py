# SPDX-License-Identifier: Apache-2.0
"""A simulated consumer: reads all partitions by one Fetch version, with or without a session; may be slow.

What it read goes to a History; what no fault excuses is raised at once. Read next: clients.py.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import World
from tests.harness.history import History, Poll
from tests.harness.simulation.clients import (
    EARLIEST,
    LATEST,
    PATIENCE_MS,
    BrokenPromise,
    SimConnection,
    Target,
    TryAgain,
    all_sound,
    awake,
    connect,
    list_offset,
    records_in,
)

FETCH_VERSIONS = (4, 6, 7, 11, 12, 13, 16, 18)


async def fetch_all(
    connection: Connection, target: Target, index: int, first: int, last: int
) -> list[tuple[int, bytes]]:
    """Every record from `first` up to `last`."""
    records: list[tuple[int, bytes]] = []
    position = first
    while position < last:
        partition = {"partition": index, "fetch_offset": position, "partition_max_bytes": 1 << 20}
        topics = [{"topic": target.topic, "partitions": [partition]}]
        fields = {"replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        reply = await connection.call(ApiKey.FETCH, fields, version=11)
        data = reply.responses[0].partitions[0]
        if data.error_code is not ErrorCode.none:
            raise TryAgain(data.error_code.name)
        found = [r for r in records_in(bytes(data.records or b"")) if r.offset >= position]
        if not found:
            raise BrokenPromise(f"nothing to read at {position} of {target.partition(index)}, below {last}")
        records += [(record.offset, record.value or b"") for record in found]
        position = found[-1].offset + 1
    return records


class SimConsumer:
    """Reads every partition from the beginning, by one Fetch version; may be slow to take its replies."""

    def __init__(
        self,
        world: World,
        target: Target,
        history: History,
        random: Random,
        *,
        name: str,
        slow: bool,
        pause_s: float = 0.2,
    ) -> None:
        self.name = name
        self.stopping = False
        self.awake = awake()
        """While cleared, it reads nothing."""
        self.progress = ""
        self._world = world
        self._target = target
        self._history = history
        self._random = random
        self._slow = slow
        self._pause_s = pause_s
        """The longest between two fetches."""
        self._version = random.choice(FETCH_VERSIONS)
        self._with_session = self._version >= 7 and random.random() < 0.7
        self._positions = dict.fromkeys(target.indexes, 0)
        self._sought = dict.fromkeys(target.indexes, False)
        self._session = (0, 0)
        self._sent_positions: dict[int, int] = {}
        """Positions that the session on the broker knows."""

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._use_one_connection()
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
                await asyncio.sleep(self._random.uniform(0.01, 0.3))

    async def _use_one_connection(self) -> None:
        connection = await connect(self._world, self._target, self.name)
        self._forget_session()
        try:
            topic_id = await self._topic_id(connection)
            while not self.stopping:
                await self.awake.wait()
                await self._fetch(connection, topic_id)
        finally:
            connection.abort()

    async def _topic_id(self, connection: Connection) -> Any:
        fields = {"topics": [{"name": self._target.topic}], "allow_auto_topic_creation": False}
        (topic,) = (await connection.call(ApiKey.METADATA, fields)).topics
        if topic.error_code is not ErrorCode.none:
            raise TryAgain(topic.error_code.name)
        return topic.topic_id

    def _forget_session(self) -> None:
        self._session = (0, 0 if self._with_session else -1)
        self._sent_positions.clear()

    async def _fetch(self, connection: SimConnection, topic_id: Any) -> None:
        fields = self._request(topic_id)
        reply = connection.send(ApiKey.FETCH, fields, version=self._version)
        if self._slow and self._random.random() < 0.1:
            connection.pause_reading()
            await asyncio.sleep(self._random.uniform(0.5, 8))
            connection.resume_reading()
        try:
            answer = await asyncio.wait_for(reply, PATIENCE_MS / 1000)
        except TimeoutError:
            raise BrokenPromise(f"{self.name}: no reply within {PATIENCE_MS} ms") from None
        self._follow_session(answer)
        for topic in answer.responses:
            for data in topic.partitions:
                await self._take(connection, data)
        await asyncio.sleep(self._random.uniform(0, self._pause_s))

    def _request(self, topic_id: Any) -> dict[str, Any]:
        changed = {
            index: position
            for index, position in self._positions.items()
            if self._sent_positions.get(index) != position
        }
        session_id, epoch = self._session
        wanted = changed if epoch > 0 else dict(self._positions)
        if self._with_session:
            self._sent_positions.update(wanted)
        max_bytes = self._random.choice((1, 1000, 100_000))
        partitions = [
            {"partition": index, "fetch_offset": position, "partition_max_bytes": max_bytes}
            for index, position in wanted.items()
        ]
        return {
            "replica_id": -1,
            "max_wait": self._random.choice((0, 100, 500)),
            "min_bytes": self._random.choice((0, 1, 5000)),
            "max_bytes": self._random.choice((1, 50_000, 1 << 20)),
            "session_id": session_id,
            "session_epoch": epoch,
            "topics": [{"topic": self._target.topic, "topic_id": topic_id, "partitions": partitions}]
            if partitions
            else [],
        }

    def _follow_session(self, answer: Any) -> None:
        code = getattr(answer, "error_code", ErrorCode.none)
        if code is not ErrorCode.none:
            self._forget_session()
            raise TryAgain(code.name)
        if self._with_session:
            self._session = (answer.session_id, self._session[1] + 1) if answer.session_id else (0, 0)

    async def _take(self, connection: Connection, data: Any) -> None:
        index = data.partition_index
        if data.error_code is ErrorCode.offset_out_of_range:
            await self._seek(connection, index)
        elif data.error_code is not ErrorCode.none:
            raise TryAgain(data.error_code.name)
        else:
            self._take_records(index, data)

    async def _seek(self, connection: Connection, index: int) -> None:
        """Only deletion from the front excuses a position out of range."""
        first = await list_offset(connection, self._target, index, EARLIEST)
        if self._positions[index] >= first:
            last = await list_offset(connection, self._target, index, LATEST)
            raise BrokenPromise(
                f"{self.name}: {self._positions[index]} of {self._target.partition(index)} is out of range, "
                f"which is {first} to {last}"
            )
        self._positions[index] = first
        self._sought[index] = True

    def _take_records(self, index: int, data: Any) -> None:
        position = self._positions[index]
        if not all_sound(bytes(data.records or b"")):
            raise TryAgain("a batch has a wrong checksum")
        records = [
            (record.offset, record.value or b"")
            for record in records_in(bytes(data.records or b""))
            if record.offset >= position
        ]
        if not records:
            return
        if records[-1][0] >= data.high_watermark:
            raise BrokenPromise(
                f"{self.name}: offset {records[-1][0]} of {self._target.partition(index)} at or above "
                f"the high watermark {data.high_watermark} (R18)"
            )
        partition = self._target.partition(index)
        poll = Poll(reader=self.name, partition=partition, records=records, seek=self._sought[index])
        self._history.polled(poll)
        self._positions[index] = records[-1][0] + 1
        self._sought[index] = False
