"""Spark programs that store a topic in a table, killed or paused while they commit: every record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from spark_lab import Broker, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
RECORDS = 1000
TIMEOUT_S = 300
PLAIN = ("local[2,4]", "3")
SPECULATIVE = ("local[2,4]", "5", "spark.speculation=true", "spark.speculation.interval=10ms")


class Storer:
    """A program over one checkpoint, started as often as a test likes."""

    def __init__(self, broker: Broker, topic: str, folder: Path) -> None:
        self._where = [broker.bootstrap, topic, str(folder)]
        self._folder = folder
        self._values = broker.fill(topic, 0, RECORDS)
        self._reached = folder / "reached"
        self.table = folder / "table"

    @contextmanager
    def running(self, *how: str, moment: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Killed at the end with all its processes."""
        environment = {
            **os.environ,
            "HEADRACE_TEST_REACHED": str(self._reached),
            "HEADRACE_TEST_MOMENT": moment,
        }
        paths = [str(HERE / "delta_moments"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        with (self._folder / "output").open("ab") as output:
            program = subprocess.Popen(
                [sys.executable, str(HERE / "spark_storer.py"), *self._where, *how],
                env=environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield program
        finally:
            signal_all(program, signal.SIGKILL)
            program.wait(30)

    @contextmanager
    def stopped_at(self, moment: str, *how: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program that waits at the moment in the commit of its second micro-batch."""
        with self.running(*how, moment=moment) as program:
            wait_until(lambda: self._reached.exists() or program.poll() is not None)
            assert program.poll() is None, self.output()
            yield program

    def finish(self, *how: str) -> None:
        with self.running(*how) as program:
            assert program.wait(TIMEOUT_S) == 0, self.output()

    def go_on(self) -> None:
        self._reached.with_suffix(".go").touch()

    def output(self) -> str:
        return (self._folder / "output").read_text()[-3000:]

    def check(self) -> None:
        stored = DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist()
        assert len(stored) == RECORDS
        assert sorted(stored) == sorted(self._values)


@pytest.fixture
def storer(java_home: Path, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]) -> Storer:
    return Storer(broker, new_topic(2), tmp_path)


def signal_all(program: subprocess.Popen[bytes], number: int) -> None:
    """Spark's driver, its JVM and its Python workers."""
    try:
        family = [psutil.Process(program.pid)]
    except psutil.NoSuchProcess:
        return
    family += family[0].children(recursive=True)
    for process in family:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


@pytest.mark.parametrize("how", [PLAIN, SPECULATIVE], ids=["plain", "speculation"])
@pytest.mark.parametrize("moment", ["before", "compared", "committed"])
def test_a_killed_driver_neither_loses_nor_repeats(storer: Storer, moment: str, how: tuple[str, ...]) -> None:
    """The one that goes on has other cores and other shuffle partitions: its slices differ."""
    with storer.stopped_at(moment, *how):
        pass
    in_table = DeltaTable(storer.table).count()
    assert in_table == (800 if moment == "committed" else 400)
    storer.finish("local[1,4]", "2")
    storer.check()


@pytest.mark.parametrize("moment", ["before", "compared"])
def test_an_old_driver_that_wakes_up_changes_nothing(storer: Storer, moment: str) -> None:
    with storer.stopped_at(moment, *PLAIN) as old:
        signal_all(old, signal.SIGSTOP)
        storer.finish("local[2,4]", "2")
        storer.check()
        signal_all(old, signal.SIGCONT)
        storer.go_on()
        old.wait(TIMEOUT_S)  # finds its batch in the table, and the checkpoint in other hands
    storer.check()
