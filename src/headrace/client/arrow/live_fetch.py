"""Fetches partitions that come and go, for ever, ahead of whoever decodes them and within a budget of bytes.

One request at a time per node, which waits there for new records. Leaders that move and nodes that are away
are tried again until a partition had nothing but trouble for `timeout_ms`. Read next: stream_core.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.client.arrow.bounds import READ_COMMITTED
from headrace.client.arrow.cluster import LOST, Cluster, TopicView
from headrace.client.arrow.prefetch import FETCH, FIRST_VERSION_BY_ID
from headrace.client.arrow.sections import Fetched, whole_batches
from headrace.client.errors import ClientError
from headrace.client.membership.watch import TopicWatch
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

_LANE = "fetch"
_FETCHES_IN_BUDGET = 8
_MOST_PER_FETCH = 16 << 20
_MAX_WAIT_MS = 500
_NO_END = (1 << 63) - 1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

OutOfRange = Callable[[TopicPartition, int], None]
"""Told that a partition does not hold this offset; whoever is told decides where to go on."""


@dataclass(slots=True)
class Chunk:
    """Records of one topic, each partition's in order; `next_offsets`: where each goes on after them."""

    topic: str
    parts: list[Fetched] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(len(part.records) for part in self.parts)


@dataclass(slots=True)
class _Trouble:
    since: float
    pause_s: float
    pauses: bool = False
    """Until its timer says otherwise: by the clock, which is rounded, it might still not be time then."""


