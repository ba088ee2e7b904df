# SPDX-License-Identifier: Apache-2.0
"""Runs pipelines for the command line: checks, starts Spark, shows progress until the end.

Ctrl-C and SIGTERM stop every pipeline after its current micro-batch; a second signal stops at once.
Read next: progress.py, headrace/pipelines/runner.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from headrace.cli.errors import UsageError
from headrace.cli.output import Output, clean
from headrace.cli.pipeline.progress import progress_printer, show_open_windows
from headrace.pipelines.definitions.definition import Pipeline

if TYPE_CHECKING:
    from headrace.pipelines.runner import Runner

_DEFAULT_MASTER = "local[*]"
_SETTINGS = {"spark.sql.session.timeZone": "UTC"}
"""UTC, so that dates do not depend on where a pipeline runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkTarget:
    """Where Spark runs. `pack` and `python` are for the executors of a cluster."""

    master: str | None
    pack: str | None
    python: str | None


def run_pipelines(
    pipelines: Sequence[Pipeline],
    *,
    once: bool,
    report: bool,
    target: SparkTarget,
    settings: Mapping[str, str],
    as_json: bool,
) -> None:
    from headrace.java import find_java
    from headrace.pipelines.checks import check_all_options, check_checkpoints, check_topics
    from headrace.pipelines.runner import Runner
    from headrace.pipelines.spark_session.session import CONNECT, need_pyspark, spark_session
    from headrace.pipelines.spark_session.stderr_log import private_log_file, stderr_to

    output = Output(as_json=as_json)
    master = target.master or _DEFAULT_MASTER
    if master.startswith(CONNECT):
        raise UsageError(
            f"--master {master}: built-in pipelines do not run on Spark Connect",
            "use local[*] or a cluster; programs of your own may use it",
        )
    need_pyspark()
    check_checkpoints(pipelines, master)
    check_all_options(pipelines)
    check_topics(pipelines)
    find_java()
    output.note(f"Starting Spark for {', '.join(pipeline.name for pipeline in pipelines)} …")
    log = private_log_file()
    with _keep_log_on_failure(log, output):
        with stderr_to(log):
            spark = spark_session(
                master,
                name="headrace pipeline run",
                settings=_SETTINGS | dict(settings),
                pack=target.pack,
                python=target.python,
            )
        try:
            _run(Runner(spark, pipelines, once=once, report=report), output)
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
        for found in runner.open_windows():
            show_open_windows(found, output)
    finally:
        runner.close()


@contextmanager
def _keep_log_on_failure(log: Path, output: Output) -> Iterator[None]:
    """Keep Spark's log only when the run fails."""
    try:
        yield
    except BaseException:
        if log.exists():
            output.note(f"Spark's log is in {log}")
        raise
    log.unlink(missing_ok=True)


def _where(last: Any) -> str:
    if last is None:
        return "no micro-batch was needed"
    lag = "" if last.lag is None else f", {last.lag:,} remain"
    return f"stopped after micro-batch {last.number}{lag}"


@contextmanager
def _stopped_by_signals(runner: Runner, output: Output) -> Iterator[Event]:
    """Install signal handlers; after the session starts, since PySpark installs its own for Ctrl-C."""
    stop = Event()

    def stop_softly(number: int, _: Any) -> None:
        if stop.is_set():
            output.note("Stopping at once.")
            runner.stop_now.set()
            return
        output.note(f"{clean(signal.Signals(number).name)}: stopping after the current micro-batch …")
        stop.set()

    before = {number: signal.signal(number, stop_softly) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
