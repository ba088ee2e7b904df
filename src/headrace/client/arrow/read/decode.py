# SPDX-License-Identifier: Apache-2.0
"""Fetched bytes to Arrow record batches of the columns that were asked for.

Read next: ../fetch/sections.py (splitting into batches), ../kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.fetch.sections import Fetched, Section, sections_of
from headrace.client.arrow.kernels.available import kernels
from headrace.client.arrow.kernels.types import FIELDS, Decoded, Kernels
from headrace.client.errors import ClientError

DEFAULT_BATCH_BYTES = 4 << 20
"""Of records, before they are expanded: about as much goes into one Arrow batch."""
_LIKELY_RATIO = 4  # how far compressed records may expand, to keep Arrow batches of a size


class Decoder:
    """Of one topic. `columns` in any order; Arrow batches have them in the order of FIELDS."""

    def __init__(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        code: Kernels | None = None,
    ) -> None:
        wanted = check_columns(columns)
        self.schema = pa.schema([field for name, field in FIELDS.items() if name in wanted])
        self.topic = topic
        self._wanted = wanted
        self._batch_bytes = batch_bytes
        self._kernels = code or kernels()

    def decode(self, parts: Iterable[Fetched]) -> Iterator[Any]:
        """Arrow batches of all wanted records, in the order given. DecodeError when any is malformed."""
        group: list[Section] = []
        size = 0
        for fetched in parts:
            for section in sections_of(fetched):
                group.append(section)
                size += len(section.batch) * (_LIKELY_RATIO if section.header.codec else 1)
                if size >= self._batch_bytes:
                    yield from self._decode_group(group)
                    group, size = [], 0
        yield from self._decode_group(group)

    def _decode_group(self, group: Sequence[Section]) -> Iterator[Any]:
        decoded = self._kernels.decode(group, self._wanted)
        rows = int(decoded.rows_per_section.sum())
        if rows:
            arrays = [self._column(name, group, decoded, rows) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, group: Sequence[Section], decoded: Decoded, rows: int) -> Any:
        if name in decoded.columns:
            return decoded.columns[name]
        if name == "topic":
            return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([self.topic]))
        if name == "partition":
            values = np.array([section.partition for section in group], np.int32)
        else:
            values = np.array([section.header.timestamp_type for section in group], np.int8)
        return pa.array(np.repeat(values, decoded.rows_per_section))


def check_columns(columns: Sequence[str] | None) -> frozenset[str]:
    if columns is None:
        return frozenset(FIELDS)
    unknown = [name for name in columns if name not in FIELDS]
    if unknown or not columns or isinstance(columns, str):
        raise ClientError(
            f"{unknown[0]!r} is not a column of a topic" if unknown else "no column was asked for",
            next_step=f"choose a list from {', '.join(FIELDS)}",
        )
    return frozenset(columns)
