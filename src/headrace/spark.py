# SPDX-License-Identifier: Apache-2.0
"""Spark with Headrace: import it before a session starts, and Spark's workers run this Python.

Spark runs its workers with `python3` from PATH. Where a virtual environment is not activated, that is another
Python, which does not find the format `headrace` (DATA_SOURCE_NOT_FOUND). Read next: pipelines/session.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import MutableMapping
from pathlib import Path

from headrace.pipelines.session import spark_session

__all__ = ["spark_session"]

_VARIABLE = "PYSPARK_PYTHON"


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
