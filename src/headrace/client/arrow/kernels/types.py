# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic and the values that kernels take and give. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.client.arrow.fetch.sections import Section

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("item", HEADER, nullable=False))
TIMESTAMP = pa.timestamp("ms", tz="UTC")

FIELDS = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "headers": pa.field("headers", HEADERS, nullable=False),
    "topic": pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    "partition": pa.field("partition", pa.int32(), nullable=False),
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", TIMESTAMP),
    "timestamp_type": pa.field("timestamp_type", pa.int8(), nullable=False),
}
"""In the order in which they appear. A timestamp's type: 0 is the producer's time, 1 the broker's."""

Int32s = np.ndarray[Any, np.dtype[np.int32]]  # numpy.typing takes long to import
Int64s = np.ndarray[Any, np.dtype[np.int64]]


class Decoded(NamedTuple):
    """`columns` holds what was asked for of key, value, headers, offset and timestamp."""

    rows_per_section: Int64s
    columns: dict[str, Any]


class RowColumns(NamedTuple):
    """What is written: Arrow arrays of one length (binary, binary, HEADERS), milliseconds; None: absent.

    `timestamp` is the time of all rows where `timestamps` is None.
    """

    rows: int
    key: Any
    value: Any
    headers: Any
    timestamps: Int64s | None
    timestamp: int


class EncodedRows(NamedTuple):
    """Records as they stand in a batch, behind as many free bytes as were asked for."""

    buffer: bytearray
    rows: int
    base_timestamp: int
    max_timestamp: int


class Kernels(Protocol):
    """The seam between compiled.py and row_wise.py: same results, same errors."""

    name: str

    def decode(self, sections: Sequence[Section], wanted: frozenset[str]) -> Decoded:
        """Every wanted record of the sections. DecodeError when one is malformed."""

    def encode(self, columns: RowColumns, rows: Int64s, *, limit: int, free: int) -> EncodedRows:
        """As many of these rows as fit `limit` bytes, at least one, as the records of one batch."""

    def murmur2(self, keys: Any) -> Int32s:
        """The Java client's hash of every key of a binary column; 0 where it is null."""

    def group(self, chosen: Int32s, partitions: int) -> tuple[Int64s, Int64s]:
        """(row numbers by partition, then in order; where each partition's begin, and the end)."""
