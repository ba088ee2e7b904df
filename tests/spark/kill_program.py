# SPDX-License-Identifier: Apache-2.0
"""The Spark program that the kill matrix runs: topics to tables or topics, batch by batch, to their ends.

Argument: a JSON file written by kill_harness.py. Queries run one after the other; where it says so, one that
has stopped is left there while the next runs. Values carry the place they came from, so that what is in the
output can be held against the group's offsets. Nothing here brings about an accident: see kill_moments/.
"""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from headrace.java import find_java
from headrace.pipelines.spark_session.session import spark_session
from tests.harness.waiting import poll
from tests.spark.spark_cluster import MASTER_HOST, standalone_cluster

TWO_HOSTS = "two hosts"
"""A master of our own: a cluster of executors on two addresses of this machine."""


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


def ended_or_left(query: Any, job: dict[str, Any]) -> bool:
    return not query.isActive or bool(job["is_left_at"] and Path(job["is_left_at"]).exists())


def failure(query: Any) -> str:
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 whatever Spark makes of it
        return str(error)
    return ""


def master_of(program: dict[str, Any], folder: Path) -> AbstractContextManager[str]:
    if program["master"] != TWO_HOSTS:
        return nullcontext(program["master"])
    folder.mkdir()
    hosts = (MASTER_HOST, "127.0.0.2")
    return standalone_cluster(folder, find_java(), hosts=hosts, environment=os.environ)


def main(program_file: str) -> bool:
    """Whether all went well. What went wrong with each is written down when it has ended."""
    program = json.loads(Path(program_file).read_text())
    with master_of(program, Path(program_file).with_suffix("")) as master:
        return run(spark_session(master, settings=program["settings"]), program)


def run(spark: Any, program: dict[str, Any]) -> bool:
    left = []
    for job in program["jobs"]:
        query = start(spark, job)
        poll(partial(ended_or_left, query, job), timeout_s=math.inf, poll_s=0.05)
        if query.isActive:
            left.append((query, Path(job["said"])))
        else:
            Path(job["said"]).write_text(failure(query))
    for query, said in left:
        said.write_text(failure(query))
    spark.stop()
    return not any(Path(job["said"]).read_text() for job in program["jobs"])


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
