"""Spark programs that work for some jobs at once, and what becomes of each job: its output against the truth.

Knows both outputs (a Delta table, a topic read committed) and no accident: those are in kill_cells.py. The
program is kill_program.py; moments inside it are kill_moments/.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from kill_processes import Program
from spark_lab import wait_until

import headrace
from headrace.client.errors import ClientError

HERE = Path(__file__).parent
RECORDS = 1000
BATCH_ROWS = 400
COMMIT_MOMENTS = ("before", "inside", "after")
STOPPED_BATCH = 1
"""The second micro-batch: one lies before it, and one behind."""
_KEYS = 50
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TIMEOUT_S = 30
_WATCH_EVERY_S = 0.7


class KilledBroker(Protocol):
    """A broker that comes back under the same address with what it had."""

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
    """Few bytes go by message, so that tasks stage the others."""

    name: str
    bootstrap: str
    format: ClassVar[str] = "headrace"
    needs_broker_at: ClassVar[str] = "inside"

    def options(self) -> Mapping[str, str]:
        how = {"exactlyOnce": "batch", "commitMessageBytes": "3000"}
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
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(broker, topic, partitions=2)
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

    def description(self, run: int, moment: str) -> dict[str, object]:
        """For the program. It goes on to the next job when this one is done, or has stopped in a commit."""
        return {
            "source": {
                "bootstrap": self.broker.bootstrap,
                "subscribe": self._topic,
                "group": self._topic,
                "maxOffsetsPerTrigger": str(BATCH_ROWS),
            },
            "format": self.output.format,
            "sink": self.output.options(),
            "checkpoint": str(self._folder / "checkpoint"),
            "is_left": str(self._folder / "reached") if moment in COMMIT_MOMENTS else "",
            "said": str(self._said(run)),
        }

    def has_stopped(self) -> bool:
        return (self._folder / "reached").exists()

    def who_waits(self) -> int:
        """The process that has stopped."""
        return int((self._folder / "reached").read_text())

    def go_on(self) -> None:
        (self._folder / "go").touch()

    def failure(self, run: int) -> str:
        """What made its query end before its end."""
        said = self._said(run)
        return said.read_text() if said.exists() else ""

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
        asked = [ConsumerGroupTopicPartitions(self._topic)]
        (future,) = self._admin.list_consumer_group_offsets(asked).values()
        found = future.result(_TIMEOUT_S).topic_partitions
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def ahead(self) -> set[str]:
        """Records that the group counts as done and that readers of the output do not see."""
        committed = self.committed()
        seen = set(self.output.visible())
        return {record for record in self._expected - seen if _is_done(record, committed)}

    def attempts(self) -> list[Attempt]:
        noted = (self._folder / "attempts").iterdir()
        return [_read_attempt(path) for path in noted if path.suffix != ".failed"]

    def slices(self, run: int, batch: int) -> int:
        """In how many tasks a micro-batch was written."""
        return len({each.partition for each in self.attempts() if (each.run, each.batch) == (run, batch)})

    def executors(self, run: int) -> int:
        """That worked at once on a micro-batch."""
        by_batch: dict[int, set[str]] = defaultdict(set)
        for each in self.attempts():
            if each.run == run:
                by_batch[each.batch].add(each.executor)
        return max(map(len, by_batch.values()))


class Jobs:
    """By the moments at which their first program stops; programs that work for all of them come and go."""

    def __init__(self, by_moment: Mapping[str, Job], folder: Path) -> None:
        self.by_moment = by_moment
        self._folder = folder
        self._runs = 0

    def __iter__(self) -> Iterator[Job]:
        return iter(self.by_moment.values())

    @contextmanager
    def first_program(self, setup: Setup) -> Iterator[Program]:
        """Each job stops in it at its moment."""
        with self._running(setup, list(self.by_moment.items())) as program:
            yield program

    def finish(self, setup: Setup) -> None:
        """By a program that meets no accident. Who holds a transaction open comes first."""
        with self._running(setup, [("", job) for job in reversed(list(self))]) as program:
            assert program.ended() == 0, program.output()

    @contextmanager
    def _running(self, setup: Setup, jobs: Sequence[tuple[str, Job]]) -> Iterator[Program]:
        """Killed at the end with all its processes."""
        self._runs += 1
        common = {"run": self._runs, "batch": STOPPED_BATCH, "hindrance": setup.hindrance}
        queries = {name: job.plan(moment) for moment, job in jobs for name in job.names()}
        paths = [str(HERE / "kill_moments"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            "HEADRACE_TEST_KILLS": json.dumps({"common": common, "queries": queries}),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        described = self._folder / f"program-{self._runs}.json"
        document = {
            "master": setup.master,
            "settings": setup.all_settings(),
            "jobs": [job.description(self._runs, moment) for moment, job in jobs],
        }
        described.write_text(json.dumps(document))
        command = [sys.executable, str(HERE / "kill_program.py"), str(described)]
        with Program(command, environment, described.with_suffix(".txt")) as program:
            yield program

    @contextmanager
    def groups_watched(self) -> Iterator[None]:
        """Fails if a group was ahead of its output at any look at both."""
        ended = threading.Event()
        looks: list[set[str]] = []

        def look() -> None:
            while not ended.wait(_WATCH_EVERY_S):
                for job in self:
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
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_TIMEOUT_S)


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
