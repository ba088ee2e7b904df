# SPDX-License-Identifier: Apache-2.0
"""`headrace log dump`: prints and checks local segment files without a running node.

`scrub` and `repair` are in repair.py, `kept` and `clean` in kept.py. Read next: segment_inspector.py, which
with stopped_node.py and kept.py is the only part of the CLI that imports the log package.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.log.kept import clean, kept
from headrace.cli.log.repair import repair, scrub
from headrace.cli.options import HELP_STYLE, Json
from headrace.cli.output import Output, human_bytes, iso_time, json_bytes, text_of
from headrace.cli.progress import ProgressBar

if TYPE_CHECKING:
    from headrace.cli.log.segment_inspector import Batch, SegmentInspector
    from headrace.wire.records import Record

app = typer.Typer(
    help="Inspect, check and repair segment files on this machine.",
    no_args_is_help=True,
    rich_markup_mode=HELP_STYLE,
)

_COLUMNS = {
    "POSITION": 10,
    "OFFSETS": 13,
    "RECORDS": 7,
    "BYTES": 9,
    "CODEC": 6,
    "TIMESTAMP": 24,
    "PRODUCER": 14,
    "EPOCH": 5,
    "FLAGS": 16,
    "CRC": 3,
}
"""Columns with fixed widths, since rows are printed before all are known."""
_WIDE_ONLY = ("PRODUCER", "EPOCH", "FLAGS")
"""Left out on a terminal that is too narrow for all columns."""


app.command()(scrub)
app.command()(repair)
app.command()(kept)
app.command()(clean)


@app.command()
def dump(
    path: Annotated[
        Path, typer.Argument(metavar="FILE|DIR", help="A .log file, a partition's or a node's directory.")
    ],
    batches: Annotated[
        bool | None,
        typer.Option("--batches/--summary", help="Every batch (the default for a FILE), or totals only."),
    ] = None,
    records: Annotated[bool, typer.Option("--records", "-r", help="Decode and print records too.")] = False,
    as_json: Json = False,
) -> None:
    """Show batches, markers and aborted transactions of segment files; check CRCs and indexes.

    Read-only, also while a node runs. Exit code 1 when anything is wrong. Works on Apache Kafka's files, too.

    \b
    Examples:
      headrace log dump ~/.local/share/headrace/orders-0
      headrace log dump orders-0/00000000000000000000.log --records
      headrace log dump ~/.local/share/headrace --json
    """
    output = Output(as_json=as_json)
    wanted = batches if batches is not None else records or path.is_file()
    printer = _Printer(output, batches=wanted, records=records)
    segments = list(_segments(path))
    with ProgressBar("checking", len(segments), show=not output.terminal) as bar:
        for segment in segments:
            _dump_segment(segment, printer, output)
            bar.advance()
    printer.sum_up()
    if printer.problems:
        raise typer.Exit(1)


def _dump_segment(segment: Path, printer: _Printer, output: Output) -> None:
    from headrace.cli.log.segment_inspector import SegmentInspector

    inspector = SegmentInspector(segment)
    printer.begin(segment)
    try:
        for batch in inspector.batches():
            printer.batch(inspector, batch)
    except FileNotFoundError:  # a live node deletes old segments
        output.note(f"{segment} was deleted meanwhile")
        return
    printer.end(inspector)


def _segments(path: Path) -> Iterator[Path]:
    from headrace.client.errors import ClientError

    if not path.exists():
        raise ClientError(f"{path} does not exist")
    found = sorted(path.rglob("*.log")) if path.is_dir() else [path]
    segments = [segment for segment in found if segment.suffix == ".log" and segment.stem.isdecimal()]
    if not segments:
        raise ClientError(
            f"{path} is not a segment and has none", next_step="name a file like 00000000000000000000.log"
        )
    yield from segments


class _Printer:
    def __init__(self, output: Output, *, batches: bool, records: bool) -> None:
        self._output = output
        self._batches = batches
        self._records = records
        width = sum(_COLUMNS.values()) + len(_COLUMNS)
        self._wide = shutil.get_terminal_size().columns > width
        self.segments = 0
        self.records = 0
        self.problems = 0

    def begin(self, segment: Path) -> None:
        if self._batches and not self._output.as_json:
            self._output.styled((str(segment), "bold"))
            self._row(tuple(_COLUMNS), "dim")

    def batch(self, inspector: SegmentInspector, batch: Batch) -> None:
        if self._batches and self._output.as_json:
            self._output.json_line(_batch_document(inspector.path, batch))
        elif self._batches:
            self._row(_cells(batch), "" if batch.sound else "bold red")
        if self._records and batch.sound:
            self._print_records(inspector, batch)

    def end(self, inspector: SegmentInspector) -> None:
        self.segments += 1
        self.records += inspector.record_count
        self.problems += len(inspector.problems)
        if self._batches:
            self._print_aborted(inspector)
        if self._output.as_json:
            self._output.json_line(_segment_document(inspector))
            return
        self._output.line(_segment_line(inspector))
        for problem in inspector.problems:
            self._output.styled(("CORRUPT ", "bold red"), (str(problem), "red"))

    def sum_up(self) -> None:
        if self._output.as_json:
            document = {"segments": self.segments, "records": self.records, "problems": self.problems}
            self._output.json_line({"event": "summary", **document})
            return
        verdict = f"{self.problems} problem{'s'[: self.problems != 1]}" if self.problems else "no errors"
        segments = f"{self.segments} segment{'s'[: self.segments != 1]}"
        self._output.line(f"{segments}, {self.records} records: {verdict}")

    def _row(self, cells: tuple[str, ...], style: str) -> None:
        if not self._output.terminal:
            self._output.row(*cells)
            return
        shown = zip(cells, _COLUMNS.items(), strict=True)
        padded = (cell.rjust(width) for cell, (name, width) in shown if self._wide or name not in _WIDE_ONLY)
        self._output.styled((" ".join(padded), style))

    def _print_aborted(self, inspector: SegmentInspector) -> None:
        for entry in inspector.aborted or ():
            if self._output.as_json:
                file = str(inspector.path.with_suffix(".txnindex"))
                self._output.json_line({"event": "aborted_transaction", "file": file, **entry._asdict()})
            else:
                self._output.line(
                    f"aborted: producer {entry.producer_id}, offsets {entry.first_offset} to "
                    f"{entry.last_offset}, last stable offset {entry.last_stable_offset}"
                )

    def _print_records(self, inspector: SegmentInspector, batch: Batch) -> None:
        from headrace.errors import DecodeError

        try:
            for record in batch.records():
                if self._output.as_json:
                    self._output.json_line(_record_document(inspector.path, record))
                else:
                    self._print_record(record)
        except DecodeError as error:
            inspector.record_problem(batch, error)

    def _print_record(self, record: Record) -> None:
        key = None if record.key is None else text_of(record.key)
        value = None if record.value is None else text_of(record.value)
        headers = ",".join(f"{name}={text_of(content or b'')}" for name, content in record.headers)
        self._output.row("record", record.offset, iso_time(record.timestamp), key, headers or None, value)


def _cells(batch: Batch) -> tuple[str, ...]:
    header = batch.header
    producer = "-" if header.producer_id < 0 else f"{header.producer_id}/{header.producer_epoch}"
    if header.base_sequence >= 0:
        producer += f":{header.base_sequence}"
    return (
        str(batch.position),
        f"{header.base_offset}-{header.last_offset}",
        str(header.record_count),
        str(header.size),
        batch.codec,
        str(iso_time(header.max_timestamp) or "-"),
        producer,
        str(header.leader_epoch),
        _flags_cell(batch),
        "ok" if batch.sound else "BAD",
    )


def _flags_cell(batch: Batch) -> str:
    marker = batch.marker
    if marker is None:
        return ",".join(_flags(batch)) or "-"
    return f"{marker.kind},coordinator-epoch={marker.coordinator_epoch}"


def _flags(batch: Batch) -> list[str]:
    header = batch.header
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": bool(header.timestamp_type),
        "delete-horizon": header.has_delete_horizon,
    }
    return [name for name, is_set in flags.items() if is_set]


def _segment_line(inspector: SegmentInspector) -> str:
    parts = [
        f"{inspector.path}: {inspector.batch_count} batches",
        f"{inspector.record_count} records",
        "empty"
        if inspector.first_offset is None
        else f"offsets {inspector.first_offset} to {inspector.next_offset - 1}",
        human_bytes(inspector.size),
        "no index" if inspector.index_entries is None else f"index {inspector.index_entries} entries",
        "no time index" if inspector.time_entries is None else f"time index {inspector.time_entries} entries",
        "no transaction index"
        if inspector.aborted is None
        else f"transaction index {len(inspector.aborted)} entries",
    ]
    return ", ".join(parts)


def _segment_document(inspector: SegmentInspector) -> dict[str, Any]:
    return {
        "event": "segment",
        "file": str(inspector.path),
        "size_bytes": inspector.size,
        "batches": inspector.batch_count,
        "records": inspector.record_count,
        "first_offset": inspector.first_offset,
        "next_offset": inspector.next_offset,
        "index_entries": inspector.index_entries,
        "time_index_entries": inspector.time_entries,
        "transaction_index_entries": None if inspector.aborted is None else len(inspector.aborted),
        "problems": [
            {
                "file": str(problem.file),
                "position": problem.position,
                "offset": problem.offset,
                "problem": problem.what,
            }
            for problem in inspector.problems
        ],
    }


def _batch_document(path: Path, batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "event": "batch",
        "file": str(path),
        "position": batch.position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "codec": batch.codec,
        "base_timestamp": iso_time(header.base_timestamp),
        "max_timestamp": iso_time(header.max_timestamp),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "leader_epoch": header.leader_epoch,
        "flags": _flags(batch),
        "marker": _marker_document(batch),
        "crc": f"{header.crc:08x}",
        "crc_ok": batch.sound,
    }


def _marker_document(batch: Batch) -> dict[str, Any] | None:
    marker = batch.marker
    return None if marker is None else {"type": marker.kind, "coordinator_epoch": marker.coordinator_epoch}


def _record_document(path: Path, record: Record) -> dict[str, Any]:
    return {
        "event": "record",
        "file": str(path),
        "offset": record.offset,
        "timestamp": iso_time(record.timestamp),
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(content)] for name, content in record.headers],
    }
