"""The Spark program that the kill matrix runs: topics to tables or topics, batch by batch, to their ends.

Argument: a JSON file written by kill_harness.py. Queries run one after the other; where it says so, one that
has stopped is left there while the next runs. Values carry the place they came from, so that what is in the
output can be held against the group's offsets. Nothing here brings about an accident: see kill_moments/.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from headrace.pipelines.session import spark_session


def start(spark: Any, job: dict[str, Any]) -> Any:
    return (
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


def failure(query: Any) -> str:
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 whatever Spark makes of it
        return str(error)
    return ""


def main(program_file: str) -> bool:
    """Whether all went well. What went wrong with each is written down when it has ended."""
    program = json.loads(Path(program_file).read_text())
    spark = spark_session(program["master"], settings=program["settings"])
    left = []
    for job in program["jobs"]:
        query = start(spark, job)
        while query.isActive and not (job["is_left_at"] and Path(job["is_left_at"]).exists()):
            time.sleep(0.05)
        if query.isActive:
            left.append((query, Path(job["said"])))
        else:
            Path(job["said"]).write_text(failure(query))
    for query, said in left:
        said.write_text(failure(query))
    return not any(Path(job["said"]).read_text() for job in program["jobs"])


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
