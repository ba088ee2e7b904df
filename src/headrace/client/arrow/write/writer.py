"""Writing Arrow data to a topic: `write` for plain code, `awrite` for asyncio.

Partitions and encodes rows here while a background thread sends. Read next: columns.py, topic_ranges.py,
partitioning.py, encode.py, sender.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import pyarrow as pa

from headrace.client.arrow.errors import RowRefused
from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.kernels.types import Int32s, RowColumns
from headrace.client.arrow.progress_bar import ProgressBar
from headrace.client.arrow.values.formats import Format
from headrace.client.arrow.values.serializers import ColumnChoice
from headrace.client.arrow.write.columns import WriteColumns
from headrace.client.arrow.write.encode import DEFAULT_BATCH_BYTES, NOBODY, encode_batch
from headrace.client.arrow.write.partitioning import (
    ColumnPartitioner,
    PartitionerChoice,
    check_given,
)
from headrace.client.arrow.write.results import Delivered
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.topic_ranges import load_ranges
from headrace.client.arrow.write.transaction_session import DEFAULT_TRANSACTION_TIMEOUT_MS, TransactionSession
from headrace.client.bootstrap import DEFAULT_BOOTSTRAP
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.security import Security
from headrace.wire.batch import NO_SEQUENCE
from headrace.wire.compression import Codec

DEFAULT_TIMEOUT_MS = 120_000
DEFAULT_BUDGET = 32 << 20
_LARGEST_SLICE = 64 << 20
_BATCHES_PER_SLICE = 8
"""For each partition: only the last batch of a slice is not full."""
_ENCODED_AHEAD = 4
"""Batches being queued, so that encoding does not wait for the background thread."""
_SEQUENCES = 1 << 31

Acks = Literal["all", 1, 0]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class WriteOptions(TypedDict, total=False):
    """What `write` explains."""

    bootstrap: str
    security: Security | None
    config: str | Path | None
    key: ColumnChoice
    value: ColumnChoice
    key_format: Format | None
    value_format: Format | None
    headers: str | None
    timestamp: str | None
    partition: str | None
    partitioner: PartitionerChoice | None
    acks: Acks
    compression: Compression
    idempotent: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    batch_bytes: int
    budget: int
    timeout_ms: int
    progress: bool | None


def write(data: Any, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
    """Writes every row of a table as a record and returns how many went where once all are acknowledged.

    data: a pyarrow table, batch, reader or iterable of batches; anything with an Arrow stream (polars).
    bootstrap: `HOST:PORT,…` of any Kafka broker (127.0.0.1:9092). security: `headrace.Security`: TLS, SASL;
    or config: a properties file of a Kafka client (without both: the one HEADRACE_CLIENT_CONFIG names).
    key, value, headers, timestamp, partition: names of columns; None: records have none (value: "value").
    A list of columns for key or value makes one object of them.
    key_format, value_format: "raw", "string", "int64" and other numbers (as Kafka's serializers write them),
        "json", "avro", headrace.Avro(…); by default what the column's type suggests, JSON for objects.
    partitioner: None: by the key ranges stored with the topic, by hash where it has none; "hash" (the Java
        client's), "round_robin", or a RangePartitioner.
    acks: "all", 1, or 0 (sent once, not acknowledged). compression: "none", "gzip", "snappy", "lz4", "zstd".
    idempotent: retries duplicate and reorder nothing (True; needs acks="all").
    transactional_id: all rows or none, for readers of committed records; see `headrace.transaction`.
    transaction_timeout_ms: the broker aborts such a write when it takes longer (60,000).
    budget: bytes that may be unacknowledged. timeout_ms: how long sending is retried.
    progress: show a bar (True), none (False), or one on terminals and in notebooks if it takes long (None).

    WriteFailed names the rows that a broker refused, by their number in the input, and what was delivered.
    """
    request = WriteRequest(data, topic, **options)
    client = NetworkClient(request.bootstrap, security=request.security)
    io = IoThread(f"headrace-write-{topic}", client.close)
    try:
        session = io.call(request.session(client))
        sender = io.call(request.open(client, session))
        try:
            delivered = send_rows(io, sender, request.encoded())
        except BaseException:
            io.call(_undo(sender, session))
            raise
        if session is not None:
            io.call(session.end(committed=True))
        return delivered
    finally:
        io.close()


def send_rows(io: IoThread, sender: Sender, batches: Iterator[Outgoing]) -> Delivered:
    """Encodes here while the I/O thread sends; returns when all is acknowledged."""
    entering: deque[Future[None]] = deque()
    for outgoing in batches:
        entering.append(io.start(sender.put(outgoing)))
        if len(entering) > _ENCODED_AHEAD:
            entering.popleft().result()
    for each in entering:
        each.result()
    return io.call(sender.finish())


async def awrite(data: Any, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
    """The same for asyncio; `data` is read in a thread."""
    request = await asyncio.to_thread(WriteRequest, data, topic, **options)  # may ask a schema registry
    client = NetworkClient(request.bootstrap, security=request.security)
    try:
        session = await request.session(client)
        sender = await request.open(client, session)
        try:
            delivered = await asend_rows(sender, request.encoded())
        except BaseException:
            await _undo(sender, session)
            raise
        await sender.close()
        if session is not None:
            await session.end(committed=True)
        return delivered
    finally:
        await client.close()


async def asend_rows(sender: Sender, batches: Iterator[Outgoing]) -> Delivered:
    """As `send_rows`: encodes in a thread while the caller's event loop sends."""
    while (outgoing := await asyncio.to_thread(next, batches, None)) is not None:
        await sender.put(outgoing)
    return await sender.finish()


async def _undo(sender: Sender, session: TransactionSession | None) -> None:
    """After a failure: no more is sent, and what was sent of a transaction is aborted."""
    if session is None:
        await sender.close()
        return
    await sender.await_replies()
    await session.abandon()


class WriteRequest:
    """One write, its options checked; encodes slice by slice."""

    def __init__(
        self,
        data: Any,
        topic: str,
        *,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        security: Security | None = None,
        config: str | Path | None = None,
        key: ColumnChoice = None,
        value: ColumnChoice = "value",
        key_format: Format | None = None,
        value_format: Format | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        partitioner: PartitionerChoice | None = None,
        acks: Acks = "all",
        compression: Compression = "none",
        idempotent: bool = True,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        budget: int = DEFAULT_BUDGET,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        progress: bool | None = None,
    ) -> None:
        _check_acks(acks, idempotent, transactional_id)
        self._codec = _codec(compression)
        self._reader = _as_reader(data)
        named = WriteColumns(
            key=key,
            value=value,
            key_format=key_format,
            value_format=value_format,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
        )
        self._columns = named.bound(self._reader.schema, topic)
        self._partition_column = partition
        self.bootstrap = bootstrap
        self.security = chosen_security(security, config)
        self._topic = topic
        self._choice = partitioner
        self._acks = -1 if acks == "all" else acks
        self._idempotent = idempotent
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._batch_bytes = batch_bytes
        self._budget = budget
        self._timeout_ms = timeout_ms
        self._bar = ProgressBar(f"writing {topic}", getattr(data, "num_rows", None), progress)
        self._partitions = 0
        self._producer = NOBODY
        self._sequences: dict[int, int] = {}

    async def session(self, client: NetworkClient) -> TransactionSession | None:
        """A transaction for these rows alone, if one was asked for."""
        if self._transactional_id is None:
            return None
        session = TransactionSession(
            client,
            self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            timeout_ms=self._timeout_ms,
        )
        await session.open()
        return session

    async def open(self, client: NetworkClient, session: TransactionSession | None = None) -> Sender:
        sender = Sender(
            client,
            self._topic,
            acks=self._acks,
            budget=self._budget,
            timeout_ms=self._timeout_ms,
            transaction=session,
        )
        self._producer = await sender.open(idempotent=self._idempotent)
        self._partitions = sender.partitions
        if self._choice is None and self._partition_column is None:
            self._choice = await load_ranges(client, self._topic, timeout_ms=self._timeout_ms)
        if session is not None:
            self._sequences = session.sequences(self._topic)
        return sender

    def encoded(self) -> Iterator[Outgoing]:
        """Every row in some batch. ClientError names a row that cannot be written or has no partition."""
        with self._bar as bar:
            yield from bar.counted(self._batches(), lambda outgoing: len(outgoing.rows))

    def _batches(self) -> Iterator[Outgoing]:
        partitioner = ColumnPartitioner("hash" if self._choice is None else self._choice, self._partitions)
        target = min(_BATCHES_PER_SLICE * self._partitions * self._batch_bytes, _LARGEST_SLICE)
        done = 0
        for batch in _slices(self._reader, target):
            try:
                columns = self._columns.pick(batch, time.time_ns() // 1_000_000)
                chosen = self._chosen(partitioner, batch, columns)
            except RowRefused as error:
                raise ClientError(
                    f"row {done + error.row}: {error.what}", next_step=error.next_step, code=error.code
                ) from error
            yield from self._encode(columns, *partitioner.group(chosen), done)
            done += batch.num_rows

    def _chosen(self, partitioner: ColumnPartitioner, batch: Any, columns: RowColumns) -> Int32s:
        if self._partition_column is not None:
            return check_given(batch.column(self._partition_column), self._partitions)
        return partitioner.choose(columns.key, columns.rows)

    def _encode(self, columns: RowColumns, rows: Any, ends: Any, done: int) -> Iterator[Outgoing]:
        for partition in np.flatnonzero(np.diff(ends)).tolist():
            left = rows[ends[partition] : ends[partition + 1]]
            while len(left):
                batch, count = encode_batch(
                    columns,
                    left,
                    codec=self._codec,
                    max_bytes=self._batch_bytes,
                    producer=self._producer,
                    base_sequence=self._next_sequence(partition),
                )
                self._took(partition, count)
                yield Outgoing(partition=partition, batch=batch, rows=left[:count] + done)
                left = left[count:]

    def _next_sequence(self, partition: int) -> int:
        return self._sequences.get(partition, 0) if self._producer != NOBODY else NO_SEQUENCE

    def _took(self, partition: int, count: int) -> None:
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) % _SEQUENCES


def _check_acks(acks: object, idempotent: bool, transactional_id: str | None) -> None:
    if acks not in ("all", 1, 0):
        raise ClientError(f"acks={acks!r} is not served", next_step='use acks="all", acks=1 or acks=0')
    if idempotent and acks != "all":
        raise ClientError(
            "an idempotent write needs acks='all'", next_step=f"give idempotent=False with acks={acks}"
        )
    if transactional_id is not None and not idempotent:
        raise ClientError(
            "a transaction needs an idempotent write", next_step="leave idempotent and acks out"
        )


def _codec(compression: str) -> int:
    try:
        return Codec[compression.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise ClientError(f"{compression!r} is not a compression", next_step=f"use one of {names}") from None


def _as_reader(data: Any) -> Any:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    batches = iter(data)
    first = next(batches, None)
    if first is None:
        raise ClientError("there is no batch to write", next_step="give an empty table to write nothing")
    return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _slices(reader: Any, target: int) -> Iterator[Any]:
    """The rows in pieces of about `target` bytes: small batches are put together, large ones cut."""
    small: list[Any] = []
    size = 0
    for batch in reader:
        if batch.num_rows == 0:
            continue
        small.append(batch)
        size += batch.nbytes
        if size >= target:
            yield from _cut(_joined(small), target)
            small, size = [], 0
    if small:
        yield from _cut(_joined(small), target)


def _joined(batches: list[Any]) -> Any:
    return (
        batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    )


def _cut(batch: Any, target: int) -> Iterator[Any]:
    rows = max(1, batch.num_rows * target // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
