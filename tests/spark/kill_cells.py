# SPDX-License-Identifier: Apache-2.0
"""The kill matrix: accidents of a Spark program, and conditions under which they happen.

A condition is what Spark does meanwhile, in the program that meets the accident and in the one that goes on;
it also proves that it took place. Read next: kill_harness.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.spark.kill_harness import BATCH_ROWS, COMMIT_MOMENTS, Job, Setup, groups_watched, program
from tests.spark.kill_processes import Program
from tests.spark.kill_program import TWO_HOSTS

THREADS = "local[2,4]"
"""Executors are threads of the driver, which starts sooner. A task may be tried four times."""
ONE_PROCESS, TWO_PROCESSES = "local-cluster[1,1,1024]", "local-cluster[2,1,1024]"
"""Executors are processes, which can be killed. On one host Spark runs no task twice at once: TWO_HOSTS."""

_BROKER_AWAY_S = 2.0
_MORE = 300
_SHUFFLE, _OTHER_SHUFFLE = 3, 7
_AQE_SHUFFLE = 8
_ADAPTIVE = "spark.sql.adaptive.enabled"
_SLICE_BYTES = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def setup(
    master: str, *, shuffle: int = _SHUFFLE, hindrance: str = "", settings: Mapping[str, str] | None = None
) -> Setup:
    """Without adaptive slices unless asked for. No batch begins before all executors are there."""
    given = {
        "spark.sql.shuffle.partitions": str(shuffle),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        _ADAPTIVE: "false",
        **(settings or {}),
    }
    return Setup(master=master, settings=given, hindrance=hindrance)


# -- conditions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`then` is how the program runs that goes on; `took_place` asserts it, from what tasks noted."""

    first: Setup
    then: Setup
    took_place: Callable[[Job], None]


def _adaptive(slice_bytes: str) -> Setup:
    return setup(
        THREADS,
        shuffle=_AQE_SHUFFLE,
        settings={
            _ADAPTIVE: "true",
            _SLICE_BYTES: slice_bytes,
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
            "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
        },
    )


def _slices_were_adapted(job: Job) -> None:
    """Some at first, a single one in the program that went on."""
    assert 1 < job.slices(1, 0) < _AQE_SHUFFLE
    assert job.slices(2, _last_batch(job)) == 1


def _ran_twice_at_once(job: Job) -> None:
    tries = [each for each in job.attempts() if (each.run, each.batch, each.partition) == (1, 0, 1)]
    assert {each.number for each in tries} == {0, 1}
    assert not any(each.failed for each in tries)


def _failed_and_ran_again(job: Job) -> None:
    tries = [each for each in job.attempts() if (each.run, each.batch, each.partition) == (1, 0, 0)]
    assert {(each.number, each.failed) for each in tries} == {(0, True), (1, False)}


def _slices_and_executors_changed(job: Job) -> None:
    last = _last_batch(job)
    assert (job.slices(1, 0), job.slices(2, last)) == (_SHUFFLE, _OTHER_SHUFFLE)
    assert (job.executors(1, 0), job.executors(2, last)) == (2, 1)


def _last_batch(job: Job) -> int:
    """Of the program that went on."""
    return max(each.batch for each in job.attempts() if each.run == 2)


_SPECULATION = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
_SPECULATING = setup(TWO_HOSTS, hindrance="straggles", settings=_SPECULATION)
_FAILING = setup(THREADS, hindrance="fails")

CONDITIONS = {
    "adaptive slices": Condition(
        first=_adaptive("3k"), then=_adaptive("64m"), took_place=_slices_were_adapted
    ),
    "speculation": Condition(first=_SPECULATING, then=_SPECULATING, took_place=_ran_twice_at_once),
    "task failure": Condition(first=_FAILING, then=_FAILING, took_place=_failed_and_ran_again),
    "other slices and executors": Condition(
        first=setup(TWO_PROCESSES),
        then=setup(ONE_PROCESS, shuffle=_OTHER_SHUFFLE),
        took_place=_slices_and_executors_changed,
    ),
}


# -- accidents ---------------------------------------------------------------------------------------------

ACCIDENTS = (
    "driver killed before the commit",
    "driver killed inside the commit",
    "driver killed after the commit",
    "old driver woken before its commit",
    "old driver woken inside its commit",
    "executor killed",
    "broker killed",
)

