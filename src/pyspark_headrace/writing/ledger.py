# SPDX-License-Identifier: Apache-2.0
"""Which batch a sink published last: a record in the compacted topic `__headrace_sinks`, keyed by the sink.

The record is part of the transaction that publishes the batch, so both are visible or neither.
Read next: publish.py; internal_topics.py.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from headrace.client.arrow.fetch.sections import is_abort_marker, sections_of, whole_batches
from headrace.client.arrow.read.bounds import EARLIEST, LATEST, Bounds
from headrace.client.arrow.read.prefetch import Chunk, Prefetch
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import Backoff, retry
from headrace.errors import newer_format
from headrace.wire.records import Record, build_batch, iter_records
from pyspark_headrace.client_pool import PooledClient
from pyspark_headrace.replays import BatchIdentity
from pyspark_headrace.writing.internal_topics import SINKS, find, find_or_create

_FORMAT = 1
_FIRST_WINDOW = 256
_WINDOW_GROWTH = 8
"""Growth of the window that is read backwards from the end: the last batch is usually near the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The last batch of a sink. Only batches of the same query compare: each query counts from 0."""

    query: str
    batch: BatchIdentity

    def to_json(self) -> bytes:
        document: dict[str, Any] = {"format": _FORMAT, "query": self.query, "batch": self.batch.number}
        if self.batch.offsets is not None:
            document["offsets"] = self.batch.offsets
        if self.batch.sources:
            document["sources"] = self.batch.sources
        return json.dumps(document).encode()


def read_published(sink: str, value: bytes) -> Published:
    """Parse a ledger record; ClientError for an unknown format."""
    try:
        document = json.loads(value)
        found = document["format"]
        if isinstance(found, int) and found > _FORMAT:
            raise ClientError(newer_format(f"the record of sink {sink!r} in {SINKS.name}", found, _FORMAT))
        if found != _FORMAT:
            raise ValueError(f"format {found!r}")
        offsets = document.get("offsets")  # missing in records of earlier releases, as sources may be
        batch = BatchIdentity(
            number=int(document["batch"]),
            offsets=None if offsets is None else int(offsets),
            sources=tuple(map(str, document.get("sources", ()))),
        )
        return Published(query=str(document["query"]), batch=batch)
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(
            f"the record of sink {sink!r} in topic {SINKS.name!r} has an unknown format ({error})",
            next_step="use the newest Headrace everywhere, or another sinkId",
        ) from error


class DecidedRecords:
    """The newest record of a key whose transaction was committed, while batches go by in order.

    Its producer has one transaction at a time, so the first marker after a record decides it.
    """

    def __init__(self, key: bytes) -> None:
        self.newest: bytes | None = None
        self._key = key
        self._undecided: dict[int, bytes | None] = {}
        """Producer id to the value of its newest record."""

    def read(self, records: memoryview) -> None:
        for position, header in whole_batches(records):
            batch = records[position : position + header.size]
            if header.is_control:
                value = self._undecided.pop(header.producer_id, None)
                if value is not None and not is_abort_marker(batch):
                    self.newest = value
            elif header.is_transactional:
                for record in iter_records(batch):
                    if record.key == self._key:
                        self._undecided[header.producer_id] = record.value


def transactional_id(sink: str) -> str:
    return f"headrace-sink-{sink}"


def last_published(sink: str, connections: PooledClient, *, timeout_ms: int) -> Published | None:
    """The last committed batch of a sink, without creating the ledger."""
    if find(SINKS, connections, timeout_ms=timeout_ms) is None:
        return None
    return SinkLedger(sink, connections, timeout_ms=timeout_ms).last()


class SinkLedger:
    """Ledger of one sink."""

    def __init__(self, sink: str, connections: PooledClient, *, timeout_ms: int) -> None:
        self.partition = zlib.crc32(sink.encode()) % SINKS.partitions
        self._sink = sink
        self._connections = connections
        self._timeout_ms = timeout_ms
        view = find_or_create(SINKS, connections, timeout_ms=timeout_ms)
        if self.partition not in view.leaders:
            raise ClientError(
                f"topic {SINKS.name!r} has {len(view.leaders)} partitions, but must have {SINKS.partitions}",
                next_step=f"headrace topics alter {SINKS.name} --partitions {SINKS.partitions}",
            )

    def last(self) -> Published | None:
        """The last committed batch.

        Open transactions of other sinks are not waited for: those of this sink have their markers in the log,
        also behind the last stable offset, once its former driver is fenced.
        """
        value = self._connections.call(self._last())
        return None if value is None else read_published(self._sink, value)

    def entry(self, published: Published) -> bytes:
        """A record batch with the ledger record, for this sink's partition."""
        now_ms = time.time_ns() // 1_000_000
        return bytes(build_batch([Record(0, now_ms, self._sink.encode(), published.to_json())]))

    # -- private -------------------------------------------------------------------------------------------

    async def _last(self) -> bytes | None:
        first, stable, end = await self._offsets()
        if stable < end:
            value = await self._newest_with_marker(stable, end)
            if value is not None:
                return value
        return await self._newest_backwards(first, min(stable, end))

    async def _offsets(self) -> tuple[int, int, int]:
        """(start offset, last stable offset, end offset) of the sink's partition. The end is asked first."""
        client = self._connections.client

        async def ask() -> tuple[int, int, int]:
            view = await client.find(SINKS.name)

            async def offset(time: int, *, committed_only: bool) -> int:
                bounds = Bounds(committed_only=committed_only)
                return (await bounds.offsets(client, view, {self.partition: time}))[self.partition]

            end = await offset(LATEST, committed_only=False)
            stable = await offset(LATEST, committed_only=True)
            return await offset(EARLIEST, committed_only=True), stable, end

        return await retry(ask, Backoff(self._timeout_ms).wait)

    async def _newest_backwards(self, first: int, end: int) -> bytes | None:
        """Below the last stable offset: brokers name the aborted transactions."""
        window = _FIRST_WINDOW
        while end > first:
            start = max(first, end - window)
            newest = None
            async for chunk in self._chunks(start, end, committed_only=True):
                found = self._newest_of(chunk, start, end)
                newest = newest if found is None else found
            if newest is not None:
                return newest
            end, window = start, window * _WINDOW_GROWTH
        return None

    async def _newest_with_marker(self, start: int, end: int) -> bytes | None:
        """Behind the last stable offset: the markers in the log say what was committed."""
        decided = DecidedRecords(self._sink.encode())
        async for chunk in self._chunks(start, end, committed_only=False):
            for fetched in chunk:
                decided.read(memoryview(fetched.records))
        return decided.newest

    async def _chunks(self, start: int, end: int, *, committed_only: bool) -> AsyncIterator[Chunk]:
        bounds = _Window(partition=self.partition, first=start, last=end, committed_only=committed_only)
        prefetch = Prefetch(self._connections.client, SINKS.name, bounds, timeout_ms=self._timeout_ms)
        await prefetch.open()
        try:
            while (chunk := await prefetch.next_chunk()) is not None:
                yield chunk
        finally:
            await prefetch.close()

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
