# SPDX-License-Identifier: Apache-2.0
"""Progress of pipelines: a live table on a terminal, a line per micro-batch in a pipe, or JSON lines.

Does not load Spark. Read next: headrace/pipelines/reporting/progress.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headrace.cli.durations import human_ms
from headrace.cli.output import Output, clean, human_bytes, iso_time

if TYPE_CHECKING:
    from headrace.pipelines.jobs.open_windows import OpenWindows
    from headrace.pipelines.reporting.progress import Batch

Shown = Callable[[list["Batch"]], None]

COLUMNS = ("PIPELINE", "BATCH", "RECORDS", "RECORDS/S", "LAG", "BATCH TIME", "STATE ROWS", "STATE", "LATE")


@contextmanager
def progress_printer(output: Output, names: Sequence[str]) -> Iterator[Shown]:
    if output.terminal and not output.as_json:
        with _live_table(names) as shown:
            yield shown
        return

    def in_lines(batches: list[Batch]) -> None:
        for batch in batches:
            if output.as_json:
                output.json_line(asdict(batch))
            else:
                output.line(line_of(batch))
        output.flush()

    yield in_lines


def line_of(batch: Batch) -> str:
    parts = [
        f"{batch.pipeline}: batch {batch.number}",
        f"{batch.rows:,} records",
        f"{batch.rows_per_second:,.0f}/s",
        f"lag {_number(batch.lag)}",
        human_ms(batch.batch_ms),
    ]
    if batch.state_rows:
        parts.append(f"state {batch.state_rows:,} rows ({human_bytes(batch.state_bytes)})")
    if batch.total_late:
        parts.append(f"late {batch.total_late:,}")
    if batch.lost:
        parts.append(f"lost up to {batch.lost:,} records")
    return ", ".join(parts)


def show_open_windows(found: OpenWindows, output: Output) -> None:
    """What is not written yet, why, and what to do: as notes, or as JSON."""
    first, last, watermark, written = (
        iso_time(moment, "seconds")
        for moment in (found.first_start_ms, found.last_end_ms, found.watermark_ms, found.written_from_ms)
    )
    if output.as_json:
        times = {"from": first, "to": last, "watermark": watermark, "written_from": written}
        output.json_line(
            {"pipeline": found.pipeline, "open_windows": found.windows, "open_rows": found.rows, **times}
        )
        return
    windows = f"{found.windows:,} open window{'' if found.windows == 1 else 's'}"
    rows = "1 row is" if found.rows == 1 else f"{found.rows:,} rows are"
    output.note(f"{found.pipeline}: {rows} not written yet, of {windows} from {first} to {last}.")
    output.note(
        f"  The watermark is {watermark}; a record of {written} or later completes them. To write open "
        "windows too, run it with --emit all and another --name."
    )


def table_of(names: Sequence[str], last: dict[str, Batch]) -> Any:
    """A table of each pipeline's last micro-batch; RECORDS and LATE are totals since the start."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if index else "left", style="" if index else "cyan")
    for name in names:
        batch = last.get(name)
        if batch is None:
            table.add_row(clean(name), *("-" for _ in COLUMNS[1:]))
            continue
        table.add_row(
            clean(name),
            f"{batch.number}",
            f"{batch.total_rows:,}",
            f"{batch.rows_per_second:,.0f}",
            _number(batch.lag),
            human_ms(batch.batch_ms),
            f"{batch.state_rows:,}",
            human_bytes(batch.state_bytes),
            f"{batch.total_late:,}",
        )
    return table


@contextmanager
def _live_table(names: Sequence[str]) -> Iterator[Shown]:
    from rich.live import Live

    last: dict[str, Batch] = {}
    with Live(table_of(names, last), refresh_per_second=4) as live:

        def redraw(batches: list[Batch]) -> None:
            last.update({batch.pipeline: batch for batch in batches})
            live.update(table_of(names, last))

        yield redraw


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
