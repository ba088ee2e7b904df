# SPDX-License-Identifier: Apache-2.0
"""A declarative pipeline: orders of a topic as a typed table, sums by customer, and large orders to a topic.

What to compute, not how: Spark finds the order, keeps the checkpoints and runs what is new.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

spark = SparkSession.active()
BOOTSTRAP = str(spark.conf.get("orders.bootstrap"))


@dp.table(comment="Every order, as it came.")
def orders() -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("bootstrap", BOOTSTRAP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("group", "declarative-orders")
        .option("value", "json")
        .option("valueSchema", "customer STRING, amount DOUBLE")
        .load()
        .selectExpr("value.customer", "value.amount", "timestamp", "partition", "offset")
    )


@dp.materialized_view(comment="What each customer ordered in all.")
def customers() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").agg(functions.sum("amount").alias("total"))


dp.create_sink("large_orders", "headrace", {"bootstrap": BOOTSTRAP, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large_orders_flow() -> DataFrame:
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.selectExpr("customer AS key", "to_json(struct(customer, amount)) AS value")
