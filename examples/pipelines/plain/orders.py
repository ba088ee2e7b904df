# SPDX-License-Identifier: Apache-2.0
"""A pipeline in plain Structured Streaming: orders of a topic into a table, and revenue by minute to a topic.

    python examples/pipelines/plain/orders.py --bootstrap 127.0.0.1:9092 --folder /tmp/orders --once

Two queries over one topic, each a consumer group of its own: `headrace groups list` shows how far they are.
Orders are JSON: {"customer": "ann", "amount": 12.5, "at": "2026-01-02T03:04:05Z"}. What is no such order goes
to the table `rejects`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.errors import ClientError
from headrace.spark import spark_session

ORDER = "customer STRING NOT NULL, amount DOUBLE NOT NULL, at TIMESTAMP NOT NULL"


def read_orders(spark: SparkSession, bootstrap: str, group: str, rejects: str) -> DataFrame:
    """Typed columns, without `from_json`: the source decodes."""
    return (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("group", group)
        .option("value", "json")
        .option("valueSchema", ORDER)
        .option("rejectsTable", rejects)
        .load()
        .select("value.*")
    )


def store(orders: DataFrame, folder: str, trigger: dict[str, Any]) -> StreamingQuery:
    """Every order once, whatever is killed: the table counts the micro-batches it holds."""
    return (
        orders.withColumn("day", functions.to_date("at"))
        .writeStream.queryName("store")
        .format("headrace_delta")
        .option("path", f"{folder}/orders")
        .option("partitionBy", "day")
        .option("checkpointLocation", f"{folder}/checkpoints/store")
        .trigger(**trigger)
        .start()
    )


def revenue(orders: DataFrame, bootstrap: str, folder: str, trigger: dict[str, Any]) -> StreamingQuery:
    """A minute is written when it is over: an order may be ten minutes late, later ones are left out."""
    minutes = (
        orders.withWatermark("at", "10 minutes")
        .groupBy(functions.window("at", "1 minute"))
        .agg(functions.sum("amount").alias("revenue"), functions.count("*").alias("orders"))
    )
    return (
        minutes.selectExpr(
            "CAST(window.start AS STRING) AS key",
            "to_json(struct(window.start AS minute, revenue, orders)) AS value",
        )
        .writeStream.queryName("revenue")
        .format("headrace")
        .option("bootstrap", bootstrap)
        .option("topic", "revenue")
        .option("checkpointLocation", f"{folder}/checkpoints/revenue")
        .trigger(**trigger)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, folder: str, *, once: bool) -> None:
    """`once`: what is there now, then end. Otherwise until it is interrupted."""
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    rejects = f"{folder}/rejects"
    queries = [
        store(read_orders(spark, bootstrap, "store", rejects), folder, trigger),
        revenue(read_orders(spark, bootstrap, "revenue", rejects), bootstrap, folder, trigger),
    ]
    for query in queries:
        query.awaitTermination()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--folder", required=True, help="for the tables and the checkpoints")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    asked = parser.parse_args()
    try:
        spark = spark_session(asked.master, name="orders")
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        run(spark, asked.bootstrap, asked.folder, once=asked.once)
    except KeyboardInterrupt:
        return 130
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
