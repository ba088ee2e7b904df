# SPDX-License-Identifier: Apache-2.0
"""Accidents inside a Spark program: queries stop at chosen moments, tasks fail or straggle and are noted.

Python finds it on PYTHONPATH, and only Spark's own processes act on it. What is to happen comes from the
environment: HEADRACE_TEST_KILLS, a JSON document written by kill_harness.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"
"""What Spark starts to end a micro-batch."""
_TASKS = "pyspark.worker"
"""What Spark starts on an executor for its tasks."""
_BATCH_ID = "streaming.sql.batchId"
_STRAGGLES_AT_MOST_S = 100.0
_TWICE_AT_ONCE_S = 2.0


class Plan:
    """For one query. `moment`: where it stops in batch `batch`, once, or "".

    `hindrance`: what happens to first attempts of its tasks: "", "fails" or "straggles".
    """

    def __init__(self, *, folder: str, run: int, moment: str, batch: int, hindrance: str) -> None:
        self._folder = Path(folder)
        self._attempts = self._folder / "attempts"
        self._run = run
        self._moment = moment
        self._batch = batch
        self._hindrance = hindrance

    def stop(self, moment: str, batch: int) -> None:
        """The file `reached` says who waits; it goes on when there is a file `go`."""
        if (moment, batch) != (self._moment, self._batch):
            return
        mine = self._folder / f"reached-{os.getpid()}"
        mine.write_text(str(os.getpid()))
        try:
            os.link(mine, self._folder / "reached")  # one of all, and never seen half written
        except FileExistsError:
            return
        while not (self._folder / "go").exists():
            time.sleep(0.05)  # between two looks: Spark's processes do not see tests.harness

    def hindered(self, rows: Iterator[Any]) -> Iterator[Any]:
        """The rows of a task that writes, with what is to happen to it."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = _batch_of_task()
        attempt = self._note(batch, context)
        place = context.partitionId() if context.attemptNumber() == 0 else -1
        if place == 1 and self._hindrance == "straggles":
            self._straggle(batch, place)
        yield from rows
        self.stop("write", batch)
        if place == 0 and self._hindrance == "fails":
            attempt.with_suffix(".failed").touch()
            raise RuntimeError("this attempt fails after it gave its rows")

    def _straggle(self, batch: int, place: int) -> None:
        """Until Spark runs the task a second time, and on while it does."""
        deadline = time.monotonic() + _STRAGGLES_AT_MOST_S
        while len(list(self._attempts.glob(f"{self._run}-{batch}-{place}-*"))) < 2:
            if time.monotonic() > deadline:
                return
            time.sleep(0.1)  # between two looks
        time.sleep(_TWICE_AT_ONCE_S)  # both attempts run at once for so long

    def _note(self, batch: int, context: Any) -> Path:
        number = context.attemptNumber()
        name = f"{self._run}-{batch}-{context.partitionId()}-{number}-{context.taskAttemptId()}"
        noted = self._attempts / name
        noted.write_text(str(os.getppid()))  # the daemon: one for each executor
        return noted


PlanOf = Callable[[str], Plan]


def _batch_of_task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.getLocalProperty(_BATCH_ID))


def _stop_in_commits(plan_of: PlanOf) -> None:
    from headrace.client.arrow.write.transaction import Transaction
    from pyspark_headrace.writing.stream_writer import StreamWriter as TopicWriter
    from pyspark_headrace_delta.commit import TableCommit
    from pyspark_headrace_delta.stream_writer import StreamWriter as TableWriter

    now: list[tuple[Plan, int]] = []

    def around(writer_class: Any, output: str) -> None:
        really_commit = writer_class.commit

        def committing(writer: Any, messages: Any, batch: int) -> None:
            plan = plan_of(str(getattr(writer._settings, output)))
            now[:] = [(plan, batch)]
            plan.stop("before", batch)
            really_commit(writer, messages, batch)
            plan.stop("after", batch)

        writer_class.commit = committing

    def inside(owner: Any, name: str) -> None:
        really = getattr(owner, name)

        def doing(this: Any, *arguments: Any) -> Any:
            ((plan, batch),) = now
            plan.stop("inside", batch)
            return really(this, *arguments)

        setattr(owner, name, doing)

    around(TopicWriter, "topic")
    around(TableWriter, "path")
    inside(Transaction, "commit")  # rows and number are written, and not yet valid
    inside(TableCommit, "_try")  # the table was found to lack the batch


def _hinder_tasks(plan_of: PlanOf) -> None:
    from pyspark_headrace.reading.stream_reader import StreamReader
    from pyspark_headrace.writing.stream_writer import StreamWriter as TopicWriter
    from pyspark_headrace_delta.stream_writer import StreamWriter as TableWriter

    really_read = StreamReader.read

    def reading(reader: Any, partition: Any) -> Any:
        plan_of(reader._settings.group).stop("read", _batch_of_task())
        return really_read(reader, partition)

    def around(writer_class: Any, output: str) -> None:
        really_write = writer_class.write

        def writing(writer: Any, rows: Iterator[Any]) -> Any:
            plan = plan_of(str(getattr(writer._settings, output)))
            return really_write(writer, plan.hindered(rows))

        writer_class.write = writing

    StreamReader.read = reading  # type: ignore[method-assign]
    around(TopicWriter, "topic")
    around(TableWriter, "path")


def _install(document: dict[str, Any]) -> None:
    """By what a process does. A query is known by its group and by its output."""

    def plan_of(name: str) -> Plan:
        return Plan(**document["common"], **document["queries"][name])

    if _COMMITS in sys.orig_argv:
        _stop_in_commits(plan_of)
    elif _TASKS in sys.orig_argv:
        _hinder_tasks(plan_of)


if "HEADRACE_TEST_KILLS" in os.environ:
    _install(json.loads(os.environ["HEADRACE_TEST_KILLS"]))
