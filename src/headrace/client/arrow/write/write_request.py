# SPDX-License-Identifier: Apache-2.0
"""Options of a write, checked, and its rows as encoded record batches. No network of its own.

Read next: frames.py, columns.py, topic_ranges.py, partitioning.py, encode.py, sender.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import pyarrow as pa

from headrace.client.arrow.errors import RowRefused
from headrace.client.arrow.kernels.types import Int32s, RowColumns
from headrace.client.arrow.progress_bar import ProgressBar
from headrace.client.arrow.values.formats import Format
from headrace.client.arrow.values.serializers import ColumnChoice
from headrace.client.arrow.write.columns import BY_NAME, ByName, columns_by_name
from headrace.client.arrow.write.encode import DEFAULT_BATCH_BYTES, NOBODY, encode_batch
from headrace.client.arrow.write.frames import Data, check_order, rows_of
from headrace.client.arrow.write.partitioning import (
    ColumnPartitioner,
    PartitionerChoice,
    check_given,
)
from headrace.client.arrow.write.sender import Outgoing, Sender
from headrace.client.arrow.write.topic_ranges import load_ranges
from headrace.client.arrow.write.transaction_session import DEFAULT_TRANSACTION_TIMEOUT_MS, TransactionSession
from headrace.client.bootstrap import chosen_bootstrap
from headrace.client.client_config import chosen_security
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.client.security import Security
from headrace.client.topic_creation import Create, check_create
from headrace.wire.batch import NO_SEQUENCE
from headrace.wire.compression import Codec

DEFAULT_TIMEOUT_MS = 120_000
DEFAULT_BUDGET = 32 << 20
_LARGEST_SLICE = 64 << 20
_BATCHES_PER_SLICE = 8
"""For each partition: only the last batch of a slice is not full."""
_SEQUENCES = 1 << 31

Acks = Literal["all", 1, 0]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class WriteOptions(TypedDict, total=False):
    """What `write` explains."""

    bootstrap: str | None
    security: Security | None
    config: str | Path | None
    create: Create
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


class WriteRequest:
    """One write, its options checked; encodes slice by slice."""

    def __init__(
        self,
        data: Data,
        topic: str,
        *,
        bootstrap: str | None = None,
        security: Security | None = None,
        config: str | Path | None = None,
        create: Create = None,
        key: ColumnChoice | ByName = BY_NAME,
        value: ColumnChoice | ByName = BY_NAME,
        key_format: Format | None = None,
        value_format: Format | None = None,
        headers: str | ByName | None = BY_NAME,
        timestamp: str | ByName | None = BY_NAME,
        partition: str | ByName | None = BY_NAME,
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
        check_order(data, topic)
        check_create(create)
        _check_acks(acks, idempotent, transactional_id)
        self._codec = _codec(compression)
        self._reader, rows = rows_of(data)
        if partitioner is not None and partition is BY_NAME:
            partition = None  # what was asked for wins over a column that happens to be there
        columns = columns_by_name(
            self._reader.schema,
            key=key,
            value=value,
            key_format=key_format,
            value_format=value_format,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
        )
        self._columns = columns.bound(self._reader.schema, topic)
        self._partition_column = columns.partition
        self._create = create
        self.bootstrap = chosen_bootstrap(bootstrap)
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
        self._bar = ProgressBar(f"writing {topic}", rows, progress)
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
        self._producer = await sender.open(idempotent=self._idempotent, create=self._create)
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
