"""Which batch a sink published last: a record in the compacted topic `__headrace_sinks`, keyed by the sink.

The record is part of the transaction that publishes the batch, so that both are there or neither.
Read next: publish.py; internal_topics.py.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headrace.client.arrow.bounds import EARLIEST, LATEST, Bounds
from headrace.client.arrow.cluster import Cluster, Patience, TopicView
from headrace.client.arrow.prefetch import Chunk, Prefetch
from headrace.client.arrow.sections import sections_of
from headrace.client.errors import ClientError
from headrace.wire.records import Record, build_batch, iter_records
from pyspark_headrace.connections import Kept
from pyspark_headrace.internal_topics import SINKS, find_or_create
from pyspark_headrace.patience import patiently

_FORMAT = 1
_FIRST_WINDOW = 256
_WIDER = 8
"""Offsets that are looked at from the end backwards: a sink that runs has its last batch close to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The last batch of a sink. Batches of another query count for nothing: each counts from 0."""

    query: str
    batch: int

    def covers(self, other: Published) -> bool:
        return self.query == other.query and self.batch >= other.batch

    def to_json(self) -> bytes:
        return json.dumps({"format": _FORMAT, "query": self.query, "batch": self.batch}).encode()


def read_published(sink: str, value: bytes) -> Published:
    """ClientError for what another, perhaps newer, program wrote there."""
    try:
        document = json.loads(value)
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r}")
        return Published(query=str(document["query"]), batch=int(document["batch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(
            f"what topic {SINKS.name!r} says of sink {sink!r} is not understood ({error})",
            next_step="use the newest Headrace everywhere, or another sinkId",
        ) from error


class SinkLedger:
    """What is known of one sink. `settle_ms`: how long a transaction of another sink may stay open."""

    def __init__(self, sink: str, connections: Kept, *, timeout_ms: int, settle_ms: int) -> None:
        self.partition = zlib.crc32(sink.encode()) % SINKS.partitions
        self._sink = sink
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._settle_ms = settle_ms
        view = find_or_create(SINKS, connections, timeout_ms=timeout_ms)
        if self.partition not in view.leaders:
            raise ClientError(
                f"topic {SINKS.name!r} has {len(view.leaders)} partitions, but must have {SINKS.partitions}",
                next_step=f"headrace topics alter {SINKS.name} --partitions {SINKS.partitions}",
            )

    def last(self) -> Published | None:
        """Of what is committed by now."""
        return self._connections.call(self._last(settled=False))

    def last_settled(self) -> Published | None:
        """The same after every transaction that is begun by now has ended, whoever began it.

        Needed by who has just fenced off the sink's former driver: whether its last batch is published is
        decided then, but hidden from readers while another sink's transaction before it is open.
        """
        return self._connections.call(self._last(settled=True))

    def entry(self, published: Published) -> bytes:
        """A record batch which says so, for this sink's partition."""
        now_ms = time.time_ns() // 1_000_000
        return bytes(build_batch([Record(0, now_ms, self._sink.encode(), published.to_json())]))

    # -- private -------------------------------------------------------------------------------------------

    async def _last(self, *, settled: bool) -> Published | None:
        first, end = await self._look(committed_only=not settled)
        if settled:
            await self._settle(end)
        window = _FIRST_WINDOW
        while end > first:
            start = max(first, end - window)
            value = await self._newest(start, end)
            if value is not None:
                return read_published(self._sink, value)
            end, window = start, window * _WIDER
        return None

    async def _settle(self, end: int) -> None:
        """Waits until readers of committed records may read up to `end`."""
        patience = Patience(self._settle_ms + self._timeout_ms, first_ms=5, most_ms=500)
        while (await self._look(committed_only=True))[1] < end:
            await patience.wait(
                ClientError(
                    f"partition {self.partition} of topic {SINKS.name!r} has a transaction that does not end",
                    next_step="find it with kafka-transactions.sh find-hanging, and abort it",
                )
            )

    async def _look(self, *, committed_only: bool) -> tuple[int, int]:
        """(first offset, the one after the last) of the sink's partition."""
        bounds = Bounds(committed_only=committed_only)
        cluster = self._connections.cluster

        async def ask() -> tuple[int, int]:
            view = await cluster.find(SINKS.name)
            first = await bounds.offsets(cluster, view, {self.partition: EARLIEST})
            end = await bounds.offsets(cluster, view, {self.partition: LATEST})
            return first[self.partition], end[self.partition]

        return await patiently(ask, timeout_ms=self._timeout_ms)

    async def _newest(self, start: int, end: int) -> bytes | None:
        bounds = _Window(partition=self.partition, first=start, last=end)
        prefetch = Prefetch(self._connections.cluster, SINKS.name, bounds, timeout_ms=self._timeout_ms)
        newest = None
        async with _opened(prefetch):
            while (chunk := await prefetch.next_chunk()) is not None:
                found = self._newest_of(chunk, start, end)
                newest = newest if found is None else found
        return newest

    def _newest_of(self, chunk: Chunk, start: int, end: int) -> bytes | None:
        newest = None
        for section in (section for fetched in chunk for section in sections_of(fetched)):
            for record in iter_records(section.batch):
                if record.key == self._sink.encode() and start <= record.offset < end:
                    newest = record.value
        return newest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window(Bounds):
    partition: int
    first: int
    last: int

    async def resolve(self, cluster: Cluster, view: TopicView) -> dict[int, tuple[int, int]]:
        return {self.partition: (self.first, self.last)}


@asynccontextmanager
async def _opened(prefetch: Prefetch) -> AsyncIterator[None]:
    await prefetch.open()
    try:
        yield
    finally:
        await prefetch.close()
