# SPDX-License-Identifier: Apache-2.0
"""Tables as Spark's tasks read them: partitions, columns that came later, and what is not read here."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from headrace.client.errors import ClientError
from pyspark_headrace_delta import reader as reader_module
from pyspark_headrace_delta.reader import TableReader, table_columns


def read(path: Path, columns: list[str] | None = None, version: Any = None) -> list[dict[str, Any]]:
    reader = TableReader(path, columns or table_columns(path).fieldNames(), version)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=str)


def test_values_from_the_log_and_columns_that_came_later(tmp_path: Path) -> None:
    for number, name in enumerate(["a/b", "c d%", None]):
        rows = pa.table({"n": [number], "name": pa.array([name], pa.string())})
        write_deltalake(tmp_path, rows, mode="append", partition_by=["name"])
    more = pa.table({"n": [3], "name": ["x"], "more": [[{"k": 1.5}]]})
    write_deltalake(tmp_path, more, mode="append", partition_by=["name"], schema_mode="merge")
    assert read(tmp_path) == sorted(DeltaTable(tmp_path).to_pyarrow_table().to_pylist(), key=str)
    assert read(tmp_path, ["name"])[0] == {"name": "a/b"}


def test_small_files_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        write_deltalake(tmp_path, pa.table({"n": [number]}), mode="append")
    reader = TableReader(tmp_path, ["n"])
    assert len(reader.partitions()) == 1
    size = max(DeltaTable(tmp_path).get_add_actions()["size_bytes"].to_pylist())
    monkeypatch.setattr(reader_module, "_TASK_BYTES", 2 * size)
    assert len(reader.partitions()) == 3
    assert [row["n"] for row in read(tmp_path)] == list(range(6))


def test_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("n", pa.int64())]))
    assert read(tmp_path) == []
    assert table_columns(tmp_path).simpleString() == "struct<n:bigint>"


def test_missing_and_unsupported_tables_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="there is no Delta table in"):
        read(tmp_path)
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    DeltaTable(tmp_path).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(ClientError, match="needs unsupported reader features: deletionVectors"):
        read(tmp_path)


def test_an_older_version_is_read(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"n": [number]}), mode="append")
    assert read(tmp_path, version=1) == [{"n": 0}, {"n": 1}]
    with pytest.raises(ClientError, match=r"has no version 9: .*; its latest version is 2"):
        table_columns(tmp_path, 9)


def test_a_version_is_found_by_its_time(tmp_path: Path) -> None:
    for number in range(2):
        write_deltalake(tmp_path, pa.table({"n": [number]}), mode="append")
        os.utime(tmp_path / f"_delta_log/{number:020}.json", (1000 * number, 1000 * number))
    at = datetime.datetime.fromtimestamp(500, datetime.UTC)
    assert read(tmp_path, version=at) == [{"n": 0}]
    with pytest.raises(ClientError, match="its log begins later; its latest version is 1"):
        table_columns(tmp_path, datetime.datetime.fromtimestamp(-5, datetime.UTC))
