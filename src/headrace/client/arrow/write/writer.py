# SPDX-License-Identifier: Apache-2.0
"""Writing tables to a topic: `write` for plain code, `awrite` for asyncio.

Partitions and encodes rows here while a background thread sends. Read next: write_request.py, sender.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Unpack

from headrace.client.arrow.io_thread import IoThread
from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.write.frames import Data
from headrace.client.arrow.write.results import Delivered
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.transaction_session import TransactionSession
from headrace.client.arrow.write.write_request import WriteOptions, WriteRequest
from headrace.client.network_client import NetworkClient

_ENCODED_AHEAD = 4
"""Batches being queued, so that encoding does not wait for the background thread."""


@keywords_of(WriteOptions, WriteRequest)
def write(data: Data, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
    """Writes every row of a table as a record; returns once all are acknowledged.

    Columns named key, value, headers, timestamp and partition are these parts of the record, so that
    `write(read("orders"), "copies")` copies whole records. Without a column `value`, the other columns become
    one JSON object.

    Args:
        data: a table of pandas, polars (also lazy), PyArrow or DuckDB, a list of dicts, anything with an
            Arrow stream, or an iterable of such tables with the same columns.
        topic: its name.

    Keyword Args:
        bootstrap: `HOST:PORT,…` of any Kafka broker; without it the variable `HEADRACE_BOOTSTRAP`, then
            127.0.0.1:9092.
        security: TLS and login as a `headrace.Security`.
        config: the same in a properties file of a Kafka client; without both, the file that
            `HEADRACE_CLIENT_CONFIG` names.
        create: a missing topic is created if the broker creates topics by itself (None), through a request
            (True, or its number of partitions), or not at all (False).
        key: the column of keys, or a list of columns that make one object; None: no keys.
        value: the same for values; None: null values, which are tombstones in compacted topics.
        headers: a column of `list<struct<key, value>>`; in dicts also lists of (name, value).
        timestamp: a column of timestamps, or of milliseconds; without it the time of writing.
        partition: a column of partition numbers; not taken by name where `partitioner` is given.
        key_format: "raw", "string", "int64" and other numbers (as Kafka's serializers write them), "json",
            "avro", `headrace.Avro(…)`; by default what the column's type suggests, JSON for objects.
        value_format: the same for values.
        partitioner: None: by the key ranges stored with the topic, by hash where it has none; "hash" (as the
            Java client), "round_robin", or a RangePartitioner.
        acks: "all", 1, or 0 (sent once, not acknowledged).
        compression: "none", "gzip", "snappy", "lz4", "zstd".
        idempotent: retries duplicate and reorder nothing (True; needs acks="all").
        transactional_id: all rows or none, for readers of committed records; see `headrace.transaction`.
        transaction_timeout_ms: the broker aborts such a write when it takes longer (60,000).
        batch_bytes: size of a record batch before compression (1,000,000).
        budget: bytes that may be unacknowledged (32 MiB).
        timeout_ms: how long sending is retried (120,000).
        progress: show a bar (True) or none (False); None: on terminals and in notebooks if it takes long.

    Returns:
        How many records went to which partition, and their offsets.

    Raises:
        WriteFailed: a broker refused rows: `rows` are their numbers in the input, `delivered` what it took.
        NoSuchTopic: the topic does not exist and is not created.
        ClientError: data, an argument or a column does not fit; nothing was sent. Or no broker answers.

    Example:
        ```python
        headrace.write([{"key": "ann", "item": "fig", "price": 0.5}], "orders")
        headrace.write(frame, "orders", key="customer", create=3)
        ```
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


@keywords_of(WriteOptions, WriteRequest)
async def awrite(data: Data, topic: str, **options: Unpack[WriteOptions]) -> Delivered:
    """Writes with asyncio; takes what `write` takes. `data` is read in a thread.

    Example:
        ```python
        delivered = await headrace.awrite([{"item": "fig"}], "orders")
        ```
    """
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
