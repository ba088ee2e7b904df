# SPDX-License-Identifier: Apache-2.0
"""A stream-stream join: orders with their payments, and the orders that nobody paid within an hour.

    python examples/pipelines/joins/settled.py --folder /tmp/settled --once

Orders are JSON: {"id": "o-1", "amount": 12.5, "at": "2026-01-02T03:04:05Z"}, payments too:
{"order_id": "o-1", "paid": 12.5, "paid_at": "2026-01-02T03:10:00Z"}. Both may be ten minutes late. A paid
order is written at once, an unpaid one when no payment can come any more: when both topics have later
records.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.errors import ClientError
from headrace.spark import spark_session

ORDER = "id STRING NOT NULL, amount DOUBLE NOT NULL, at TIMESTAMP NOT NULL"
PAYMENT = "order_id STRING NOT NULL, paid DOUBLE NOT NULL, paid_at TIMESTAMP NOT NULL"
IN_TIME = "order_id = id AND paid_at BETWEEN at AND at + INTERVAL 1 HOUR"


def read(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("group", f"settled-{topic}")
        .option("value", "json")
        .option("valueSchema", schema)
        .load()
        .select("value.*")
    )


def settled(spark: SparkSession, bootstrap: str, folder: str, trigger: dict[str, Any]) -> StreamingQuery:
    """The watermarks and the hour bound the state: what can find no partner any more is dropped."""
    orders = read(spark, bootstrap, "orders", ORDER).withWatermark("at", "10 minutes")
    payments = read(spark, bootstrap, "payments", PAYMENT).withWatermark("paid_at", "10 minutes")
    return (
        orders.join(payments, functions.expr(IN_TIME), "leftOuter")
        .select("id", "amount", "at", "paid", "paid_at")
        .writeStream.queryName("settled")
        .format("headrace_delta")
        .option("path", f"{folder}/settled")
        .option("checkpointLocation", f"{folder}/checkpoints/settled")
        .outputMode("append")
        .trigger(**trigger)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, folder: str, *, once: bool) -> None:
    """`once`: what is there now, then end. Otherwise until it is interrupted."""
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    settled(spark, bootstrap, folder, trigger).awaitTermination()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--folder", required=True, help="for the table and the checkpoint")
    parser.add_argument("--master", default="local[*]", help="also a Spark Connect server: sc://HOST:15002")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    asked = parser.parse_args()
    try:
        spark = spark_session(asked.master, name="settled")
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