PLACES = {
    "one node": "headrace_node",
    "three nodes": "headrace_cluster",
    "Apache Kafka": "kafka_node",
}
"""Where topics are read and written: the fixture of test_spark_kills.py that starts it."""


class Cells:
    """Accidents under one condition, each with jobs of its own.

    A start of Spark is dear, a query in it cheap: accidents of the same kind share a program, and one program
    goes on with all jobs.
    """

    def __init__(self, jobs: Mapping[str, Sequence[Job]], condition: Condition, folder: Path) -> None:
        self._jobs = jobs
        self._condition = condition
        self._folder = folder
        self._programs = ExitStack()

    def run(self) -> None:
        everyone = [job for jobs in self._jobs.values() for job in jobs]
        with self._programs, groups_watched(everyone):
            old = self._pause_driver()
            self._kill_driver()
            self._kill_executors_and_brokers()
            self._go_on(everyone)
            self._wake(old)
            for job in everyone:
                self._condition.took_place(job)
                job.check_complete()

    def _pause_driver(self) -> Program | None:
        stops = self._stops("old driver woken before its commit", "old driver woken inside its commit")
        if not stops:
            return None
        old = self._start("old", self._condition.first, stops)
        for _, job in stops:
            _wait_for_stop(old, job)
        old.signal(signal.SIGSTOP)
        return old

    def _kill_driver(self) -> None:
        """Its executors have to notice by themselves, while the next program works."""
        stops = self._stops(
            "driver killed before the commit",
            "driver killed after the commit",
            "driver killed inside the commit",
        )
        if not stops:
            return
        driver = self._start("driver", self._condition.first, stops)
        for moment, job in stops:
            _wait_for_stop(driver, job)
            assert len(job.output.visible()) == BATCH_ROWS * (2 if moment == "after" else 1)
        driver.kill_driver()

    def _kill_executors_and_brokers(self) -> None:
        """The driver goes on by itself. An executor dies when a task of it has given rows to the sink."""
        stops = self._stops("executor killed", "broker killed")
        if not stops:
            return
        first = self._condition.first
        in_processes = replace(first, master=TWO_PROCESSES) if first.master == THREADS else first
        driver = self._start("hurt", in_processes, stops)
        for moment, job in stops:
            _wait_for_stop(driver, job)
            if moment == "write":
                driver.kill_executor_of(job.who_waits())
            else:
                _kill_broker(job)
            driver.wait_until(partial(job.has_ended, 1))
        assert driver.ended() == 0, driver.output()
        for _, job in stops:
            job.check_complete()
            job.more(_MORE)

    def _go_on(self, everyone: Sequence[Job]) -> None:
        going_on = self._start("then", self._condition.then, [("", job) for job in everyone], run=2)
        assert going_on.ended() == 0, going_on.output()
        for job in everyone:
            job.check_complete()

    def _wake(self, old: Program | None) -> None:
        """All is done: every query of it must find out."""
        if old is None:
            return
        stops = self._stops("old driver woken before its commit", "old driver woken inside its commit")
        for _, job in stops:
            job.go_on()
        old.signal(signal.SIGCONT)
        assert old.ended() != 0
        for _, job in stops:
            assert job.failure(1), "it took itself for the one that does the work"

    def _stops(self, *accidents: str) -> list[tuple[str, Job]]:
        return [(_moment(each, job), job) for each in accidents for job in self._jobs.get(each, ())]

    def _start(self, name: str, setup: Setup, stops: Sequence[tuple[str, Job]], *, run: int = 1) -> Program:
        described = self._folder / f"{name}.json"
        leaves = name in ("old", "driver")
        return self._programs.enter_context(program(described, setup, stops, run=run, leaves=leaves))


def _moment(accident: str, job: Job) -> str:
    if accident == "broker killed":
        return job.output.needs_broker_at
    return next((moment for moment in COMMIT_MOMENTS if moment in accident.split()), "write")


def _wait_for_stop(working: Program, job: Job) -> None:
    working.wait_until(lambda: job.has_stopped() or job.has_ended(1))
    assert job.has_stopped(), job.failure(1)


def _kill_broker(job: Job) -> None:
    """The program goes on while it is away."""
    job.broker.kill()
    try:
        job.go_on()
        time.sleep(_BROKER_AWAY_S)  # how long the broker is away
    finally:
        job.broker.come_back()