class LiveFetch:
    """`assign` and `drop` partitions at any time while `run` runs in a task; `take` what has come."""

    def __init__(
        self,
        cluster: Cluster,
        watch: TopicWatch,
        *,
        budget: int,
        timeout_ms: int,
        committed_only: bool,
        on_ready: Callable[[], None],
        on_out_of_range: OutOfRange,
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._budget = budget
        self._fetch_bytes = max(1, min(budget // _FETCHES_IN_BUDGET, _MOST_PER_FETCH))
        self._timeout_s = timeout_ms / 1000
        self._isolation = READ_COMMITTED if committed_only else 0
        self._on_ready = on_ready
        self._on_out_of_range = on_out_of_range
        self._positions: dict[TopicPartition, int] = {}
        """The next offset to fetch."""
        self._topic_ids: dict[str, UUID | None] = {}
        """Of the topics as they were assigned: one made anew under an old name has other offsets."""
        self._last_came: dict[TopicPartition, int] = {}
        """In which reply, counted, records came: those that have waited longest are asked for first, since
        brokers fill a reply in the order of the request."""
        self._replies = 0
        self._troubles: dict[TopicPartition, _Trouble] = {}
        self._chunks: deque[Chunk] = deque()
        self._held = self._handed_out = self._reserved = 0
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._look_again = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these from here on; what had been fetched of them is thrown away."""
        self.drop(positions)
        held = {each.topic for each in self._positions}
        for topic in {each.topic for each in positions} - held:
            self._topic_ids[topic] = self._watch.views[topic].topic_id
        self._positions |= positions
        self._changed.set()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        for each in gone:
            for known in (self._positions, self._troubles, self._last_came):
                known.pop(each, None)
        for chunk in self._chunks:
            chunk.parts = [p for p in chunk.parts if TopicPartition(chunk.topic, p.partition) not in gone]
            chunk.next_offsets = {
                partition: offset
                for partition, offset in chunk.next_offsets.items()
                if TopicPartition(chunk.topic, partition) not in gone
            }
        self._chunks = deque(chunk for chunk in self._chunks if chunk.parts)
        self._held = self._handed_out + sum(chunk.size for chunk in self._chunks)
        self._has_room.set()

    def take(self) -> Chunk | None:
        """What was fetched next, with what else has come of the topic; the one before is done with."""
        self._held -= self._handed_out
        self._handed_out = 0
        self._has_room.set()
        if not self._chunks:
            return None
        taken = self._chunks.popleft()
        while self._chunks and self._chunks[0].topic == taken.topic:
            if taken.size + self._chunks[0].size > self._fetch_bytes:
                break
            more = self._chunks.popleft()
            taken.parts += more.parts
            taken.next_offsets |= more.next_offsets
        self._handed_out = taken.size
        return taken

    # -- who is asked --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled; raises what another try cannot help."""
        serving: dict[int, asyncio.Task[None]] = {}
        self._watch.on_change(self._changed.set)
        try:
            while True:
                self._changed.clear()
                if self._look_again:
                    self._look_again = False
                    await self._watch.look()
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
            self._note_trouble(each, self._no_leader(each))
        return {self._leader(each) for each in self._positions if self._is_due(each)}

    def _leader(self, partition: TopicPartition) -> int:
        view = self._watch.views.get(partition.topic)
        return -1 if view is None else view.leaders.get(partition.partition, -1)

    def _no_leader(self, partition: TopicPartition) -> ClientError:
        if partition.topic not in self._watch.views:
            return self._watch.missing(partition.topic)
        return ClientError(f"{_where(partition)} has no leader now", code="LEADER_NOT_AVAILABLE")

    def _is_due(self, partition: TopicPartition) -> bool:
        trouble = self._troubles.get(partition)
        return self._leader(partition) >= 0 and (trouble is None or not trouble.pauses)

    async def _serve(self, node_id: int) -> None:
        """Fetches what this node leads until that is nothing, or the node does not answer."""
        while True:
            async with self._room():
                asked = {
                    each: offset
                    for each, offset in self._positions.items()
                    if self._leader(each) == node_id and self._is_due(each)
                }
                if not asked:
                    return
                try:
                    self._take_reply(await self._fetch(node_id, asked), asked)
                except LOST as error:
                    for each in asked.keys() & self._positions.keys():
                        self._note_trouble(each, error)
                    return

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[None]:
        """Room for one reply in the budget, before it is asked for."""
        while (taken := self._held + self._reserved) and taken + self._fetch_bytes > self._budget:
            self._has_room.clear()
            await self._has_room.wait()
        self._reserved += self._fetch_bytes
        try:
            yield
        finally:
            self._reserved -= self._fetch_bytes
            self._has_room.set()

    # -- a request and its reply ---------------------------------------------------------------------------

    async def _fetch(self, node_id: int, asked: Mapping[TopicPartition, int]) -> Any:
        connection = await self._cluster.connection(node_id, _LANE)
        asked = {each: offset for each, offset in asked.items() if each.topic in self._watch.views}
        entries = defaultdict(list)
        for each in sorted(asked, key=lambda each: (self._last_came.get(each, 0), each)):
            entries[each.topic].append(
                {
                    "partition": each.partition,
                    "fetch_offset": asked[each],
                    "partition_max_bytes": self._fetch_bytes,
                }
            )
        newest = connection.version_for(FETCH)
        named = {
            topic: self._view(topic).addressed(newest, FIRST_VERSION_BY_ID, "topic") for topic in entries
        }
        fields = {
            "max_wait": _MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": self._fetch_bytes,
            "isolation_level": self._isolation,
            "topics": [{**name, "partitions": entries[topic]} for topic, (_, name) in named.items()],
        }
        version = min((version for version, _ in named.values()), default=newest)
        return await connection.call(FETCH, fields, version=version)

    def _view(self, topic: str) -> TopicView:
        view = self._watch.views[topic]
        if view.topic_id != self._topic_ids[topic]:
            raise ClientError(f"topic {topic!r} was deleted and created anew while it was read")
        return view

    def _take_reply(self, reply: Any, asked: Mapping[TopicPartition, int]) -> None:
        if int(getattr(reply, "error_code", 0)) != 0:
            raise ClientError(f"fetch: {ErrorCode(int(reply.error_code)).name}")
        self._replies += 1
        for response in reply.responses:
            topic = (
                str(response.topic) if hasattr(response, "topic") else self._watch.name_of(response.topic_id)
            )
            chunk = Chunk(topic or "")
            for data in response.partitions:
                each = TopicPartition(chunk.topic, int(data.partition_index))
                # What was dropped or sought elsewhere meanwhile is not wanted any more.
                if each in asked and self._positions.get(each) == asked[each]:
                    self._take_partition(chunk, each, data)
            if chunk.parts:
                self._chunks.append(chunk)
                self._held += chunk.size
                self._on_ready()

    def _take_partition(self, chunk: Chunk, partition: TopicPartition, data: Any) -> None:
        code = ErrorCode(int(data.error_code))
        position = self._positions[partition]
        if code is ErrorCode.offset_out_of_range:
            self.drop([partition])
            self._on_out_of_range(partition, position)
        elif code is not ErrorCode.none:
            error = ClientError(f"{_where(partition)}: {code.name}", code=code.name.upper())
            if not code.retriable:
                raise error
            self._note_trouble(partition, error)
        else:
            self._troubles.pop(partition, None)
            if data.records:
                self._last_came[partition] = self._replies
                chunk.next_offsets[partition.partition] = self._positions[partition] = _end_of(
                    partition, data
                )
                aborted = [(int(t.producer_id), int(t.first_offset)) for t in data.aborted_transactions or ()]
                chunk.parts.append(Fetched(partition.partition, data.records, position, _NO_END, aborted))

    def _note_trouble(self, partition: TopicPartition, error: ClientError) -> None:
        """Asks again after a pause that grows, having looked who leads; raises when that did not help."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        trouble = self._troubles.setdefault(partition, _Trouble(now, _FIRST_PAUSE_S))
        if trouble.pauses:
            return
        if now - trouble.since > self._timeout_s:
            raise error
        trouble.pauses = True
        loop.call_later(trouble.pause_s, self._try_again, trouble)
        trouble.pause_s = min(trouble.pause_s * 2, _LONGEST_PAUSE_S)

    def _try_again(self, trouble: _Trouble) -> None:
        trouble.pauses = False
        self._look_again = True
        self._changed.set()


def _end_of(partition: TopicPartition, data: Any) -> int:
    next_offset = None
    for _, header in whole_batches(memoryview(data.records)):
        next_offset = header.next_offset
    if next_offset is None:
        raise ClientError(f"{_where(partition)} gives nothing whole", next_step="stream with a larger budget")
    return next_offset


def _where(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic!r}"
