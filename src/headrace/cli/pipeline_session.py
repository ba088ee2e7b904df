"""Runs pipelines from the command line: checks first, then Spark, then live progress until the end.

Ctrl-C and SIGTERM stop every pipeline between two micro-batches; a second one does not wait.
Read next: pipeline_progress.py, headrace/pipelines/runner.py.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from headrace.cli.output import Output, clean
from headrace.cli.pipeline_progress import progress_printer
from headrace.pipelines.definition import Pipeline

if TYPE_CHECKING:
    from headrace.pipelines.runner import Runner

_DEFAULT_MASTER = "local[*]"
_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
"""Dates of records are the same wherever a pipeline runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Where Spark runs. `pack` and `python`: what its executors have of ours, on a cluster."""

    master: str | None
    pack: str | None
    python: str | None


def run_pipelines(
    pipelines: Sequence[Pipeline],
    *,
    once: bool,
    place: SparkPlace,
    settings: Mapping[str, str],
    as_json: bool,
) -> None:
    from headrace.pipelines.checks import check_places, check_topics
    from headrace.pipelines.java import find_java
    from headrace.pipelines.quiet import errors_to
    from headrace.pipelines.runner import Runner
    from headrace.pipelines.session import spark_session

    output = Output(as_json=as_json)
    master = place.master or _DEFAULT_MASTER
    check_places(pipelines, master)
    check_topics(pipelines)
    find_java()
    output.note(f"Starting Spark for {', '.join(pipeline.name for pipeline in pipelines)} …")
    log = Path(tempfile.gettempdir()) / f"headrace-spark-{os.getpid()}.log"
    with _told_on_failure(log, output):
        with errors_to(log):
            spark = spark_session(
                master,
                name="headrace pipeline run",
                settings=_SETTINGS | dict(settings),
                pack=place.pack,
                python=place.python,
            )
        try:
            _run(Runner(spark, pipelines, once=once), output)
        finally:
            spark.stop()


def _run(runner: Runner, output: Output) -> None:
    try:
        with _stopped_by_signals(runner, output) as stop:
            runner.start()
            for query in runner.queries:
                output.note(f"{query.name}: running; its checkpoint is {query.checkpoint}")
            with progress_printer(output, [query.name for query in runner.queries]) as shown:
                runner.run(shown, stop)
        for query in runner.queries:
            output.note(
                f"{query.name}: {query.batches.total_rows:,} records read; {_where(query.batches.last)}."
            )
    finally:
        runner.close()


@contextmanager
def _told_on_failure(log: Path, output: Output) -> Iterator[None]:
    """What Spark said is kept when it went wrong, and only then."""
    try:
        yield
    except BaseException:
        if log.exists():
            output.note(f"What Spark said is in {log}")
        raise
    log.unlink(missing_ok=True)


def _where(last: Any) -> str:
    if last is None:
        return "no micro-batch was needed"
    lag = "" if last.lag is None else f", {last.lag:,} were left"
    return f"stopped after micro-batch {last.number}{lag}"


@contextmanager
def _stopped_by_signals(runner: Runner, output: Output) -> Iterator[Event]:
    """PySpark takes Ctrl-C for itself when a session starts: ours comes after it."""
    stop = Event()

    def stop_softly(number: int, _: Any) -> None:
        if stop.is_set():
            output.note("Stopping at once.")
            runner.hurry.set()
            return
        output.note(f"{clean(signal.Signals(number).name)}: stopping after the micro-batch that runs …")
        stop.set()

    before = {number: signal.signal(number, stop_softly) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
