# SPDX-License-Identifier: Apache-2.0
"""A client of a Spark Connect server, without Java: what each customer ordered, as a table of this program.

    python examples/pipelines/connect/totals.py --bootstrap 127.0.0.1:9092 --master sc://127.0.0.1:15002

The server reads the topic, so the address of the brokers must be right there, and Headrace must be installed
for its Python (../README.md says how to start one). With --master local[*] it has a Spark of its own.
Orders are JSON: {"customer": "ann", "amount": 12.5}.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession, functions

from headrace.client.errors import ClientError
from headrace.spark import spark_session


def totals(spark: SparkSession, bootstrap: str) -> DataFrame:
    orders = (
        spark.read.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", "orders")
        .option("value", "json")
        .option("valueSchema", "customer STRING NOT NULL, amount DOUBLE NOT NULL")
        .load()
        .select("value.*")
    )
    total = functions.sum("amount").alias("total")
    return orders.groupBy("customer").agg(functions.count("*").alias("orders"), total).orderBy("customer")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--master", default="sc://127.0.0.1:15002")
    asked = parser.parse_args()
    try:
        spark = spark_session(asked.master, name="totals")
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        for row in totals(spark, asked.bootstrap).toArrow().to_pylist():
            print(f"{row['customer']}: {row['orders']} orders, {row['total']:.2f}")
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
