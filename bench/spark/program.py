# SPDX-License-Identifier: Apache-2.0
"""The process around one Spark session: requests come in as lines of JSON, answers go out as such lines.

Started by processes.py under the Python of one PySpark version. Knows nothing of what is compared with what.
Read next: queries.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any

from bench.spark import sides
from bench.spark.queries import QUERIES, Trickle

_MASTER = "local[2]"
_SIDES = {"peer": sides.Peer, "ours": sides.Ours, "made": sides.Made, "files": sides.Files}


def session(jars: str) -> Any:
    """The connector in a plain session, as it is used; ours in that of `spark_session`, as documented."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.host": "127.0.0.1",
    }
    if not jars:
        from headrace.spark import spark_session

        return spark_session(_MASTER, settings=settings)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(_MASTER).config("spark.jars", jars)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Program:
    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._trickle: Trickle | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """`seconds` are those of the whole query, unless the query knows better."""
        name, arguments = request["do"], request["with"]
        if name == "wait":
            assert self._trickle is not None
            self._trickle.wait(arguments["batches"])
            return {}
        if name == "end":
            assert self._trickle is not None
            ended: dict[str, Any] = self._trickle.end(leave_out=arguments["leave_out"])
            return ended
        side = _SIDES[request["side"]](**request["options"])
        if name == "trickle":
            self._trickle = Trickle(self._spark, side, arguments["topic"])
            return {}
        started = time.perf_counter()
        totals = QUERIES[name](self._spark, side, **arguments)
        return {"seconds": time.perf_counter() - started, **totals}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed goes where the errors go
    program = Program(session(sys.argv[1] if len(sys.argv) > 1 else ""))
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        try:
            answer = program.answer(json.loads(line))
        except Exception:  # noqa: BLE001 - whatever Spark raises is told to who asked
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
