# SPDX-License-Identifier: Apache-2.0
"""Fetches partitions that come and go, continuously, ahead of whoever decodes them.

One request at a time per node, which waits there for new records. Moved leaders and lost connections are
retried until a partition had nothing but errors for `timeout_ms`. Read next: ../fetch/fetcher.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace.client.arrow.fetch.fetcher import Fetcher, PartitionReply, describe
from headrace.client.arrow.fetch.sections import Fetched
from headrace.client.errors import ClientError
from headrace.client.membership.topic_watch import TopicWatch
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import LOST, ExponentialBackoff
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

_LANE = "fetch"
_NO_END = (1 << 63) - 1
_DELAYS = ExponentialBackoff(jitter=0)

OutOfRange = Callable[[TopicPartition, int], None]
"""Called when a partition does not hold this offset: the callee decides where to continue."""


@dataclass(slots=True)
class Chunk:
    """Records of one topic, each partition's in order; `next_offsets`: the offset after them."""

    topic: str
    parts: list[Fetched] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(len(part.records) for part in self.parts)


@dataclass(slots=True)
class _Failing:
    since: float
    failures: int = 0
    pauses: bool = False
    """Until its timer fires. Not compared with the clock, which is rounded and may still be before it."""


class LiveFetch:
    """`assign` and `drop` partitions at any time while `run` runs in a task; `take` fetched records."""

    def __init__(
        self,
        client: NetworkClient,
        watch: TopicWatch,
        *,
        budget: int,
        timeout_ms: int,
        committed_only: bool,
        on_ready: Callable[[], None],
        on_out_of_range: OutOfRange,
    ) -> None:
        self._watch = watch
        self._fetcher = Fetcher(client, self._view, budget=budget, committed_only=committed_only, lane=_LANE)
        self._timeout_s = timeout_ms / 1000
        self._on_ready = on_ready
        self._on_out_of_range = on_out_of_range
        self._positions: dict[TopicPartition, int] = {}
        """The next offset to fetch."""
        self._topic_ids: dict[str, UUID | None] = {}
        """Topic ids at assignment: a topic recreated under the same name has other offsets."""
        self._last_came: dict[TopicPartition, int] = {}
        """The number of the reply that last brought records."""
        self._replies = 0
        self._failing: dict[TopicPartition, _Failing] = {}
        self._chunks: deque[Chunk] = deque()
        self._changed = asyncio.Event()
        self._refresh_due = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these from these offsets on; records of them fetched before are dropped."""
        self.drop(positions)
        held = {each.topic for each in self._positions}
        for topic in {each.topic for each in positions} - held:
            self._topic_ids[topic] = self._watch.views[topic].topic_id
        self._positions |= positions
        self._changed.set()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        held = self._held()
        for each in gone:
            for known in (self._positions, self._failing, self._last_came):
                known.pop(each, None)
        for chunk in self._chunks:
            chunk.parts = [p for p in chunk.parts if TopicPartition(chunk.topic, p.partition) not in gone]
            chunk.next_offsets = {
                partition: offset
                for partition, offset in chunk.next_offsets.items()
                if TopicPartition(chunk.topic, partition) not in gone
            }
        self._chunks = deque(chunk for chunk in self._chunks if chunk.parts)
        self._fetcher.discard(held - self._held())

    def _held(self) -> int:
        return sum(chunk.size for chunk in self._chunks)

    def take(self) -> Chunk | None:
        """The next chunk, merged with others of its topic; releases the chunk before."""
        self._fetcher.hand_out(0)
        if not self._chunks:
            return None
        taken = self._chunks.popleft()
        while self._chunks and self._chunks[0].topic == taken.topic:
            if taken.size + self._chunks[0].size > self._fetcher.fetch_bytes:
                break
            more = self._chunks.popleft()
            taken.parts += more.parts
            taken.next_offsets |= more.next_offsets
        self._fetcher.hand_out(taken.size)
        return taken

    # -- nodes ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled; raises errors that are not retriable."""
        serving: dict[int, asyncio.Task[None]] = {}
        self._watch.on_change(self._changed.set)
        try:
            while True:
                self._changed.clear()
                if self._refresh_due:
                    self._refresh_due = False
                    await self._watch.refresh()
                for node_id in self._nodes() - serving.keys():
                    serving[node_id] = asyncio.create_task(self._serve(node_id))
                    serving[node_id].add_done_callback(lambda _: self._changed.set())
                await self._changed.wait()
                for node_id in [node_id for node_id, task in serving.items() if task.done()]:
                    serving.pop(node_id).result()
        finally:
            for task in serving.values():
                task.cancel()
            await asyncio.gather(*serving.values(), return_exceptions=True)

    def _nodes(self) -> set[int]:
        for each in [each for each in self._positions if self._leader(each) < 0]:
            self._retry_later(each, self._no_leader(each))
        return {self._leader(each) for each in self._positions if self._is_due(each)}

    def _leader(self, partition: TopicPartition) -> int:
        view = self._watch.views.get(partition.topic)
        return -1 if view is None else view.leaders.get(partition.partition, -1)

    def _no_leader(self, partition: TopicPartition) -> ClientError:
        if partition.topic not in self._watch.views:
            return self._watch.missing(partition.topic)
        return ClientError(f"{describe(partition)} has no leader now", code="LEADER_NOT_AVAILABLE")

    def _is_due(self, partition: TopicPartition) -> bool:
        failing = self._failing.get(partition)
        return self._leader(partition) >= 0 and (failing is None or not failing.pauses)

    async def _serve(self, node_id: int) -> None:
        """Fetches what this node leads until that is nothing, or the node does not answer."""
        asked: Mapping[TopicPartition, int] = {}

        def due() -> Mapping[TopicPartition, int]:
            nonlocal asked
            asked = self._due(node_id)
            return asked

        try:
            while (replies := await self._fetcher.fetch(node_id, due)) is not None:
                self._take_replies(replies)
        except LOST as error:
            for each in asked.keys() & self._positions.keys():
                self._retry_later(each, error)

    def _due(self, node_id: int) -> dict[TopicPartition, int]:
        """Those that have waited longest for records come first, since brokers fill a reply in this order."""
        led = [each for each in self._positions if self._leader(each) == node_id and self._is_due(each)]
        led.sort(key=lambda each: (self._last_came.get(each, 0), each))
        return {each: self._positions[each] for each in led}

    # -- replies -------------------------------------------------------------------------------------------

    def _view(self, topic: str) -> TopicView | None:
        view = self._watch.views.get(topic)
        if view is not None and view.topic_id != self._topic_ids[topic]:
            raise ClientError(f"topic {topic!r} was deleted and recreated while it was read")
        return view

    def _take_replies(self, replies: Iterable[PartitionReply]) -> None:
        self._replies += 1
        chunks: dict[str, Chunk] = {}
        for reply in replies:
            # A partition that was dropped or assigned another offset meanwhile is not wanted any more.
            if self._positions.get(reply.partition) == reply.position:
                topic = reply.partition.topic
                self._take_partition(chunks.setdefault(topic, Chunk(topic)), reply)
        for chunk in chunks.values():
            if chunk.parts:
                self._chunks.append(chunk)
                self._fetcher.hold(chunk.size)
                self._on_ready()

    def _take_partition(self, chunk: Chunk, reply: PartitionReply) -> None:
        partition = reply.partition
        if reply.error_code is ErrorCode.offset_out_of_range:
            self.drop([partition])
            self._on_out_of_range(partition, reply.position)
        elif reply.error_code is not ErrorCode.none:
            if not reply.error.retriable:
                raise reply.error
            self._retry_later(partition, reply.error)
        else:
            self._failing.pop(partition, None)
            if reply.records:
                self._last_came[partition] = self._replies
                next_offset = self._positions[partition] = reply.next_offset()
                chunk.next_offsets[partition.partition] = next_offset
                chunk.parts.append(reply.fetched(_NO_END))

    def _retry_later(self, partition: TopicPartition, error: ClientError) -> None:
        """Retries after a delay, with the leaders looked up again; raises `error` after the timeout."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        failing = self._failing.setdefault(partition, _Failing(now))
        if failing.pauses:
            return
        if now - failing.since > self._timeout_s:
            raise error
        failing.pauses = True
        failing.failures += 1
        loop.call_later(_DELAYS.delay_ms(failing.failures, 0) / 1000, self._try_again, failing)

    def _try_again(self, failing: _Failing) -> None:
        failing.pauses = False
        self._refresh_due = True
        self._changed.set()
