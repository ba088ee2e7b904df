# SPDX-License-Identifier: Apache-2.0
"""A Spark job through `format("headrace")`: copies orders of 100 and more to a topic of their own.

    run(spark_session("local[*]", name="large-orders"), "127.0.0.1:9092", "/var/lib/large-orders")

Each call reads what came since the last one and ends; the folder keeps Spark's checkpoint. Tasks repeat what
fails for a moment; a run that fails is begun again by the next call. Records that are no orders go to a
table; orders that retention removed unread end the run with an error.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ORDER = "id STRING NOT NULL, amount DOUBLE NOT NULL"


def start(spark: SparkSession, bootstrap: str, folder: str) -> StreamingQuery:
    orders = (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("value", "json")
        .option("valueSchema", ORDER)
        .option("rejectsTable", f"{folder}/rejects")
        .load()
    )
    large = orders.where("value.amount >= 100").selectExpr("value.id AS key", "to_json(value) AS value")
    return (
        large.writeStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("topic", "large-orders")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def run(spark: SparkSession, bootstrap: str, folder: str, *, timeout_s: int = 600) -> None:
    """Raises what ended the query, or TimeoutError."""
    query = start(spark, bootstrap, folder)
    if not query.awaitTermination(timeout_s):
        query.stop()
        raise TimeoutError(f"the query has not ended after {timeout_s} s")
