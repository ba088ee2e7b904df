# SPDX-License-Identifier: Apache-2.0
"""The Spark job of T20: a topic to a Delta table, as a stream, until it is told to stop.

Argument: a JSON document with bootstrap, topic, folder. The file `stop` in the folder ends it: what is in the
topic by then is taken in, and the rows of the table are written to `rows.json`.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from headrace.pipelines.spark_session.session import spark_session
from tests.harness.waiting import poll


def main(asked: dict[str, str]) -> None:
    folder = Path(asked["folder"])
    spark = spark_session("local[1]", settings={"spark.driver.memory": "768m"})
    query = (
        spark.readStream.format("headrace")
        .options(bootstrap=asked["bootstrap"], subscribe=asked["topic"], startingOffsets="earliest")
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("headrace_delta")
        .options(path=str(folder / "table"), checkpointLocation=str(folder / "checkpoint"))
        .trigger(processingTime="2 seconds")
        .start()
    )
    poll(lambda: (folder / "stop").exists() or not query.isActive, timeout_s=math.inf, poll_s=0.2)
    query.processAllAvailable()
    query.stop()
    rows: list[Any] = spark.read.format("headrace_delta").load(str(folder / "table")).collect()
    written = [[row.partition, row.offset, row.value] for row in rows]
    (folder / "rows.json").write_text(json.dumps(written))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
