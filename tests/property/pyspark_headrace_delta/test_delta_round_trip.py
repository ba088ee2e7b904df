# SPDX-License-Identifier: Apache-2.0
"""Any rows, in any partitions, come back; and no filter misses a row for what the log says of its file."""

from __future__ import annotations

import datetime
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from headrace.pipelines.delta.files import TaskFiles
from pyspark_headrace_delta.commit import TableCommit
from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.schema import table_schema

TYPES: dict[str, tuple[str, pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": ("string", pa.string(), st.text(max_size=40).filter(bool)),
    "price": (
        "decimal(20,10)",
        pa.decimal128(20, 10),
        st.decimals(-999_999_999, 999_999_999, places=10, allow_nan=False),
    ),
    "real": ("double", pa.float64(), st.floats()),
    "time": (
        "timestamp",
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(datetime.UTC)),
    ),
    "day": ("date", pa.date32(), st.dates()),
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "raw": ("binary", pa.binary(), st.binary(max_size=5)),
}
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in TYPES.items()})


@given(
    rows=st.lists(ROW, min_size=1, max_size=30),
    partition_by=st.lists(st.sampled_from(["text", "whole", "day", "flag"]), max_size=2, unique=True),
    pieces=st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_rows_come_back(rows: list[dict[str, Any]], partition_by: list[str], pieces: int) -> None:
    schema = pa.schema([(name, kind) for name, (_, kind, _) in TYPES.items()])
    table = pa.Table.from_pylist(rows, schema)
    with tempfile.TemporaryDirectory() as folder:
        stored = _stored(Path(folder), table, partition_by, pieces)
        read = stored.to_pyarrow_table()
        assert _sorted(read) == _sorted(table)
        dataset = stored.to_pyarrow_dataset()  # skips files by what the log says of them
        for name in TYPES:
            wanted = rows[len(rows) // 2][name]
            if wanted is None or (name == "real" and wanted != wanted):
                continue
            found = dataset.to_table(filter=pc.field(name) == pa.scalar(wanted, schema.field(name).type))
            assert found.num_rows == sum(row[name] == wanted for row in rows), name


def _stored(path: Path, table: pa.Table, partition_by: list[str], pieces: int) -> DeltaTable:
    size = -(-table.num_rows // pieces)
    files = [
        file
        for start in range(0, table.num_rows, size)
        for file in TaskFiles(path, partition_by, task=start, target_size=1 << 20).write(
            table.slice(start, size).to_batches()
        )
    ]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (kind, _, _) in TYPES.items()
    ]
    options = {"path": str(path), **({"partitionBy": ",".join(partition_by)} if partition_by else {})}
    TableCommit(
        settings=table_settings(options, streaming=True),
        schema=table_schema(StructType.fromJson({"type": "struct", "fields": fields}), partition_by),
        files=files,
        overwrite=False,
        batch=None,
    ).apply()
    return DeltaTable(path)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(str([_plain(row[name]) for name in TYPES]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return (
        value.astimezone(datetime.UTC).isoformat()
        if isinstance(value, datetime.datetime)
        else (format(value, "f") if isinstance(value, Decimal) else value)
    )
