"""A Spark program that copies a topic, micro-batch by micro-batch; first attempts of tasks fail or are slow.

Arguments: bootstrap address, source topic, output topic, folder of the checkpoint, master, shuffle
partitions, and further settings of Spark as NAME=VALUE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from headrace.pipelines.session import spark_session

SPECULATION = "spark.speculation=true"


def hindered(batches: Iterator[Any], *, stragglers: bool) -> Iterator[Any]:
    """First attempts: that of partition 0 fails when it gave its rows; that of 1 is slow, if asked for."""
    from pyspark import TaskContext

    context = TaskContext.get()
    place = context.partitionId() if context.attemptNumber() == 0 else -1
    if place == 1 and stragglers:
        time.sleep(3)
    yield from batches
    if place == 0:
        raise RuntimeError("this attempt fails after it gave its rows")


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
        .mapInArrow(partial(hindered, stragglers=SPECULATION in others), "key BINARY, value BINARY")
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
