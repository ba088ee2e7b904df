"""The kill matrix: accidents of a Spark program, and conditions under which they happen.

A condition is what Spark does meanwhile, in the program that meets the accident and in the one that goes on;
it also proves that it took place. Read next: kill_harness.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kill_harness import BATCH_ROWS, Job, Jobs, Setup

THREADS = "local[2,4]"
"""Executors are threads of the driver, which starts sooner. A task may be tried four times."""
ONE_PROCESS, TWO_PROCESSES = "local-cluster[1,1,1024]", "local-cluster[2,1,1024]"
"""Executors are processes: they can be killed, and tasks run twice at once."""

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
    assert (job.slices(1, 0), job.slices(2, _last_batch(job))) == (_SHUFFLE, _OTHER_SHUFFLE)
    assert (job.executors(1), job.executors(2)) == (2, 1)


def _last_batch(job: Job) -> int:
    """Of the program that went on."""
    return max(each.batch for each in job.attempts() if each.run == 2)


_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
_SPECULATING = setup(TWO_PROCESSES, hindrance="straggles", settings=_SPECULATION)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Accident:
    """`befall` brings it about and lets things go on to the end.

    `moments`: where the first program stops, each for a job of its own. One that holds a transaction open
    comes last, since others may have to wait for its end. Empty: the moment at which the output needs its
    broker.
    """

    moments: Sequence[str]
    befall: Callable[[Jobs, Condition], None]


def kill_driver(jobs: Jobs, condition: Condition) -> None:
    with jobs.first_program(condition.first) as program:
        for moment, job in jobs.by_moment.items():
            program.wait_until(job.has_stopped)
            assert len(job.output.visible()) == BATCH_ROWS * (2 if moment == "after" else 1)
        program.kill_driver()
        jobs.finish(condition.then)


def wake_old_driver(jobs: Jobs, condition: Condition) -> None:
    """It was paused, and wakes up when a successor has done all: every query of it must find out."""
    with jobs.first_program(condition.first) as old:
        for job in jobs:
            old.wait_until(job.has_stopped)
        old.signal(signal.SIGSTOP)
        jobs.finish(condition.then)
        for job in jobs:
            job.check_complete()
            job.go_on()
        old.signal(signal.SIGCONT)
        assert old.ended() != 0
        for job in jobs:
            assert job.failure(1), "it took itself for the one that does the work"


def kill_executor(jobs: Jobs, condition: Condition) -> None:
    """While one of its tasks has given rows to the sink: the driver goes on with others."""
    with jobs.first_program(replace(condition.first, master=TWO_PROCESSES)) as program:
        for job in jobs:
            program.wait_until(job.has_stopped)
            program.kill_executor_of(job.who_waits())
        assert program.ended() == 0, program.output()
    _go_on_later(jobs, condition)


def kill_broker(jobs: Jobs, condition: Condition) -> None:
    """The program goes on while it is away."""
    with jobs.first_program(condition.first) as program:
        for job in jobs:
            program.wait_until(job.has_stopped)
            job.broker.kill()
            try:
                job.go_on()
                time.sleep(_BROKER_AWAY_S)
            finally:
                job.broker.come_back()
        assert program.ended() == 0, program.output()
    _go_on_later(jobs, condition)


def _go_on_later(jobs: Jobs, condition: Condition) -> None:
    """Where the condition is a change between two programs, the second comes when there is more to do."""
    for job in jobs:
        job.check_complete()
    if condition.then != condition.first:
        for job in jobs:
            job.more(_MORE)
        jobs.finish(condition.then)


ACCIDENTS = {
    "driver killed": Accident(moments=("before", "after", "inside"), befall=kill_driver),
    "old driver woken": Accident(moments=("before", "inside"), befall=wake_old_driver),
    "executor killed": Accident(moments=("write",), befall=kill_executor),
    "broker killed": Accident(moments=(), befall=kill_broker),
}


def run_cell(jobs: Jobs, accident: Accident, condition: Condition) -> None:
    with jobs.groups_watched():
        accident.befall(jobs, condition)
        for job in jobs:
            condition.took_place(job)
            job.check_complete()
