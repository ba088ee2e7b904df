"""Makes the Delta sink of a Spark program stop at a moment of one commit, the first time it gets there.

Python finds it on PYTHONPATH. The moment and the file that says "reached" come from the environment.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"
"""What Spark starts to end micro-batches."""
_REACHED = os.environ.get("HEADRACE_TEST_REACHED")
_MOMENT = os.environ.get("HEADRACE_TEST_MOMENT")
_BATCH = 1


def _stop(moment: str, commit: Any, reached: Path) -> None:
    if moment != _MOMENT or commit.batch.version != _BATCH:
        return
    try:
        reached.touch(exist_ok=False)
    except FileExistsError:
        return
    while not reached.with_suffix(".go").exists():
        time.sleep(0.05)


def _install(reached: Path) -> None:
    from pyspark_headrace_delta.commit import TableCommit

    really_apply, really_try = TableCommit.apply, TableCommit._try

    def applying(commit: Any) -> bool:
        _stop("before", commit, reached)
        return really_apply(commit)

    def trying(commit: Any, table: Any) -> bool:
        _stop("compared", commit, reached)
        done = really_try(commit, table)
        _stop("committed", commit, reached)
        return done

    TableCommit.apply, TableCommit._try = applying, trying  # type: ignore[method-assign]


if _REACHED and _COMMITS in sys.orig_argv:
    _install(Path(_REACHED))
