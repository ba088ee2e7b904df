"""Spark programs that copy a topic on Apache Kafka, killed or paused while they commit: every record once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from spark_copier import SPECULATION

import headrace
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.pipelines.java import find_java

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
RECORDS = 1000
TIMEOUT_S = 300
LOCAL = ("local[2,4]", "3")


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        find_java()
    except ClientError as error:
        pytest.skip(str(error))
    with kafka_engine.start(tmp_path_factory.mktemp("copier"), {}) as node:
        yield node.bootstrap


class Copier:
    """A program over one checkpoint, started as often as a test likes."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.source, self.output, self._folder = bootstrap, topic, f"{topic}-copy", folder
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(self.source, 2, 1), NewTopic(self.output, 3, 1)]
        for created in admin.create_topics(new).values():
            created.result(30)
        self.values = [f"value {number}" for number in range(RECORDS)]
        table = pa.table({"key": [str(number % 50) for number in range(RECORDS)], "value": self.values})
        headrace.write(table, self.source, bootstrap=bootstrap, key="key")
        self.reached = folder / "reached"

    def start(self, *how: str, moment: str | None = None) -> Program:
        where = [self.bootstrap, self.source, self.output, str(self._folder / "checkpoint")]
        environment = dict(os.environ)
        if moment is not None:
            environment["PYTHONPATH"] = str(HERE / "spark_moments")
            environment |= {"HEADRACE_TEST_REACHED": str(self.reached), "HEADRACE_TEST_MOMENT": moment}
        return Program([*where, *(how or LOCAL)], environment, self._folder)

    @contextmanager
    def stopped_at(self, moment: str, *how: str) -> Iterator[Program]:
        """A program that waits at the moment in the commit of its second micro-batch; killed at the end."""
        program = self.start(*how, moment=moment)
        try:
            program.wait_until(self.reached.exists)
            yield program
        finally:
            program.kill()

    def finish(self, *how: str) -> None:
        program = self.start(*how)
        try:
            assert program.ended() == 0, program.output()
        finally:
            program.kill()

    def assert_copied(self) -> None:
        """By read_committed."""
        deadline = time.monotonic() + 15
        while len(found := self._copied()) < RECORDS and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == sorted(self.values)

    def _copied(self) -> list[str]:
        table = headrace.read(self.output, bootstrap=self.bootstrap, value="string").read_all()
        return sorted(table["value"].to_pylist())


class Program:
    """Driver, Java and Python workers: one session of processes."""

    def __init__(self, arguments: list[str], environment: dict[str, str], folder: Path) -> None:
        self._log = folder / f"program-{time.monotonic_ns()}.txt"
        with self._log.open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, str(HERE / "spark_copier.py"), *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not happened():
            assert self._driver.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)

    def ended(self) -> int:
        return self._driver.wait(TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self._driver.pid:
                    process.send_signal(number)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._driver.wait(TIMEOUT_S)

    def output(self) -> str:
        lines = self._log.read_text().splitlines()
        return "\n".join(line for line in lines if not line.startswith("\tat "))[-6000:]


@pytest.fixture
def copier(kafka: str, topic: str, tmp_path: Path) -> Copier:
    return Copier(kafka, topic, tmp_path)


@pytest.mark.compat_jvm
def test_a_driver_killed_inside_a_commit_and_started_with_other_slices(copier: Copier) -> None:
    with copier.stopped_at("number"):
        pass
    copier.finish("local[2,4]", "7")
    copier.assert_copied()


@pytest.mark.compat_jvm
def test_a_paused_driver_that_wakes_up_after_its_successor_is_done(copier: Copier) -> None:
    with copier.stopped_at("number") as paused:
        paused.signal(signal.SIGSTOP)
        copier.finish("local[2,4]", "7")
        copier.reached.with_suffix(".go").touch()
        paused.signal(signal.SIGCONT)
        assert paused.ended() != 0
        assert "was taken over by another driver" in paused.output()
    copier.assert_copied()


SPECULATING = (
    *("local-cluster[2,1,1024]", "5"),
    *(SPECULATION, "spark.speculation.multiplier=1.01", "spark.speculation.quantile=0.1"),
)


@pytest.mark.soak
@pytest.mark.parametrize("how", [LOCAL, SPECULATING], ids=["local", "speculating-cluster"])
@pytest.mark.parametrize("moment", ["before", "number", "committed"])
@pytest.mark.parametrize("fate", ["killed", "paused"])
def test_spark_topic_sink_matrix(copier: Copier, how: tuple[str, ...], moment: str, fate: str) -> None:
    with copier.stopped_at(moment, *how) as program:
        if fate == "paused":
            program.signal(signal.SIGSTOP)
            copier.finish(how[0], "9", *how[2:])
            copier.reached.with_suffix(".go").touch()
            program.signal(signal.SIGCONT)
            program.ended()
        else:
            program.kill()
            copier.finish(how[0], "9", *how[2:])
    copier.assert_copied()
