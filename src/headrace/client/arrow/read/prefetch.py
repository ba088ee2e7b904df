# SPDX-License-Identifier: Apache-2.0
"""Fetches ranges of a topic ahead of whoever decodes them, within a budget of bytes.

Runs on one event loop. Lost connections and moved leaders are retried until nothing came for `timeout_ms`.
Read next: ../fetch/fetcher.py (the requests), bounds.py, reader.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from headrace.client.arrow.fetch.fetcher import Fetcher, PartitionReply, describe
from headrace.client.arrow.fetch.sections import Fetched
from headrace.client.arrow.read.bounds import EARLIEST, Bounds
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import LOST, Backoff, retry
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

DEFAULT_BUDGET = 64 << 20

Chunk = Sequence[Fetched]
Removed = Callable[[int, int, int], None]
"""Partition, first offset, and the offset behind the last."""


class Prefetch:
    """`open`, then `next_chunk` until it returns None; `close` at any time."""

    def __init__(
        self,
        client: NetworkClient,
        topic: str,
        bounds: Bounds,
        *,
        budget: int = DEFAULT_BUDGET,
        timeout_ms: int,
        on_removed: Removed = lambda partition, first, end: None,
    ) -> None:
        """`on_removed` is told of offsets that a read without a start passed over: retention removed them."""
        self._client = client
        self._on_removed = on_removed
        self._topic = topic
        self._bounds = bounds
        self._fetcher = Fetcher(
            client, lambda _: self._view, budget=budget, committed_only=bounds.committed_only
        )
        self._backoff = Backoff(timeout_ms)
        self._left: dict[int, tuple[int, int]] = {}
        """Partition to the next offset to fetch and the one to stop at."""
        self._aged_out: set[int] = set()
        self._view: TopicView | None = None
        self._chunks: deque[Chunk] = deque()
        self._arrived = asyncio.Event()
        """A chunk came, or the worker ended."""
        self._worker: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Resolves offsets and begins to fetch. ClientError without a broker or the topic."""
        self._view = view = await self._client.find(self._topic)

        async def wait(error: ClientError) -> None:
            nonlocal view
            await self._backoff.wait(error)
            self._view = view = await self._find_topic()

        self._left = await retry(lambda: self._bounds.resolve(self._client, view), wait)
        self._backoff.reset()
        self._worker = asyncio.create_task(self._fetch_all())
        self._worker.add_done_callback(lambda _: self._arrived.set())

    @property
    def offsets_left(self) -> int:
        """How many are still to be fetched; some may hold no record. From any thread."""
        return sum(end - position for position, end in list(self._left.values()))

    async def next_chunk(self) -> Chunk | None:
        """The next chunk that was fetched, None at the end; releases the chunk before."""
        assert self._worker is not None
        self._fetcher.hand_out(0)
        while not self._chunks and not self._worker.done():
            self._arrived.clear()
            await self._arrived.wait()
        if not self._chunks:
            self._worker.result()  # raises what it failed with
            return None
        chunk = self._chunks.popleft()
        self._fetcher.hand_out(chunk_bytes(chunk))
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
                await self._backoff.wait(problem or _no_leader(self._topic))
                self._view = await self._find_topic()
                await self._leave_aged_out(self._view)

    async def _drain_all(self) -> ClientError | None:
        """Fetches from every leader concurrently; returns the first retriable error, or None."""
        try:
            async with asyncio.TaskGroup() as group:
                drains = [
                    group.create_task(self._drain(node_id, partitions))
                    for (node_id, _), partitions in self._groups().items()
                ]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return next((problem for drain in drains if (problem := drain.result()) is not None), None)

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
        view = await retry(
            lambda: self._client.topic(self._topic),
            self._backoff.wait,
            retriable=lambda error: isinstance(error, (*LOST, NoSuchTopic)),
        )
        if self._view is not None and view.topic_id != self._view.topic_id:
            raise ClientError(f"topic {self._topic!r} was deleted and recreated while it was read")
        return view

    async def _drain(self, node_id: int, partitions: set[int]) -> ClientError | None:
        """Fetches these partitions from one node until they are read or it refuses them, and why."""
        problem: ClientError | None = None
        refused: set[int] = set()

        def due() -> dict[TopicPartition, int]:
            wanted = sorted((partitions - refused) & self._left.keys())
            return {TopicPartition(self._topic, each): self._left[each][0] for each in wanted}

        try:
            while (replies := await self._fetcher.fetch(node_id, due)) is not None:
                errors = [reply for reply in replies if reply.error_code is not ErrorCode.none]
                for reply in errors:
                    problem = self._refusal(reply)
                    refused.add(reply.partition.partition)
                if not self._take([reply for reply in replies if reply.records]) and not errors:
                    await self._backoff.wait(
                        ClientError(f"no more records arrive from topic {self._topic!r}")
                    )
        except LOST as error:
            return error
        return problem

    def _take(self, replies: Sequence[PartitionReply]) -> bool:
        """Queues records; False if there were none."""
        chunk = [self._advance(reply) for reply in replies if reply.error_code is ErrorCode.none]
        if chunk:
            self._backoff.reset()
            self._chunks.append(chunk)
            self._fetcher.hold(chunk_bytes(chunk))
            self._arrived.set()
        return bool(chunk)

    def _advance(self, reply: PartitionReply) -> Fetched:
        partition = reply.partition.partition
        _, end = self._left[partition]
        next_offset = reply.next_offset()
        if next_offset >= end:
            del self._left[partition]
        else:
            self._left[partition] = (next_offset, end)
        return reply.fetched(end)

    def _refusal(self, reply: PartitionReply) -> ClientError:
        """The error to raise when retries do not help; raises it when they cannot."""
        if reply.error_code is ErrorCode.offset_out_of_range:
            return self._out_of_range(reply.partition)
        if not reply.error.retriable:
            raise reply.error
        return reply.error

    def _out_of_range(self, partition: TopicPartition) -> ClientError:
        """A read without a start may continue at the log start offset, which the reply does not name."""
        position, _ = self._left[partition.partition]
        error = ClientError(
            f"{describe(partition)} does not hold offset {position}", code="OFFSET_OUT_OF_RANGE"
        )
        if self._bounds.start is not None:
            raise error
        self._aged_out.add(partition.partition)
        return error

    async def _leave_aged_out(self, view: TopicView) -> None:
        """Retention deleted the next offset to read: continues at the log start offset."""
        try:
            firsts = await self._bounds.offsets(self._client, view, dict.fromkeys(self._aged_out, EARLIEST))
        except (*LOST, BrokerError):
            return  # retried when they are out of range again
        self._aged_out.clear()
        for partition, first in firsts.items():
            position, end = self._left[partition]
            if first <= position:
                raise ClientError(
                    f"partition {partition} of topic {self._topic!r} does not hold offset {position}, "
                    f"though its log start offset is {first}",
                    code="OFFSET_OUT_OF_RANGE",
                )
            self._on_removed(partition, position, min(first, end))
            if first >= end:
                del self._left[partition]
            else:
                self._left[partition] = (first, end)


def chunk_bytes(chunk: Chunk) -> int:
    """As fetched: compressed."""
    return sum(len(fetched.records) for fetched in chunk)


def _no_leader(topic: str) -> ClientError:
    return ClientError(f"partitions of topic {topic!r} have no leader now", code="LEADER_NOT_AVAILABLE")
