# SPDX-License-Identifier: Apache-2.0
"""What the command line says about windows that a run has left open."""

from __future__ import annotations

import io
import json

from headrace.cli.output import Output
from headrace.cli.pipeline.progress import show_open_windows
from headrace.pipelines.jobs.open_windows import OpenWindows

FOUND = OpenWindows(
    pipeline="clicks",
    rows=12,
    windows=2,
    first_start_ms=0,
    last_end_ms=120_000,
    watermark_ms=90_000,
    written_from_ms=130_000,
)


def test_open_windows_are_a_note_with_the_way_to_write_them() -> None:
    stderr = io.StringIO()
    show_open_windows(FOUND, Output(stdout=io.StringIO(), stderr=stderr))
    assert stderr.getvalue().splitlines() == [
        (
            "clicks: 12 rows are not written yet, of 2 open windows from 1970-01-01T00:00:00Z to "
            "1970-01-01T00:02:00Z."
        ),
        (
            "  The watermark is 1970-01-01T00:01:30Z; a record of 1970-01-01T00:02:10Z or later completes "
            "them. To write open windows too, run it with --emit all and another --name."
        ),
    ]


def test_as_json_they_are_a_document() -> None:
    stdout = io.StringIO()
    show_open_windows(FOUND, Output(as_json=True, stdout=stdout))
    found = json.loads(stdout.getvalue())
    assert (found["pipeline"], found["open_windows"], found["open_rows"]) == ("clicks", 2, 12)
    assert found["written_from"] == "1970-01-01T00:02:10Z"
