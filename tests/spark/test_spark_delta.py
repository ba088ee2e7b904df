# SPDX-License-Identifier: Apache-2.0
"""Rows to Delta tables by a real Spark: exactly once, read back by Spark, DuckDB and polars alike."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from tests.spark.spark_lab import TIMEOUT_S, Broker, message_of, repair_as_told

TYPED = """
    SELECT id, CAST(id AS INT) AS whole, CAST(id AS STRING) AS text, id % 2 = 0 AS even,
           encode(CAST(id AS STRING), 'utf-8') AS raw, CAST(id / 4 AS DECIMAL(12, 2)) AS price,
           id / 3 AS third, CAST(id AS FLOAT) AS small,
           TIMESTAMP'2026-11-15 12:00:00.123456' + make_dt_interval(0, id) AS time,
           TIMESTAMP_NTZ'2026-11-15 12:00:00' AS local_time, DATE'2026-11-15' + CAST(id AS INT) AS day,
           array(id, NULL) AS list, map('a', id) AS map, named_struct('x', id, 'y', 'z') AS nested,
           IF(id = 3, NULL, id) AS sometimes
    FROM range(10)
"""


class Store:
    """A query that stores a topic in a table, over one checkpoint, run as often as a test likes."""

    def __init__(self, spark: Any, broker: Broker, topic: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = broker.bootstrap
        self._topic = topic
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"

    def run(self, *, rows: int = 100, **options: Any) -> Any:
        """`rows`: of a micro-batch, at most. `options`: of the sink."""
        reader = self._spark.readStream.format("headrace").option("bootstrap", self._bootstrap)
        reader = reader.options(subscribe=self._topic, startingOffsets="earliest", maxOffsetsPerTrigger=rows)
        query = (
            reader.load()
            .selectExpr("CAST(value AS STRING)", "partition", "offset")
            .writeStream.format("headrace_delta")
            .options(path=str(self.table), checkpointLocation=str(self.checkpoint), **options)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        return query

    def values(self) -> list[str]:
        return sorted(DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist())

    def forget_last_commit(self) -> None:
        """As if the driver had died after the table's commit and before it noted that in the checkpoint."""
        newest = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_all_types_come_back(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql(TYPED)
    frame.write.format("headrace_delta").mode("append").save(str(tmp_path))
    table = DeltaTable(tmp_path)
    found = table.to_pyarrow_table().sort_by("id")
    wanted = frame.toArrow().sort_by("id")
    assert found.to_pylist() == wanted.to_pylist()
    by_polars = polars.read_delta(str(tmp_path)).sort("id").drop("map")
    assert by_polars.rows() == polars.from_arrow(wanted).drop("map").rows()
    with duckdb.connect() as connection:
        connection.register("stored", table.to_pyarrow_dataset())
        question = "SELECT sum(price), max(text), count(sometimes) FROM stored WHERE id < 4"
        assert connection.sql(question).fetchall() == [(Decimal("1.50"), "3", 3)]
    rows = frame.collect()
    assert sorted(spark.read.parquet(*table.file_uris()).collect(), key=_id) == rows
    assert sorted(spark.read.format("headrace_delta").load(str(tmp_path)).collect(), key=_id) == rows


def _id(row: Any) -> int:
    number: int = row.id
    return number


def test_a_stream_is_stored_once_however_often_a_batch_is_tried(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    values = broker.fill(topic, 0, 250)
    store = Store(spark, broker, topic, tmp_path)
    query = store.run()
    assert store.values() == sorted(values)
    table = DeltaTable(store.table)
    assert table.transaction_version(query.id) == 2
    files = set(table.file_uris())

    store.forget_last_commit()
    store.run()
    assert store.values() == sorted(values), "the last batch was written again, into files nobody names"
    assert set(DeltaTable(store.table).file_uris()) == files
    assert len(list(store.table.glob("*.parquet"))) > len(files)

    values += broker.fill(topic, 250, 300)
    store.run()
    assert store.values() == sorted(values)
    by_offset = DeltaTable(store.table).to_pyarrow_table().select(["partition", "offset"]).to_pylist()
    assert len({(row["partition"], row["offset"]) for row in by_offset}) == 300


@pytest.mark.parametrize("batches", [1, 3], ids=["one batch ago", "three batches ago"])
def test_a_restored_checkpoint_loses_no_rows(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str], batches: int
) -> None:
    """It is refused; after the command that the error names, the query goes on behind its table."""
    topic = new_topic(1)
    values = broker.fill(topic, 0, 50)
    store = Store(spark, broker, topic, tmp_path)
    store.run()
    backup = shutil.copytree(store.checkpoint, tmp_path / "backup")
    values += broker.fill(topic, 50, 50 + 100 * batches)
    store.run()
    shutil.rmtree(store.checkpoint)
    backup.rename(store.checkpoint)
    later = broker.fill(topic, 50 + 100 * batches, 60 + 100 * batches)

    said = message_of(lambda: store.run(rows=110))
    assert "an older checkpoint was restored" in said
    assert ("goes on with batch 1" if batches > 1 else "offsets differ") in said
    assert store.values() == sorted(values)
    repair_as_told(said)
    store.run()
    assert store.values() == sorted(values + later)


def test_a_new_checkpoint_under_an_old_name_is_refused(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.fill(topic, 0, 50)
    store = Store(spark, broker, topic, tmp_path)
    store.run(txnAppId="orders", partitionBy="partition", targetFileSize="64k")
    assert DeltaTable(store.table).transaction_version("orders") == 0
    assert (store.table / "partition=0").is_dir()
    read = spark.read.format("headrace_delta").load(str(store.table))
    assert {row.partition for row in read.collect()} == {0}
    assert read.schema.simpleString() == "struct<value:string,partition:int,offset:bigint>"
    shutil.rmtree(store.checkpoint)
    said = message_of(lambda: store.run(txnAppId="orders", partitionBy="partition"))
    assert "txnAppId 'orders' was used by another query" in said
    assert "partitioned by partition" in message_of(store.run)
    assert len(store.values()) == 50


def test_complete_mode_replaces_the_rows(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    broker.fill(topic, 0, 150)
    reader = spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
    frame = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    query = (
        frame.groupBy("topic")
        .count()
        .writeStream.format("headrace_delta")
        .options(path=str(tmp_path / "counts"), checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    spark.conf.unset("spark.sql.shuffle.partitions")
    assert query.awaitTermination(TIMEOUT_S)
    table = DeltaTable(tmp_path / "counts")
    assert table.to_pyarrow_table().to_pylist() == [{"topic": topic, "count": 150}]
    table.load_as_version(0)
    assert table.to_pyarrow_table()["count"].to_pylist() == [100]


def test_a_batch_write_with_a_version_counts_once(spark: Any, tmp_path: Path) -> None:
    writer = spark.range(10).write.format("headrace_delta").option("path", str(tmp_path)).mode("append")
    for version in (1, 1, 2):
        writer.options(txnAppId="nightly", txnVersion=version).save()
    assert DeltaTable(tmp_path).count() == 20
    spark.range(3).write.format("headrace_delta").mode("overwrite").save(str(tmp_path))
    assert DeltaTable(tmp_path).count() == 3


def test_a_failing_task_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "table"
    frame = spark.range(0, 100, 1, 2).selectExpr("IF(id = 99, raise_error('stop'), id) AS id")
    with pytest.raises(Exception, match="stop"):
        frame.write.format("headrace_delta").mode("append").save(str(path))
    assert not (path / "_delta_log").exists()
    written_by_others = list(path.glob("*.parquet")) if path.exists() else []
    assert all("part-00001" not in file.name for file in written_by_others)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (
            ["id"],
            {"path": "hdfs://host/table"},
            "only file systems and object stores are supported, not hdfs:",
        ),
        (["id"], {"path": ""}, "no table is set"),
        (["id"], {"targetFileSize": "huge"}, "'targetfilesize' cannot be 'huge'; write it like 128m"),
        (["id"], {"mergeShema": "true"}, "did you mean 'mergeSchema'?"),
        (["id"], {"txnAppId": "nightly"}, "only work together in a batch write"),
        (["id"], {"partitionBy": "day"}, "there is no column 'day' to partition by, only id"),
        (["id"], {"partitionBy": "id"}, "partitioned by all of its columns"),
        (["id", "NULL AS n"], {}, "column 'n' is void, which Delta does not support"),
        (["id AS `my id`"], {}, "a column cannot be named 'my id'"),
    ],
)
def test_invalid_writes_are_refused(
    spark: Any, tmp_path: Path, columns: list[str], options: dict[str, str], said: str
) -> None:
    writer = spark.range(2).selectExpr(*columns).write.format("headrace_delta").mode("append")
    assert said in message_of(writer.options(**{"path": str(tmp_path), **options}).save)
    assert not (tmp_path / "_delta_log").exists()


def test_statistics_let_readers_skip_files(spark: Any, tmp_path: Path) -> None:
    spark.range(0, 1000, 1, 2).write.format("headrace_delta").mode("append").save(str(tmp_path))
    actions = [
        json.loads(line) for line in (tmp_path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    ]
    bounds = [json.loads(action["add"]["stats"]) for action in actions if "add" in action]
    assert sorted((stats["minValues"]["id"], stats["maxValues"]["id"]) for stats in bounds) == [
        (0, 499),
        (500, 999),
    ]


def test_invalid_reads_are_refused(spark: Any, tmp_path: Path) -> None:
    reader = spark.read.format("headrace_delta")
    assert "there is no Delta table in" in message_of(lambda: reader.load(str(tmp_path)))
    spark.range(3).write.format("headrace_delta").mode("append").save(str(tmp_path))
    wrong = reader.schema("id STRING")
    assert "has no column 'id' of type string" in message_of(lambda: wrong.load(str(tmp_path)).collect())
