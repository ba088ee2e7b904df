# SPDX-License-Identifier: Apache-2.0
"""Spark with Headrace: sessions, tables, and the progress of queries.

Import it before a session starts, and Spark's workers run this Python. Otherwise they run `python3` from
PATH: where a virtual environment is not activated, another Python, which does not find the format `headrace`
(DATA_SOURCE_NOT_FOUND). Read next: pipelines/spark_session/session.py,
pipelines/reporting/query_metrics.py, pipelines/tables/api.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipelines.spark_session.session import need_pyspark, spark_session
from headrace.pipelines.tables.api import delta, table, view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipelines.reporting.report_listener import Reporting

__all__ = ["delta", "install_metrics", "progress", "report_progress", "spark_session", "table", "view"]

_VARIABLE = "PYSPARK_PYTHON"


def install_metrics(spark: SparkSession) -> None:
    """Have streaming queries of a session carry source metrics in their progress.

    A session of `spark_session` has it already; a plain one gets it before its queries are started.
    """
    need_pyspark()
    from headrace.pipelines.reporting import query_metrics

    query_metrics.install_metrics(spark)


def progress(query: StreamingQuery) -> dict[str, Any] | None:
    """The last progress of a query as JSON, with the metrics of its sources; None before the first.

    Also on Spark Connect, which has no `rows`, `bytes`, `fetchTimeMs` and `decodeTimeMs`.
    """
    need_pyspark()
    from headrace.pipelines.reporting import query_metrics

    return query_metrics.progress(query)


def report_progress(
    spark: SparkSession, bootstrap: str, *, config: str | None = None, groups: Mapping[str, str] | None = None
) -> Reporting:
    """Have queries that are started from now on report their progress to the console.

    They write to the topic `__headrace_pipelines` of the cluster, which is created when it is missing.
    `config`: a client's properties file with TLS and login. `groups`: the consumer group of a query, by its
    name. Ends with the process, or with `close()` of what is returned. Never fails or slows a query.
    """
    need_pyspark()
    from headrace.client.cluster import Cluster
    from headrace.client.security_options import split_security_options
    from headrace.pipelines.reporting.report_listener import report

    security, _ = split_security_options({} if config is None else {"config": config})
    return report(spark, Cluster(bootstrap=bootstrap, security=security), groups=groups)


def _use_this_python(environment: MutableMapping[str, str] = os.environ) -> None:
    if _VARIABLE in environment:
        return
    environment[_VARIABLE] = sys.executable
    running = _python_of_running_session()
    if running is not None and Path(shutil.which(running) or running).parent != Path(sys.executable).parent:
        warnings.warn(
            f"a Spark session runs already, and its workers run {running}: they may not find Headrace. "
            f"Import headrace.spark before the session starts, or set {_VARIABLE}",
            stacklevel=3,
        )


def _python_of_running_session() -> str | None:
    """None: no session of this process runs."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    return None if context is None else str(context.pythonExec)


_use_this_python()
