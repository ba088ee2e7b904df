"""A Spark program that copies a topic, micro-batch by micro-batch; the first attempt of some tasks fails.

Arguments: bootstrap address, source topic, output topic, folder of the checkpoint, master, shuffle
partitions, and further settings of Spark as NAME=VALUE.
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


def main(bootstrap: str, source: str, output: str, checkpoint: str, master: str, *settings: str) -> None:
    shuffle_partitions, *others = settings
    given = {"spark.sql.shuffle.partitions": shuffle_partitions, "spark.sql.adaptive.enabled": "true"}
    spark = spark_session(master, settings=given | dict(each.split("=") for each in others))
    rows = spark.readStream.format("headrace").options(
        bootstrap=bootstrap, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="400"
    )
    query = (
        rows.load()
        .select("key", "value")
        .repartition("key")
        .mapInArrow(failing_once, "key BINARY, value BINARY")
        .writeStream.format("headrace")
        .options(bootstrap=bootstrap, topic=output, checkpointLocation=checkpoint)
        .options(exactlyOnce="batch", commitMessageBytes="3000")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("done", query.id, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
