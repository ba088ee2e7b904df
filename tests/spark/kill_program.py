"""The Spark program that the kill matrix runs: a topic to a table or a topic, batch by batch, to its end.

Argument: a JSON file written by kill_harness.py. Values carry the place they came from, so that what is in
the output can be held against the group's offsets. Nothing here knows of kills: see kill_moments/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.pipelines.session import spark_session


def main(job_file: str) -> None:
    job = json.loads(Path(job_file).read_text())
    spark = spark_session(job["master"], settings=job["settings"])
    query = (
        spark.readStream.format("headrace")
        .options(startingOffsets="earliest", **job["source"])
        .load()
        .selectExpr("key", "concat_ws(' ', partition, offset, CAST(value AS STRING)) AS value")
        .repartition("key")
        .writeStream.format(job["format"])
        .options(checkpointLocation=job["checkpoint"], **job["sink"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
