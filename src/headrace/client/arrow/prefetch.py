"""Fetches ranges of a topic ahead of whoever decodes them, within a budget of bytes.

Runs on one event loop; takes bytes as they come. Connections that end and leaders that move are tried again
until nothing came for `timeout_ms`. Read next: cluster.py, bounds.py, reader.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headrace.client.arrow.bounds import EARLIEST, READ_COMMITTED, Bounds, TryAgain
from headrace.client.arrow.cluster import LOST, Cluster, NoSuchTopic, Patience, TopicView
from headrace.client.arrow.sections import Fetched, whole_batches
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode

FETCH = 1
FIRST_VERSION_BY_ID = 13
DEFAULT_BUDGET = 64 << 20
_FETCHES_IN_BUDGET = 8
_MOST_PER_FETCH = 16 << 20
_MAX_WAIT_MS = 500

Chunk = Sequence[Fetched]


class Prefetch:
    """`open`, then `next_chunk` until it gives None; `close` at any time."""

    def __init__(
        self, cluster: Cluster, topic: str, bounds: Bounds, *, budget: int = DEFAULT_BUDGET, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._bounds = bounds
        self._budget = budget
        self._fetch_bytes = max(1, min(budget // _FETCHES_IN_BUDGET, _MOST_PER_FETCH))
        self._patience = Patience(timeout_ms)
        self._left: dict[int, tuple[int, int]] = {}
        """Partition to the next offset to fetch and the one to stop at."""
        self._aged_out: set[int] = set()
        self._view: TopicView | None = None
        self._chunks: deque[Chunk] = deque()
        self._handed_out = 0
        self._held = 0
        self._reserved = 0
        self._changed = asyncio.Condition()
        self._worker: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Finds topic and offsets and begins to fetch. Says at once when there is no broker or no topic."""
        self._view = await self._cluster.find(self._topic)
        while True:
            try:
                self._left = await self._bounds.resolve(self._cluster, self._view)
                break
            except (*LOST, TryAgain) as error:
                if isinstance(error, TryAgain) and not error.retriable:
                    raise
                await self._patience.wait(error)
                self._view = await self._find_topic()
        self._patience.progress()
        self._worker = asyncio.create_task(self._fetch_all())
        self._worker.add_done_callback(lambda _: asyncio.ensure_future(self._notify()))

    @property
    def offsets_left(self) -> int:
        """How many are still to be fetched; some may hold no record. From any thread."""
        return sum(end - position for position, end in list(self._left.values()))

    async def next_chunk(self) -> Chunk | None:
        """What was fetched next; the chunk before is taken to be done with."""
        assert self._worker is not None
        async with self._changed:
            self._held -= self._handed_out
            self._handed_out = 0
            self._changed.notify_all()
            while not self._chunks and not self._worker.done():
                await self._changed.wait()
            if not self._chunks:
                self._worker.result()  # raises what it failed with
                return None
            chunk = self._chunks.popleft()
            self._handed_out = _size(chunk)
            return chunk

    async def close(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    # -- fetching ------------------------------------------------------------------------------------------

    async def _fetch_all(self) -> None:
        while self._left:
            problem = await self._drain_all()
            if self._left:
                await self._patience.wait(problem or _no_leader(self._topic))
                self._view = await self._find_topic()
                await self._leave_aged_out(self._view)

    async def _drain_all(self) -> ClientError | None:
        """From every leader at once; the first problem that another try may solve, or None."""
        try:
            async with asyncio.TaskGroup() as group:
                drains = [
                    group.create_task(self._drain(node_id, partitions))
                    for (node_id, _), partitions in self._groups().items()
                ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return next((problem for drain in drains if (problem := drain.result()) is not None), None)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _groups(self) -> dict[tuple[int, int], set[int]]:
        """Partitions by leader, in two halves: one is fetched while the other's reply arrives."""
        assert self._view is not None
        groups: dict[tuple[int, int], set[int]] = defaultdict(set)
        for place, partition in enumerate(sorted(self._left)):
            leader = self._view.leaders.get(partition, -1)
            if leader >= 0:
                groups[leader, place % 2].add(partition)
        return groups

    async def _find_topic(self) -> TopicView:
        while True:
            try:
                view = await self._cluster.topic(self._topic)
            except (*LOST, NoSuchTopic) as error:
                await self._patience.wait(error)
                continue
            if self._view is not None and view.topic_id != self._view.topic_id:
                raise ClientError(f"topic {self._topic!r} was deleted and created anew while it was read")
            return view

    async def _drain(self, node_id: int, partitions: set[int]) -> ClientError | None:
        """Fetches these partitions from one node until they are read or it no longer gives them."""
        problem: ClientError | None = None
        try:
            while partitions := partitions & self._left.keys():
                async with self._room():
                    came, refused = self._take(await self._fetch(node_id, partitions))
                partitions = partitions - refused.keys()
                problem = next(iter(refused.values()), problem)
                if not came and not refused:
                    await self._patience.wait(ClientError(f"nothing more comes of topic {self._topic!r}"))
        except LOST as error:
            return error
        return problem

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[None]:
        """Room for one reply in the budget, before it is asked for."""
        async with self._changed:
            await self._changed.wait_for(self._has_room)
            self._reserved += self._fetch_bytes
        try:
            yield
        finally:
            self._reserved -= self._fetch_bytes
            await self._notify()

    def _has_room(self) -> bool:
        taken = self._held + self._reserved
        return taken == 0 or taken + self._fetch_bytes <= self._budget

    async def _fetch(self, node_id: int, partitions: set[int]) -> Any:
        assert self._view is not None
        connection = await self._cluster.connection(node_id)
        version, named = self._view.addressed(connection.version_for(FETCH), FIRST_VERSION_BY_ID, "topic")
        entries = [
            {
                "partition": partition,
                "fetch_offset": self._left[partition][0],
                "partition_max_bytes": self._fetch_bytes,
            }
            for partition in sorted(partitions)
        ]
        fields = {
            "max_wait": _MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": self._fetch_bytes,
            "isolation_level": READ_COMMITTED if self._bounds.committed_only else 0,
            "topics": [{**named, "partitions": entries}],
        }
        return await connection.call(FETCH, fields, version=version)

    def _take(self, reply: Any) -> tuple[bool, dict[int, ClientError]]:
        """Puts what came in line. (whether anything came, partitions to be asked for elsewhere and why)"""
        if int(getattr(reply, "error_code", 0)) != 0:
            raise ClientError(f"fetch from topic {self._topic!r}: {ErrorCode(int(reply.error_code)).name}")
        chunk: list[Fetched] = []
        refused: dict[int, ClientError] = {}
        for data in (data for response in reply.responses for data in response.partitions):
            partition = int(data.partition_index)
            code = ErrorCode(int(data.error_code))
            if code is not ErrorCode.none:
                refused[partition] = self._refusal(partition, code)
            elif data.records:
                self._advance(chunk, partition, data)
        if chunk:
            self._patience.progress()
            self._chunks.append(chunk)
            self._held += _size(chunk)
        return bool(chunk), refused

    def _advance(self, chunk: list[Fetched], partition: int, data: Any) -> None:
        position, end = self._left[partition]
        next_offset = position
        for _, header in whole_batches(memoryview(data.records)):
            next_offset = header.next_offset
        if next_offset == position:
            raise ClientError(
                f"partition {partition} of {self._topic!r} gives nothing whole at offset {position}",
                next_step="read with a larger budget",
            )
        aborted = [
            (int(each.producer_id), int(each.first_offset)) for each in data.aborted_transactions or ()
        ]
        chunk.append(Fetched(partition, data.records, position, end, aborted))
        if next_offset >= end:
            del self._left[partition]
        else:
            self._left[partition] = (next_offset, end)

    def _refusal(self, partition: int, code: ErrorCode) -> ClientError:
        """What to tell when trying elsewhere does not help either; raises when it cannot help."""
        where = f"partition {partition} of topic {self._topic!r}"
        if code is ErrorCode.offset_out_of_range:
            return self._out_of_range(partition, where)
        error = ClientError(f"{where}: {code.name}", code=code.name.upper())
        if not code.retriable:
            raise error
        return error

    def _out_of_range(self, partition: int, where: str) -> ClientError:
        """A read that wants all there is may go on where the log begins now; the reply does not say where."""
        error = ClientError(
            f"{where} does not hold offset {self._left[partition][0]}", code="OFFSET_OUT_OF_RANGE"
        )
        if self._bounds.start is not None:
            raise error
        self._aged_out.add(partition)
        return error

    async def _leave_aged_out(self, view: TopicView) -> None:
        """Retention took the beginning of what is left to read: goes on at the first offset that is there."""
        try:
            firsts = await self._bounds.offsets(self._cluster, view, dict.fromkeys(self._aged_out, EARLIEST))
        except (*LOST, TryAgain):
            return  # asked again when they are refused again
        self._aged_out.clear()
        for partition, first in firsts.items():
            position, end = self._left[partition]
            if first <= position:
                raise ClientError(
                    f"partition {partition} of topic {self._topic!r} does not hold offset {position}, "
                    f"though its log begins at {first}",
                    code="OFFSET_OUT_OF_RANGE",
                )
            if first >= end:
                del self._left[partition]
            else:
                self._left[partition] = (first, end)


def _size(chunk: Chunk) -> int:
    return sum(len(fetched.records) for fetched in chunk)


def _no_leader(topic: str) -> ClientError:
    return ClientError(f"partitions of topic {topic!r} have no leader now", code="LEADER_NOT_AVAILABLE")
