"""Which batch a sink published last: a record in the compacted topic `__headrace_sinks`, keyed by the sink.

The record is part of the transaction that publishes the batch, so both are visible or neither.
Read next: publish.py; internal_topics.py.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headrace.client.arrow.fetch.sections import sections_of
from headrace.client.arrow.read.bounds import EARLIEST, LATEST, Bounds
from headrace.client.arrow.read.prefetch import Chunk, Prefetch
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import Backoff, retry
from headrace.wire.records import Record, build_batch, iter_records
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.writing.internal_topics import SINKS, find_or_create

_FORMAT = 1
_FIRST_WINDOW = 256
_WINDOW_GROWTH = 8
"""Growth of the window that is read backwards from the end: the last batch is usually near the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The last batch of a sink. Only batches of the same query compare: each query counts from 0."""

    query: str
    batch: int

    def covers(self, other: Published) -> bool:
        return self.query == other.query and self.batch >= other.batch

    def to_json(self) -> bytes:
        return json.dumps({"format": _FORMAT, "query": self.query, "batch": self.batch}).encode()


def read_published(sink: str, value: bytes) -> Published:
    """Parse a ledger record; ClientError for an unknown format."""
    try:
        document = json.loads(value)
        if document["format"] != _FORMAT:
            raise ValueError(f"format {document['format']!r}")
        return Published(query=str(document["query"]), batch=int(document["batch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(
            f"the record of sink {sink!r} in topic {SINKS.name!r} has an unknown format ({error})",
            next_step="use the newest Headrace everywhere, or another sinkId",
        ) from error


class SinkLedger:
    """Ledger of one sink. `transaction_timeout_ms`: how long a transaction of another sink may stay open."""

    def __init__(
        self, sink: str, connections: PooledClient, *, timeout_ms: int, transaction_timeout_ms: int
    ) -> None:
        self.partition = zlib.crc32(sink.encode()) % SINKS.partitions
        self._sink = sink
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._transaction_timeout_ms = transaction_timeout_ms
        view = find_or_create(SINKS, connections, timeout_ms=timeout_ms)
        if self.partition not in view.leaders:
            raise ClientError(
                f"topic {SINKS.name!r} has {len(view.leaders)} partitions, but must have {SINKS.partitions}",
                next_step=f"headrace topics alter {SINKS.name} --partitions {SINKS.partitions}",
            )

    def last(self) -> Published | None:
        """The last committed batch."""
        return self._connections.call(self._last(wait=False))

    def last_after_open_transactions(self) -> Published | None:
        """The last committed batch, after every transaction open now has ended, also those of other sinks.

        Needed right after fencing the sink's former driver: the outcome of its last batch is decided then,
        but not readable while an earlier transaction of another sink is open.
        """
        return self._connections.call(self._last(wait=True))

    def entry(self, published: Published) -> bytes:
        """A record batch with the ledger record, for this sink's partition."""
        now_ms = time.time_ns() // 1_000_000
        return bytes(build_batch([Record(0, now_ms, self._sink.encode(), published.to_json())]))

    # -- private -------------------------------------------------------------------------------------------

    async def _last(self, *, wait: bool) -> Published | None:
        first, end = await self._offsets(committed_only=not wait)
        if wait:
            await self._wait_for_open_transactions(end)
        window = _FIRST_WINDOW
        while end > first:
            start = max(first, end - window)
            value = await self._newest(start, end)
            if value is not None:
                return read_published(self._sink, value)
            end, window = start, window * _WINDOW_GROWTH
        return None

    async def _wait_for_open_transactions(self, end: int) -> None:
        """Wait until the last stable offset reaches `end`."""
        backoff = Backoff(self._transaction_timeout_ms + self._timeout_ms, first_ms=5, max_ms=500)
        while (await self._offsets(committed_only=True))[1] < end:
            await backoff.wait(
                ClientError(
                    f"partition {self.partition} of topic {SINKS.name!r} has a transaction that does not end",
                    next_step="abort it; kafka-transactions.sh find-hanging shows it",
                )
            )

    async def _offsets(self, *, committed_only: bool) -> tuple[int, int]:
        """(start offset, end offset) of the sink's partition."""
        bounds = Bounds(committed_only=committed_only)
        client = self._connections.client

        async def ask() -> tuple[int, int]:
            view = await client.find(SINKS.name)
            first = await bounds.offsets(client, view, {self.partition: EARLIEST})
            end = await bounds.offsets(client, view, {self.partition: LATEST})
            return first[self.partition], end[self.partition]

        return await retry(ask, Backoff(self._timeout_ms).wait)

    async def _newest(self, start: int, end: int) -> bytes | None:
        bounds = _Window(partition=self.partition, first=start, last=end)
        prefetch = Prefetch(self._connections.client, SINKS.name, bounds, timeout_ms=self._timeout_ms)
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

    async def resolve(self, client: NetworkClient, view: TopicView) -> dict[int, tuple[int, int]]:
        return {self.partition: (self.first, self.last)}


@asynccontextmanager
async def _opened(prefetch: Prefetch) -> AsyncIterator[None]:
    await prefetch.open()
    try:
        yield
    finally:
        await prefetch.close()
