# SPDX-License-Identifier: Apache-2.0
"""Transactional producers as applications have them: confluent-kafka in threads, and a Java program.

They commit one transaction after the other and note when. Knows no engine. Read next:
measures/transactions.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from bench.judge import percentile
from headrace.cluster.engines.engine import EngineError, command_environment
from headrace.cluster.engines.kafka import KafkaEngine

RECORDS, VALUE_BYTES = 100, 100
"""Of each transaction."""
_TIMEOUT_S = 60.0
_JAVA_SOURCE = Path(__file__).parent / "java" / "TransactionRate.java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """What one producer did, on the machine's monotonic clock."""

    started: float
    """When its first transaction began."""
    calls: list[tuple[float, float]]
    """When each commit was called, and when it had returned."""


def open_producer(bootstrap: str, transactional_id: str, topic: str, partitions: Sequence[int]) -> Producer:
    """It has committed a first transaction: connecting to all leaders is not what is measured."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(_TIMEOUT_S)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"first", partition=partition)
    producer.commit_transaction(_TIMEOUT_S)
    return producer


def commit_for(
    bootstrap: str, topic: str, shares: dict[str, list[int]], seconds: float, gate: Gate | None = None
) -> list[Commits]:
    """One producer for each transactional id, each in a thread, writing to its share of the partitions."""
    with ThreadPoolExecutor(len(shares)) as threads:
        producers = list(
            threads.map(lambda name: open_producer(bootstrap, name, topic, shares[name]), shares)
        )
        if gate is not None:
            gate.wait()
        deadline = time.monotonic() + seconds
        return list(
            threads.map(
                lambda producer, partitions: _commit_until(producer, topic, partitions, deadline),
                producers,
                shares.values(),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Lets processes go on when all of them are ready: each leaves a file in an empty folder."""

    folder: Path
    processes: int

    def wait(self) -> None:
        (self.folder / str(os.getpid())).touch()
        deadline = time.monotonic() + _TIMEOUT_S
        while len(list(self.folder.iterdir())) < self.processes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {self.processes} processes were ready")
            time.sleep(0.001)


def _commit_until(producer: Producer, topic: str, partitions: Sequence[int], deadline: float) -> Commits:
    value = os.urandom(VALUE_BYTES)
    started = time.monotonic()
    calls: list[tuple[float, float]] = []
    while not calls or calls[-1][1] < deadline:
        send_transaction(producer, topic, partitions, value)
        producer.flush(_TIMEOUT_S)  # what is left for the commit is the commit
        called = time.monotonic()
        producer.commit_transaction(_TIMEOUT_S)
        calls.append((called, time.monotonic()))
    return Commits(started=started, calls=calls)


def send_transaction(producer: Producer, topic: str, partitions: Sequence[int], value: bytes) -> None:
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, value, partition=partitions[number % len(partitions)])


def rate_of(runs: Sequence[Commits]) -> float:
    """Transactions per second while all of the producers were at work."""
    begin = max(run.started for run in runs)
    end = min(run.calls[-1][1] for run in runs)
    if end <= begin:
        raise TimeoutError("the producers were never all at work: some began when others had ended")
    done = sum(begin < returned <= end for run in runs for _, returned in run.calls)
    return done / (end - begin)


def commit_ms(runs: Sequence[Commits], percent: float) -> float:
    """How long the call took."""
    return percentile([returned - called for run in runs for called, returned in run.calls], percent) * 1000


def fill_with_transactions(
    bootstrap: str, topic: str, ids: list[str], transactions: int, aborted_every: int
) -> None:
    """So many of each producer into partition 0, the first and then every so many aborted."""

    def fill(transactional_id: str) -> None:
        producer = open_producer(bootstrap, transactional_id, topic, [])
        value = os.urandom(VALUE_BYTES)
        for number in range(transactions):
            send_transaction(producer, topic, [0], value)
            if number % aborted_every == 0:
                producer.flush(_TIMEOUT_S)  # an abort would throw away what was not sent yet
                producer.abort_transaction(_TIMEOUT_S)
            else:
                producer.commit_transaction(_TIMEOUT_S)

    with ThreadPoolExecutor(len(ids)) as threads:
        list(threads.map(fill, ids))


class CommitProber:
    """Commits transactions of one record without a pause, whatever happens, and knows when each was."""

    def __init__(self, bootstrap: str, topic: str, partition: int, transactional_id: str) -> None:
        self._calls: list[tuple[float, float]] = []
        """When the transaction began, and when its commit had returned."""
        self._failure: Exception | None = None
        self._producer = open_producer(bootstrap, transactional_id, topic, [partition])
        self._topic = topic
        self._partition = partition
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> CommitProber:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def first_after(self, moment: float) -> float:
        """Seconds from the moment until a transaction that began after it is committed."""
        looked = 0
        while time.monotonic() - moment < _TIMEOUT_S:
            if self._failure is not None:
                raise self._failure
            for began, committed in self._calls[looked:]:
                looked += 1
                if began >= moment:
                    return committed - moment
            time.sleep(0.001)
        raise TimeoutError(f"no transaction was committed within {_TIMEOUT_S:.0f} s")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                if self._commit_one():
                    self._calls.append((began, time.monotonic()))
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the next commit
            self._failure = error

    def _commit_one(self) -> bool:
        """False when the transaction had to be aborted."""
        producer = self._producer
        try:
            producer.begin_transaction()
            producer.produce(self._topic, b"probe", partition=self._partition)
            _again_while_retriable(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _again_while_retriable(producer.abort_transaction)
            return False
        return True


def _again_while_retriable(call: Callable[[float], None]) -> None:
    """As confluent-kafka's documentation asks of an application."""
    while True:
        try:
            return call(_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRate:
    transactions_per_s: float
    commit_p50_ms: float
    commit_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProgram:
    """TransactionRate, compiled."""

    tools: KafkaEngine
    folder: Path

    @classmethod
    def compile(cls, tools: KafkaEngine, folder: Path) -> JavaProgram:
        compiler = shutil.which("javac")
        if compiler is None:
            raise EngineError("no javac: a Java development kit is needed to compile the Java producer")
        command = [compiler, "-cp", tools.jars.class_path, "-d", str(folder), str(_JAVA_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise EngineError(f"javac failed:\n{done.stderr}")
        return cls(tools=tools, folder=folder)

    def run(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        transactional_id: str,
        *,
        warm_up_s: float,
        seconds: float,
    ) -> JavaRate:
        options = (
            *(bootstrap, topic, str(partitions), transactional_id),
            *(str(RECORDS), str(VALUE_BYTES), str(warm_up_s), str(seconds)),
        )
        done = subprocess.run(
            [self.tools.jars.java, "-Xmx512M", "TransactionRate", *options],
            env=command_environment({"CLASSPATH": f"{self.folder}:{self.tools.jars.class_path}"}),
            capture_output=True,
            text=True,
            timeout=warm_up_s + seconds + _TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"TransactionRate failed:\n{done.stderr[-1000:]}")
        rate, p50, p99 = map(float, done.stdout.split())
        return JavaRate(transactions_per_s=rate, commit_p50_ms=p50, commit_p99_ms=p99)
