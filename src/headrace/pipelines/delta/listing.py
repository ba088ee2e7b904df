"""The files that make up one version of a table. Knows no Spark. Read next: rows.py, merge.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    path: str
    """Within the table's folder."""
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
