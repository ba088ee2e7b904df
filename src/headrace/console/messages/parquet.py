# SPDX-License-Identifier: Apache-2.0
"""Records as a Parquet file, written piece by piece, with the columns of `headrace.read`.

Needs the extra `[arrow]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client.arrow.kernels.types import FIELDS
from headrace.console.messages.record import StoredRecord

_GROUP_ROWS = 50_000
_GROUP_BYTES = 64 << 20


class ParquetEncoder:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._sink = _Sink()
        self._schema = pa.schema(list(FIELDS.values()))
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._waiting: list[StoredRecord] = []
        self._size = 0

    def encode(self, records: Sequence[StoredRecord]) -> bytes:
        self._waiting += records
        self._size += sum(record.size for record in records)
        if len(self._waiting) >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
            self._write()
        return self._sink.drain()

    def finish(self) -> bytes:
        self._write()
        self._writer.close()
        return self._sink.drain()

    def _write(self) -> None:
        if self._waiting:
            columns = {name: [_cell(name, each, self._topic) for each in self._waiting] for name in FIELDS}
            self._writer.write_table(pa.table(columns, schema=self._schema))
            self._waiting, self._size = [], 0


class _Sink:
    """A file that gives away what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._position += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Everything is written already."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def drain(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


def _cell(name: str, record: StoredRecord, topic: str) -> Any:
    match name:
        case "topic":
            return topic
        case "timestamp":
            return record.timestamp_ms
        case "timestamp_type":
            return int(record.append_time)
        case "headers":
            return [{"key": _utf8(each), "value": value} for each, value in record.headers]
        case _:
            return getattr(record, name)


def _utf8(name: str) -> str:
    return name.encode(errors="replace").decode()
