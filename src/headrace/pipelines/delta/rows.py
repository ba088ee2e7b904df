"""The rows of one file of a table, with the columns that lie in the table's log or came after it was written.

Knows neither Spark nor the log. Read next: files.py, merge.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_BATCH_ROWS = 32_768


def rows_of(path: Path, partition_values: Mapping[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """In the columns of `schema`."""
    with pq.ParquetFile(path) as file:
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
