# SPDX-License-Identifier: Apache-2.0
"""Delta tables through Spark's own Parquet reader: the same rows as deltalake's, from one version's files."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headrace.client.errors import ClientError
from headrace.pipelines.delta.recorded_batches import SOURCES
from headrace.spark import delta
from tests.spark.test_spark_delta import TYPED
from tests.spark.test_spark_topic_table import plan_of


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=str)


def wanted(path: Path, **version: Any) -> list[dict[str, Any]]:
    return sorted(DeltaTable(path, **version).to_pyarrow_table().to_pylist(), key=str)


def test_all_types_of_our_own_files(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(TYPED)
    frame.write.format("headrace_delta").mode("append").save(str(tmp_path))
    found = delta(spark, tmp_path)
    assert found.dtypes == frame.dtypes
    assert rows_of(found) == rows_of(frame)


def test_partition_values_of_every_kind(spark: Any, tmp_path: Path) -> None:
    """Of both writers; folder names that Spark would read otherwise, and values that are no folder's name."""
    names = ["a/b", "c d%", None, "__HIVE_DEFAULT_PARTITION__", "ü=[x]{y}*?", "n" * 300, "a%2Fb"]
    rows = pa.table({"n": range(len(names)), "name": pa.array(names, pa.string())})
    by_us, by_others = tmp_path / "ours [1]", tmp_path / "theirs"
    frame = spark.createDataFrame(rows.to_pylist())
    writer = frame.write.format("headrace_delta").option("partitionBy", "name").mode("append")
    writer.save(str(by_us))
    others = rows.take([0, 1, 2, 4])  # deltalake itself takes the name of the null folder for a null
    write_deltalake(by_others, others, partition_by=["name"])
    for path in (by_us, by_others):
        found = delta(spark, path)
        assert rows_of(found.select("n", "name")) == wanted(path)
        assert [row.n for row in found.where("name = 'a/b'").collect()] == [0]
        assert [row.n for row in found.where("name IS NULL").collect()] == [2]


def test_partition_columns_of_other_types(spark: Any, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": [1, 2],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(8, 2)),
            "at": pa.array([datetime.datetime(2026, 1, 1, 12, 30, tzinfo=datetime.UTC), None]),
            "whole": pa.array([7, None], pa.int32()),
            "day": pa.array([datetime.date(2026, 1, 1), None]),
            "even": [True, False],
        }
    )
    plain, others = tmp_path / "plain", tmp_path / "others"
    write_deltalake(plain, rows, partition_by=["whole", "day", "even"])
    write_deltalake(others, rows, partition_by=["price", "at"])
    for path in (plain, others):
        found = delta(spark, path)
        assert [kind for _, kind in found.dtypes] == [
            *("bigint", "decimal(8,2)", "timestamp", "int", "date", "boolean")
        ]
        as_written = DeltaTable(path).to_pyarrow_table().select(rows.column_names).to_pylist()
        numbers = [(row.n, row.price, row.whole, row.day, row.even) for row in found.orderBy("n").collect()]
        assert numbers == [
            tuple(row[name] for name in ("n", "price", "whole", "day", "even"))
            for row in sorted(as_written, key=lambda row: row["n"])
        ]
        assert found.where("at = TIMESTAMP'2026-01-01 12:30:00Z'").count() == 1
    plan = plan_of(delta(spark, plain).where("day = DATE'2026-01-01'"))
    assert "PartitionFilters: [isnotnull(day" in plan


def test_columns_that_came_later_and_many_files(spark: Any, tmp_path: Path) -> None:
    for number in range(40):
        write_deltalake(tmp_path, pa.table({"n": [number]}), mode="append")
    more = pa.table({"n": [40], "more": [[{"k": 1.5}]]})
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    DeltaTable(tmp_path).delete("n = 3")
    found = delta(spark, tmp_path, columns=["more", "n"])
    assert found.columns == ["more", "n"]
    assert rows_of(found.select("n", "more")) == wanted(tmp_path)
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "32"


def test_travel_by_version_time_and_offset(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_batch(tmp_path, number)
    DeltaTable(tmp_path).optimize.compact()
    write_batch(tmp_path, 3)
    found = {
        version: sorted(row.n for row in delta(spark, tmp_path, version=version).collect())
        for version in (0, 2)
    }
    assert found == {0: [0], 2: [0, 1, 2]}
    (at,) = (each["timestamp"] for each in DeltaTable(tmp_path).history() if each["version"] == 1)
    as_of = datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)
    assert delta(spark, tmp_path, timestamp=as_of).count() == 2
    assert delta(spark, tmp_path, timestamp=as_of.isoformat()).count() == 2
    by_offset = delta(spark, tmp_path, offset={"orders": {"0": 35}})
    assert sorted(row.n for row in by_offset.collect()) == [0, 1, 2]
    assert len(by_offset.inputFiles()) == 1, "the merged file of the version before the next batch"
    assert delta(spark, tmp_path, offset={"orders": {"0": 40}}).count() == 4
    assert delta(spark, tmp_path, offset={"orders": {"0": 39, "1": 5}}).count() == 3
    with pytest.raises(ClientError, match=r"no version of the table .* ends at or before"):
        delta(spark, tmp_path, offset={"orders": {"0": 9}})


def test_an_empty_table(spark: Any, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, pa.schema([("n", pa.int64())]))
    found = delta(spark, tmp_path)
    assert (found.count(), found.dtypes) == (0, [("n", "bigint")])


def test_a_session_that_ignores_missing_files_still_fails(spark: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    found = delta(spark, tmp_path)
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
            found.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def write_batch(path: Path, number: int) -> None:
    """As the sink records them: the batch ends at a multiple of ten."""
    position = {"epoch": 0, "offset": 10 * (number + 1)}
    document = {
        "query": "q",
        "topics": {"orders": {"id": "t", "partitions": {"0": position}}},
        "version": 1,
    }
    metadata = {"appId": "query", "batchId": str(number), SOURCES: json.dumps([json.dumps(document)])}
    write_deltalake(
        path,
        pa.table({"n": [number]}),
        mode="append",
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
