"""A Spark program that stores a topic in a Delta table; the first attempt of some tasks fails.

Arguments: bootstrap address, topic, folder of the table and the checkpoint, master, shuffle partitions, and
further settings of Spark as NAME=VALUE.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from headrace.pipelines.session import spark_session


def failing_once(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    for batch in batches:
        yield batch
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("this attempt fails after it gave some rows")


def main(bootstrap: str, topic: str, folder: str, master: str, shuffle_partitions: str, *others: str) -> None:
    given = {"spark.sql.shuffle.partitions": shuffle_partitions, "spark.sql.adaptive.enabled": "true"}
    spark = spark_session(master, settings=given | dict(each.split("=") for each in others))
    rows = spark.readStream.format("headrace").options(
        bootstrap=bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="400"
    )
    query = (
        rows.load()
        .selectExpr("key", "CAST(value AS STRING) AS value")
        .repartition("key")
        .mapInArrow(failing_once, "key BINARY, value STRING")
        .writeStream.format("headrace_delta")
        .options(path=f"{folder}/table", checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
