# SPDX-License-Identifier: Apache-2.0
"""A driver on a cluster: reads a topic as a batch and as a stream, writes to a topic and to a table.

Run by test_spark_cluster.py in a process of its own: arguments are a JSON document. Prints what it found.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from headrace.pipelines.reporting.query_metrics import figures_of
from headrace.pipelines.reporting.source_report import read_report
from headrace.pipelines.spark_session.session import spark_session


def on_executors(spark: Any) -> list[tuple[str, str]]:
    """The executors' working directories, and where their Python has our package from."""

    def look(_: Any) -> list[tuple[str, str]]:
        import headrace

        return [(os.getcwd(), headrace.__file__)]

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).flatMap(look).collect()))


def rows_of_tasks(query: Any) -> int:
    """What the tasks told the driver that they read."""
    reports = [read_report(each.sources[0]) for each in query.recentProgress]
    figures = [figures_of(each) for each in reports if each is not None]
    return sum(each.rows for each in figures if each is not None)


def main(asked: dict[str, Any]) -> None:
    topic, copies = asked["topics"]
    spark = spark_session(
        asked["master"],
        pack=asked.get("pack"),
        python=asked["python"],
        settings={
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both workers, before the first task
        },
    )
    of_topic = {"bootstrap": asked["bootstrap"], "startingOffsets": "earliest"}
    orders = spark.read.format("headrace").options(**of_topic, subscribe=topic).load()
    found: dict[str, Any] = {"executors": on_executors(spark), "rows": orders.count()}
    orders.select("key", "value").write.format("headrace").options(
        bootstrap=asked["bootstrap"], topic=copies
    ).mode("append").save()
    query = (
        spark.readStream.format("headrace")
        .options(**of_topic, subscribe=copies)
        .load()
        .selectExpr("CAST(value AS STRING)", "partition")
        .writeStream.format("headrace_delta")
        .option("path", asked["folder"] + "/table")
        .option("checkpointLocation", asked["folder"] + "/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["rows_of_tasks"] = rows_of_tasks(query)
    table = spark.read.format("headrace_delta").load(asked["folder"] + "/table")
    found["values"] = sorted(row.value for row in table.collect())
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
