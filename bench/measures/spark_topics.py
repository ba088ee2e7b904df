# SPDX-License-Identifier: Apache-2.0
"""The topics that Spark reads: rows of 100 bytes, or small JSON documents, in eight partitions.

One batch is made and written again and again, so that totals are known. Read next: spark.py.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from bench.cell import Cell
from bench.measures.arrow import rows
from bench.raw_client import produce_check, produce_pipelined
from bench.raw_requests import produce_request
from headrace.client.arrow.write.columns import WriteColumns
from headrace.client.arrow.write.encode import encode_batch
from headrace.wire.compression import Codec

PARTITIONS = 8
BYTES_PER_ROW = 100
_ROWS_PER_BATCH = 5_000
_CUSTOMERS = 50
_WINDOW_S = 10
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """One batch of them, and what it adds up to."""

    batch: bytes
    rows: int
    amount: int
    groups: int
    """Windows and customers that occur together."""


def total_rows(cell: Cell, wanted: int) -> int:
    """Of a topic that `fill_partitions` filled: whole batches, as many in every partition."""
    return _batches_per_partition(cell, wanted) * PARTITIONS * _ROWS_PER_BATCH


def fill_partitions(cell: Cell, topic: str, batch: bytes, wanted: int) -> None:
    count = _batches_per_partition(cell, wanted)
    with cell.connect() as connection:
        for partition in range(PARTITIONS):
            request = produce_request(topic, {partition: batch}, acks=1)
            check = produce_check(topic)
            produce_pipelined(connection, request, check, in_flight=5, count=count)


@cache
def batch_of_rows() -> bytes:
    return _encoded(rows(_ROWS_PER_BATCH), key="key")


@cache
def batch_of_documents() -> Documents:
    documents = [_document(number) for number in range(_ROWS_PER_BATCH)]
    values = [json.dumps(each).encode() for each in documents]
    begun = [datetime.fromisoformat(each["at"]).timestamp() // _WINDOW_S for each in documents]
    return Documents(
        batch=_encoded(pa.record_batch({"value": pa.array(values)}), key=None),
        rows=len(documents),
        amount=sum(each["amount"] for each in documents),
        groups=len({(window, each["customer"]) for window, each in zip(begun, documents, strict=True)}),
    )


def _document(number: int) -> dict[str, Any]:
    at = _BEGIN + timedelta(milliseconds=number * 60)  # a batch spans five minutes
    return {
        "id": number,
        "customer": f"customer-{number * 7919 % _CUSTOMERS}",
        "amount": number * 31 % 10_000,
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _batches_per_partition(cell: Cell, wanted: int) -> int:
    return max(2, round(wanted * cell.suite_scale / PARTITIONS / _ROWS_PER_BATCH))


def _encoded(batch: Any, *, key: str | None) -> bytes:
    columns = WriteColumns(key=key).bound(batch.schema, "bench").pick(batch, int(time.time() * 1000))
    every = np.arange(batch.num_rows, dtype=np.int64)
    return bytes(encode_batch(columns, every, codec=Codec.NONE, max_bytes=1 << 21).batch)
