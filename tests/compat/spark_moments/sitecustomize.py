"""Makes the sink of a Spark program stop at one moment of one commit, the first time that it gets there.

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
_MOMENT = os.environ.get("HEADRACE_TEST_MOMENT", "number")
_BATCH = int(os.environ.get("HEADRACE_TEST_BATCH", "1"))


def _stop(reached: Path) -> None:
    try:
        reached.touch(exist_ok=False)
    except FileExistsError:
        return
    while not reached.with_suffix(".go").exists():
        time.sleep(0.05)


def _install(reached: Path) -> None:
    from pyspark_headrace.publish import Publication, Transaction

    publish, commit = Publication._publish, Transaction.commit

    def publishing(publication: Any, ledger: Any, published: Any) -> None:
        def committing(transaction: Any) -> None:
            if published.batch == _BATCH and _MOMENT == "number":
                _stop(reached)
            commit(transaction)
            if published.batch == _BATCH and _MOMENT == "committed":
                _stop(reached)

        if published.batch == _BATCH and _MOMENT == "before":
            _stop(reached)
        Transaction.commit = committing
        publish(publication, ledger, published)

    Publication._publish = publishing


if _REACHED and _COMMITS in sys.orig_argv:
    _install(Path(_REACHED))
