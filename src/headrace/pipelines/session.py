"""A Spark session that just starts: the right Java, this environment's Python, quiet, no web server.

Everything that it sets can be set otherwise. A plain session works too: nothing in the source or the sink
depends on these settings. Read next: java.py, docs/pipelines.md.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PER_CORE = 2
_TRUE, _FALSE = "true", "false"


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "headrace",
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session, or the one that runs already.

    master: `local[*]`, `local[2]`, `spark://HOST:PORT`, `yarn`, `k8s://…`.
    ui: serve Spark's web pages. settings: any of Spark's; they go before ours.

    ClientError says what to install when PySpark or Java is missing.
    """
    try:
        pyspark = importlib.import_module("pyspark.sql")
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed", next_step="pip install headrace[spark]"
        ) from error
    os.environ["JAVA_HOME"] = str(find_java())
    # Read by the JVM when it starts and by PySpark itself, so that a setting alone would come too late.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = pyspark.SparkSession.builder.master(master).appName(name)
    for key, value in {**default_settings(master, ui=ui), **(settings or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    # Spark finds the format by itself, but where that fails once (a slow start is enough) it says nothing
    # and never looks again.
    session.dataSource.register(importlib.import_module("pyspark_headrace").DefaultSource)
    return session


def default_settings(master: str, *, ui: bool) -> dict[str, str]:
    """What `spark_session` sets."""
    chosen = {
        "spark.sql.execution.arrow.pyspark.enabled": _TRUE,
        "spark.sql.python.filterPushdown.enabled": _TRUE,  # what option("pushdown", True) needs
        "spark.ui.enabled": _TRUE if ui else _FALSE,
        "spark.ui.showConsoleProgress": _FALSE,
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        chosen |= {
            "spark.sql.shuffle.partitions": str(_SHUFFLE_PER_CORE * _local_cores(master)),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return chosen


def _local_cores(master: str) -> int:
    """Of `local`, `local[2]`, `local[*]`, `local[2,3]`."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return os.cpu_count() or 1
    return int(inside) if inside.isdecimal() else 1
