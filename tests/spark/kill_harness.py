# SPDX-License-Identifier: Apache-2.0
"""Spark programs that work for some jobs at once, and what becomes of each job: its output against the truth.

Knows both outputs (a Delta table, a topic read committed) and no accident: those are in kill_cells.py. The
program is kill_program.py; moments inside it are kill_moments/.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

import headrace
from headrace.client.errors import ClientError
from tests.spark.kill_processes import Program
from tests.spark.spark_lab import wait_until

HERE = Path(__file__).parent
RECORDS = 1000
BATCH_ROWS = 400
COMMIT_MOMENTS = ("before", "inside", "after")
STOPPED_BATCH = 1
"""The second micro-batch: one lies before it, and one behind."""
_KEYS, _PARTITIONS = 50, 2
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TIMEOUT_S = 30
_WATCH_EVERY_S = 1.0
_PATIENCE_MS = 240_000
"""Of queries whose broker is away: on a busy machine it is long in coming back."""


class KilledBroker(Protocol):
    """A broker that comes back under the same address with what it had; of a cluster, one of its nodes."""

    replicas: ClassVar[int]
    """Of each topic."""

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None: ...

    def come_back(self) -> None: ...


class Output(Protocol):
    format: ClassVar[str]
    needs_broker_at: ClassVar[str]
    """The moment at which the broker is missed most."""

    @property
    def name(self) -> str:
        """No other output has it."""

    def options(self) -> Mapping[str, str]: ...

    def visible(self) -> list[str]:
        """What its readers see now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    path: Path
    format: ClassVar[str] = "headrace_delta"
    needs_broker_at: ClassVar[str] = "read"

    @property
    def name(self) -> str:
        return str(self.path)

    def options(self) -> Mapping[str, str]:
        return {"path": str(self.path)}

    def visible(self) -> list[str]:
        if not (self.path / "_delta_log").exists():
            return []
        values: list[str] = DeltaTable(self.path).to_pyarrow_table()["value"].to_pylist()
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Exactly once by default. Few bytes go by message, so that tasks stage the others."""

    name: str
    bootstrap: str
    format: ClassVar[str] = "headrace"
    needs_broker_at: ClassVar[str] = "inside"

    def options(self) -> Mapping[str, str]:
        how = {"commitMessageBytes": "3000", "timeoutMs": str(_PATIENCE_MS)}
        return {"bootstrap": self.bootstrap, "topic": self.name, **how}

    def visible(self) -> list[str]:
        table = headrace.read(self.name, bootstrap=self.bootstrap, value="string", columns=["value"])
        values: list[str] = table.read_all()["value"].to_pylist()
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How Spark runs a program. `hindrance`: "", "fails" or "straggles", of first attempts of tasks."""

    master: str
    settings: Mapping[str, str] = field(default_factory=dict)
    hindrance: str = ""

    def all_settings(self) -> dict[str, str]:
        """A short life is cheaper without the compiler that pays off later."""
        java = {f"spark.{who}.extraJavaOptions": _QUICK_JAVA for who in ("driver", "executor")}
        return {**java, **self.settings}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Of a task that wrote, as it noted itself. Runs count from 1, micro-batches from 0."""

    run: int
    batch: int
    partition: int
    number: int
    executor: str
    failed: bool


class Job:
    """One checkpoint, one group, one output."""

    def __init__(self, broker: KilledBroker, output: Output, topic: str, folder: Path) -> None:
        self.broker, self.output, self._topic, self._folder = broker, output, topic, folder
        self._group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
        """Joins nothing: it only asks."""
        create_topic(broker, topic, partitions=_PARTITIONS)
        self._records = 0
        self._expected: set[str] = set()
        (folder / "attempts").mkdir(parents=True)
        self.more(RECORDS)

    def more(self, records: int) -> None:
        """More for it to do."""
        numbers = range(self._records, self._records + records)
        self._records += records
        keys = [str(number % _KEYS) for number in numbers]
        table = pa.table({"key": keys, "value": [f"value {number}" for number in numbers]})
        headrace.write(table, self._topic, bootstrap=self.broker.bootstrap, key="key")
        source = headrace.read(self._topic, bootstrap=self.broker.bootstrap, value="string").read_all()
        columns = (source[name].to_pylist() for name in ("partition", "offset", "value"))
        self._expected = {" ".join(map(str, row)) for row in zip(*columns, strict=True)}

    # -- in a program --------------------------------------------------------------------------------------

    def names(self) -> tuple[str, str]:
        """By which its processes know it."""
        return self._topic, self.output.name

    def plan(self, moment: str) -> dict[str, str]:
        return {"folder": str(self._folder), "moment": moment}

    def description(self, run: int, *, is_left: bool) -> dict[str, object]:
        """For the program. It goes on to the next job when this one is done, or has stopped and is left."""
        return {
            "source": {
                "bootstrap": self.broker.bootstrap,
                "subscribe": self._topic,
                "group": self._topic,
                "maxOffsetsPerTrigger": str(BATCH_ROWS),
                "timeoutMs": str(_PATIENCE_MS),
            },
            "format": self.output.format,
            "sink": self.output.options(),
            "checkpoint": str(self._folder / "checkpoint"),
            "is_left_at": str(self._folder / "reached") if is_left else "",
            "said": str(self._said(run)),
        }

    def has_stopped(self) -> bool:
        return (self._folder / "reached").exists()

    def who_waits(self) -> int:
        """The process that has stopped."""
        return int((self._folder / "reached").read_text())

    def go_on(self) -> None:
        (self._folder / "go").touch()

    def has_ended(self, run: int) -> bool:
        return self._said(run).exists()

    def failure(self, run: int) -> str:
        """What made its query end before all was done; nothing if it was."""
        return self._said(run).read_text()

    def _said(self, run: int) -> Path:
        return self._folder / f"said-{run}.txt"

    # -- truth ---------------------------------------------------------------------------------------------

    def check_complete(self) -> None:
        """Every record is there once, and the group knows it."""
        wait_until(lambda: len(self.output.visible()) >= len(self._expected))
        assert len(self._expected) == self._records
        assert Counter(self.output.visible()) == Counter(self._expected)
        assert sum(self.committed().values()) == self._records

    def committed(self) -> dict[int, int]:
        """The group's offsets by partition."""
        asked = [TopicPartition(self._topic, partition) for partition in range(_PARTITIONS)]
        found = self._group.committed(asked, timeout=_TIMEOUT_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def ahead(self) -> set[str]:
        """Records that the group counts as done and that readers of the output do not see."""
        committed = self.committed()
        seen = set(self.output.visible())
        return {record for record in self._expected - seen if _is_done(record, committed)}

    def attempts(self) -> list[Attempt]:
        noted = (self._folder / "attempts").iterdir()
        return [_read_attempt(path) for path in noted if path.suffix != ".failed"]

    def begun(self, run: int) -> bool:
        """Whether a task of that run has written."""
        return any(each.run == run for each in self.attempts())

    def slices(self, run: int, batch: int) -> int:
        """In how many tasks a micro-batch was written."""
        return len({each.partition for each in self.attempts() if (each.run, each.batch) == (run, batch)})

    def executors(self, run: int, batch: int) -> int:
        """That wrote a micro-batch together."""
        tasks = (each for each in self.attempts() if (each.run, each.batch) == (run, batch))
        return len({each.executor for each in tasks})


@contextmanager
def program(
    described: Path, setup: Setup, stops: Sequence[tuple[str, Job]], *, run: int, leaves: bool = False
) -> Iterator[Program]:
    """Works for all the jobs, and each stops at its moment ("": nowhere). Killed at the end, all of it.

    `leaves`: it goes on to the next job when one has stopped.
    """
    common = {"run": run, "batch": STOPPED_BATCH, "hindrance": setup.hindrance}
    queries = {known_as: job.plan(moment) for moment, job in stops for known_as in job.names()}
    paths = [str(HERE / "kill_moments"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "HEADRACE_TEST_KILLS": json.dumps({"common": common, "queries": queries}),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    for_executors = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    document = {
        "master": setup.master,
        "settings": {**for_executors, **setup.all_settings()},
        "jobs": [job.description(run, is_left=leaves) for _, job in stops],
    }
    described.write_text(json.dumps(document))
    command = [sys.executable, str(HERE / "kill_program.py"), str(described)]
    with Program(command, environment, described.with_suffix(".txt")) as running:
        yield running


@contextmanager
def groups_watched(jobs: Sequence[Job]) -> Iterator[None]:
    """Fails if a group was ahead of its output at any look at both."""
    ended = threading.Event()
    looks: list[set[str]] = []

    def look() -> None:
        while not ended.wait(_WATCH_EVERY_S):
            for job in jobs:
                try:
                    looks.append(job.ahead())
                except (KafkaException, ClientError):
                    continue  # the broker is away

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
    assert looks
    assert not any(looks)


def create_topic(broker: KilledBroker, name: str, *, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, broker.replicas)])[name].result(_TIMEOUT_S)
    wait_until(lambda: name in admin.list_topics(timeout=_TIMEOUT_S).topics)


def _is_done(record: str, committed: Mapping[int, int]) -> bool:
    partition, offset, _ = record.split(" ", 2)
    return int(offset) < committed.get(int(partition), 0)


def _read_attempt(path: Path) -> Attempt:
    run, batch, partition, number, _ = map(int, path.name.split("-"))
    return Attempt(
        run=run,
        batch=batch,
        partition=partition,
        number=number,
        executor=path.read_text(),
        failed=path.with_suffix(".failed").exists(),
    )
