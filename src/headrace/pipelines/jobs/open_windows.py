# SPDX-License-Identifier: Apache-2.0
"""Windows of `analyze` that a finished run has not written because the watermark has not passed them.

Reads the state of the stopped query from its checkpoint. Read next: analyze.py, pipelines/runner.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.checkpoints.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindows:
    """`rows`: of all these windows, one for each window and key. Times are those of events."""

    pipeline: str
    rows: int
    windows: int
    first_start_ms: int
    last_end_ms: int
    watermark_ms: int
    written_from_ms: int
    """A record of this time or later closes the last of them."""


def open_windows(
    spark: SparkSession, pipeline: str, checkpoint: Path, *, lateness_ms: int
) -> OpenWindows | None:
    """None: every window is written, or no micro-batch has run yet, or the last one was interrupted."""
    if not any((checkpoint / "offsets").glob("[0-9]*")):
        return None
    saved = Checkpoint(checkpoint)
    if not saved.finished:
        return None
    state = spark.read.format("statestore").load(str(checkpoint))
    found = (
        state.selectExpr("unix_millis(key.window.start) AS start", "unix_millis(key.window.end) AS end")
        .groupBy("start", "end")
        .count()
        .collect()
    )
    if not found:
        return None
    last_end_ms = max(row["end"] for row in found)
    return OpenWindows(
        pipeline=pipeline,
        rows=sum(row["count"] for row in found),
        windows=len(found),
        first_start_ms=min(row["start"] for row in found),
        last_end_ms=last_end_ms,
        watermark_ms=saved.next_watermark_ms(),
        written_from_ms=last_end_ms + lateness_ms,
    )
