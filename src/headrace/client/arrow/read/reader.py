# SPDX-License-Identifier: Apache-2.0
"""Reading a topic, or a part of it, into Arrow: `read` for plain code, `aread` for asyncio.

Fetching runs ahead in the background while batches are decoded here. Read next: prefetch.py, decode.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.progress_bar import ReadProgress
from headrace.client.arrow.read.bounds import Bound, Bounds, since
from headrace.client.arrow.read.prefetch import DEFAULT_BUDGET, Chunk, Prefetch
from headrace.client.arrow.read.typed import Rejects, TypedDecoder
from headrace.client.arrow.values.formats import Format
from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.security import Security

DEFAULT_TIMEOUT_MS = 60_000


class ReadOptions(TypedDict, total=False):
    """What `read` explains."""

    bootstrap: str | None
    security: Security | None
    config: str | Path | None
    columns: Sequence[str] | None
    start: Bound
    end: Bound
    last: str | timedelta | None
    count: int | None
    partitions: Sequence[int] | None
    key: Format
    value: Format
    rejects: Rejects | None
    committed_only: bool
    budget: int
    timeout_ms: int
    progress: bool | None


class ReadRequest:
    """One read, its options checked."""

    def __init__(
        self,
        topic: str,
        *,
        bootstrap: str | None = None,
        security: Security | None = None,
        config: str | Path | None = None,
        columns: Sequence[str] | None = None,
        start: Bound = None,
        end: Bound = None,
        last: str | timedelta | None = None,
        count: int | None = None,
        partitions: Sequence[int] | None = None,
        key: Format = "raw",
        value: Format = "raw",
        rejects: Rejects | None = None,
        committed_only: bool = True,
        budget: int = DEFAULT_BUDGET,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        progress: bool | None = None,
    ) -> None:
        if not isinstance(topic, str) or not topic:
            raise ClientError(f"topic={topic!r} is not a topic's name", next_step='give its name: "orders"')
        if last is not None and start is not None:
            raise ClientError("both start and last say where to begin", next_step="give one of them")
        if count is not None and count < 0:
            raise ClientError(f"{count} records cannot be read")
        self.decoder = TypedDecoder(topic, columns, key=key, value=value, rejects=rejects)
        self.count = count
        self._topic = topic
        self.bootstrap = chosen_bootstrap(bootstrap)
        self.security = chosen_security(security, config)
        self._bounds = Bounds(
            start=start if last is None else since(last),
            end=end,
            partitions=None if partitions is None else tuple(partitions),
            committed_only=committed_only,
        )
        self._budget = budget
        self.timeout_ms = timeout_ms
        self._progress = progress

    async def open(self, client: NetworkClient) -> Prefetch:
        prefetch = Prefetch(
            client, self._topic, self._bounds, budget=self._budget, timeout_ms=self.timeout_ms
        )
        await prefetch.open()
        return prefetch

    async def ranges(self, client: NetworkClient) -> dict[int, tuple[int, int]]:
        """Partition to (start, end) of a read at this moment."""
        return await self._bounds.resolve(client, await client.find(self._topic))

    def decode_all(self, chunk: Chunk) -> list[Any]:
        return list(self.decoder.decode(chunk))

    def bar(self, prefetch: Prefetch) -> ReadProgress:
        return ReadProgress(self._topic, prefetch, self.count, self._progress)


@keywords_of(ReadOptions, ReadRequest)
def read(topic: str, **options: Unpack[ReadOptions]) -> pa.RecordBatchReader:
    """Reads a topic, or a part of it, up to where it ends now, as a `pyarrow.RecordBatchReader`.

    Batches are fetched as they are asked for: `read_all()` makes a table, and pandas, polars, DuckDB and
    `headrace.write` take the reader as it is.

    Args:
        topic: its name.

    Keyword Args:
        bootstrap: `HOST:PORT,…` of any Kafka broker; without it the variable `HEADRACE_BOOTSTRAP`, then
            127.0.0.1:9092.
        security: TLS and login as a `headrace.Security`.
        config: the same in a properties file of a Kafka client; without both, the file that
            `HEADRACE_CLIENT_CONFIG` names.
        columns: some of key, value, headers, topic, partition, offset, timestamp, timestamp_type (all).
        start: an offset, `{partition: offset}`, or a datetime (the beginning).
        end: the same; it is not read itself (the end at the time of the call).
        last: begin so long ago: `"10m"`, `"2.5h"`, or a timedelta.
        count: at most so many records, as partitions deliver them.
        partitions: only these.
        key: how to read keys: "raw" bytes, "string", "int16", "int32", "int64", "float32", "float64", "json"
            (a struct, by a sample of the records), `headrace.Json(schema)`, `headrace.Avro(…)`.
        value: the same for values ("raw").
        rejects: a `headrace.Rejects` for the records that are not of that form (without one: an error).
        committed_only: leave out records of transactions that were aborted or are still open (True).
        budget: bytes that may be fetched ahead (64 MiB).
        timeout_ms: how long fetching is retried without records (60,000).
        progress: show a bar (True) or none (False); None: on terminals and in notebooks if it takes long.

    Raises:
        NoSuchTopic: the topic does not exist.
        ClientError: no broker answers, or a record is not of the form that `key` or `value` names.

    Example:
        ```python
        table = headrace.read("orders", last="10m", value="json").read_all()
        ```
    """
    request = ReadRequest(topic, **options)
    batches = _Batches(request, NetworkClient(request.bootstrap, security=request.security))
    return pa.RecordBatchReader.from_batches(batches.schema(), batches)


@keywords_of(ReadOptions, ReadRequest)
async def aread(topic: str, **options: Unpack[ReadOptions]) -> AsyncIterator[pa.RecordBatch]:
    """Reads a topic with asyncio, batch by batch; takes what `read` takes.

    Example:
        ```python
        async for batch in headrace.aread("orders", last="10m"):
            print(batch.num_rows)
        ```
    """
    request = await asyncio.to_thread(ReadRequest, topic, **options)  # may call a schema registry
    client = NetworkClient(request.bootstrap, security=request.security)
    left = request.count
    prefetch = None
    try:
        prefetch = await request.open(client)
        with request.bar(prefetch) as bar:
            while left != 0 and (chunk := await prefetch.next_chunk()) is not None:
                for batch in await asyncio.to_thread(request.decode_all, chunk):
                    batch, left = _limited(batch, left)
                    bar.came(batch.num_rows)
                    if batch.num_rows:
                        yield batch
    finally:
        if prefetch is not None:
            await prefetch.close()
        await client.close()


class _Batches:
    """The iterator behind a reader. Ends its thread when it is used up, failed, or dropped."""

    def __init__(self, request: ReadRequest, client: NetworkClient) -> None:
        self._request = request
        self._left = request.count
        self._decoded: Iterator[Any] = iter(())
        self._first: Any = None
        self._bar: Any = None
        self._io = IoThread(f"headrace-read-{request.decoder.topic}", client.close)
        try:
            self._prefetch = self._io.call(request.open(client))
            self._bar = request.bar(self._prefetch)
        except BaseException:
            self._io.close()
            raise

    def schema(self) -> Any:
        """Of all batches; where it has to be learned from the records, the first are fetched now."""
        decoder = self._request.decoder
        if decoder.schema is None and (first := next(self, None)) is not None:
            self._first = first
        return decoder.schema if decoder.schema is not None else decoder.learn_nothing()

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            while self._left != 0:
                batch = next(self._decoded, None)
                if batch is not None:
                    batch, self._left = _limited(batch, self._left)
                    self._bar.came(batch.num_rows)
                    return batch
                chunk = self._io.call(self._prefetch.next_chunk())
                if chunk is None:
                    break
                self._decoded = self._request.decoder.decode(chunk)
        except BaseException:
            self._close()
            raise
        self._close()
        self._left = 0
        raise StopIteration

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._io.close()


def _limited(batch: Any, left: int | None) -> tuple[Any, int | None]:
    if left is None:
        return batch, None
    batch = batch.slice(0, left)
    return batch, left - batch.num_rows
