# SPDX-License-Identifier: Apache-2.0
"""Each micro-batch to two places with `foreachBatch`, exactly once in both: a topic and a Delta table.

    python examples/pipelines/foreach_batch/balances.py --folder /tmp/balances --once

After a crash Spark calls the function again with the same batch. The name and the number that go with each
write let the sinks notice what they have already, also when the crash came between the two writes. Bookings
are JSON: {"account": "a-1", "amount": -12.5}.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client.errors import ClientError
from headrace.spark import spark_session

BOOKING = "account STRING NOT NULL, amount DOUBLE NOT NULL"


def to_both(bootstrap: str, folder: str) -> Callable[[DataFrame, int], None]:
    """The function of a batch. On Spark Connect it runs in the server, so it takes no session with it."""

    def write(bookings: DataFrame, number: int) -> None:
        bookings = bookings.persist()  # read the topic once, although two jobs follow
        changes = bookings.groupBy("account").agg(functions.sum("amount").alias("change"))
        (
            changes.selectExpr("account AS key", "to_json(struct(*)) AS value")
            .write.format("headrace")
            .option("bootstrap", bootstrap)
            .option("topic", "balance-changes")
            .option("sinkId", "balances")
            .option("batchId", number)
            .mode("append")
            .save()
        )
        (
            bookings.write.format("headrace_delta")
            .option("path", f"{folder}/bookings")
            .option("txnAppId", "balances")
            .option("txnVersion", number)
            .mode("append")
            .save()
        )
        bookings.unpersist()

    return write


def balances(spark: SparkSession, bootstrap: str, folder: str, trigger: dict[str, Any]) -> StreamingQuery:
    bookings = (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", "bookings")
        .option("startingOffsets", "earliest")
        .option("group", "balances")
        .option("value", "json")
        .option("valueSchema", BOOKING)
        .load()
        .select("value.*")
    )
    return (
        bookings.writeStream.queryName("balances")
        .foreachBatch(to_both(bootstrap, folder))
        .option("checkpointLocation", f"{folder}/checkpoints/balances")
        .trigger(**trigger)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, folder: str, *, once: bool) -> None:
    """`once`: what is there now, then end. Otherwise until it is interrupted."""
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "5 seconds"}
    balances(spark, bootstrap, folder, trigger).awaitTermination()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--folder", required=True, help="for the table and the checkpoint")
    parser.add_argument("--master", default="local[*]", help="also a Spark Connect server: sc://HOST:15002")
    parser.add_argument("--once", action="store_true", help="read what is there, then end")
    asked = parser.parse_args()
    try:
        spark = spark_session(asked.master, name="balances")
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
