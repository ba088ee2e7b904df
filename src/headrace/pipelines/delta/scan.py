# SPDX-License-Identifier: Apache-2.0
"""Lists and reads the files of one version of a table, without Spark. Read next: merge.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from deltalake import DeltaTable

_BATCH_ROWS = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    path: str
    """Relative to the table's directory."""
    size: int
    partition_values: Mapping[str, Any]


def files_of(table: DeltaTable) -> list[TableFile]:
    actions = pa.table(table.get_add_actions())
    partitioned = "partition" in actions.column_names
    values = actions["partition"].to_pylist() if partitioned else [{}] * actions.num_rows
    return [
        TableFile(path=unquote(path), size=size, partition_values=partition or {})
        for path, size, partition in zip(
            actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), values, strict=True
        )
    ]


def rows_of(source: Any, partition_values: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file; columns that it lacks come from the partition values or are null.

    source: of TableFolder.
    """
    with pq.ParquetFile(source, pre_buffer=not isinstance(source, Path)) as file:
        there = set(file.schema_arrow.names)
        wanted = [name for name in schema.names if name in there]
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in there
                else pa.repeat(pa.scalar(partition_values.get(field.name), field.type), batch.num_rows)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
