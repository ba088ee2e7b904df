# SPDX-License-Identifier: Apache-2.0
"""T12: copies of a topic in transactions while clients and nodes are bounced: output is input, in order.

Knows neither the client that copies (copier.py) nor the engine of the cluster.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.types import TopicPartition
from tests.harness.copies.copier import Copier, CopierKind
from tests.harness.copies.programs.arguments import CopyArguments
from tests.harness.copies.source import SourceWriter
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import poll, wait_until

SOURCE, TARGET, GROUP, OFFSETS = "copied-from", "copied-to", "copiers", "__consumer_offsets"
PROGRESS_S = 120
"""At the start and after a fault copiers get on within this time, by their own retries."""
BEYOND_TIMEOUT_S = 10
"""A transaction that nobody ends is over by its time-out and so much."""
_REQUEST_S = 10
_READ_S = 60
_SHOWN = 5
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Fault = Callable[["CopyRun"], None]
Values = list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    seed: int
    faults: Sequence[Fault]
    partitions: int = 4
    copiers: int = 2
    transaction_timeout_ms: int = 6_000
    records_per_transaction: int = 200
    records_per_second: int = 1_000
    lead: int = 4_000
    """How many records the source is ahead of the copiers, at most."""


@dataclass(slots=True, kw_only=True)
class CopyReport:
    """What happened; `anomalies` must be empty."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    copied: int = 0
    uncommitted: int = 0
    """Records in the output that were aborted."""
    ends: Counter[int] = field(default_factory=Counter)
    """Of copiers, by exit code."""
    stable_after_s: float = 0.0
    """From the last change of coordinator, or the kill of the copiers, until nothing was open."""
    anomalies: list[str] = field(default_factory=list)

    def check(self) -> None:
        assert self.anomalies == [], self.figures()
        assert self.copied > 0, self.figures()

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "faults": dict(self.faults),
            "copied": self.copied,
            "aborted_records": self.uncommitted,
            "ends_of_copiers": {str(code): count for code, count in self.ends.items()},
            "stable_after_s": round(self.stable_after_s, 2),
            "anomalies": self.anomalies[:_SHOWN],
        }


class CopyRun:
    """A cluster, a source that grows, and copiers; faults act on it."""

    def __init__(self, cluster: LiveCluster, kind: CopierKind, plan: CopyPlan, folder: Path) -> None:
        self.cluster = cluster
        self.plan = plan
        self.random = random.Random(plan.seed)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.max.ms": 500})
        self._observer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "reconnect.backoff.max.ms": 500,
                "group.id": GROUP,
                "isolation.level": "read_uncommitted",  # waits for no transaction
            }
        )
        self.source = SourceWriter(
            cluster.bootstrap,
            [TopicPartition(SOURCE, index) for index in range(plan.partitions)],
            per_second=plan.records_per_second,
            lead=plan.lead,
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.copiers = [
            Copier(kind, self._arguments(number), folder / f"copier-{number}.log")
            for number in range(plan.copiers)
        ]

    def _arguments(self, number: int) -> CopyArguments:
        own = range(number, self.plan.partitions, self.plan.copiers)
        return CopyArguments(
            self.cluster.bootstrap,
            SOURCE,
            TARGET,
            GROUP,
            f"copier-{number}",
            ",".join(map(str, own)),
            str(self.plan.transaction_timeout_ms),
            str(self.plan.records_per_transaction),
        )

    def create_topics(self) -> None:
        nodes = self.cluster.node_ids
        wanted = min(len(nodes), 3)
        replicas = [
            [nodes[(first + step) % len(nodes)] for step in range(wanted)]
            for first in range(self.plan.partitions)
        ]
        for topic in (SOURCE, TARGET):
            self.cluster.create_topic(topic, replicas, min_insync_replicas=str(max(wanted - 1, 1)))

    # -- questions -----------------------------------------------------------------------------------------

    def coordinators(self) -> list[int]:
        """Of each transactional id; -1: nobody is at the moment."""
        return [self.cluster.transaction_coordinator(copier.plan.transactional_id) for copier in self.copiers]

    def progress(self) -> int:
        """How many records the group has copied; -1 when nobody answers."""
        asked = [confluent_kafka.TopicPartition(SOURCE, index) for index in range(self.plan.partitions)]
        try:
            places = self._observer.committed(asked, timeout=_REQUEST_S)
        except KafkaException:
            return -1
        copied = sum(max(place.offset, 0) for place in places)
        self.source.copied(copied)
        return copied

    def ends(self, topic: str, isolation: IsolationLevel) -> dict[int, int] | None:
        """High watermarks, or last stable offsets; None while a leader is missing."""
        try:
            count = len(self._admin.list_topics(topic, _REQUEST_S).topics[topic].partitions)
            places = [confluent_kafka.TopicPartition(topic, index) for index in range(count)]
            asked = dict.fromkeys(places, _LATEST)
            answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=_REQUEST_S)
            return {place.partition: answer.result(_REQUEST_S).offset for place, answer in answers.items()}
        except (KafkaException, TimeoutError):
            return None

    def open_places(self) -> list[str] | None:
        """Partitions whose last stable offset is not the high watermark; None when it cannot be said."""
        found = []
        for topic in (TARGET, OFFSETS):
            stable = self.ends(topic, IsolationLevel.READ_COMMITTED)
            high = self.ends(topic, IsolationLevel.READ_UNCOMMITTED)
            if stable is None or high is None:
                return None
            held = {index: end for index, end in high.items() if stable[index] < end}
            found += [f"{topic}-{index}: {stable[index]} of {end}" for index, end in held.items()]
        return found

    # -- waits ---------------------------------------------------------------------------------------------

    def wait_progress(self) -> None:
        goal = max(self.progress(), 0) + self.plan.records_per_transaction
        wait_until(
            lambda: self.progress() >= goal,
            lambda: f"{goal} records copied, now {self.progress()}\n{self.said()}",
            timeout_s=PROGRESS_S,
            poll_s=0.1,
        )

    def wait_stable(self) -> float:
        """Until nothing is open any more, within the time-out and BEYOND_TIMEOUT_S of the last change of a
        coordinator; how long that took. Copiers are away."""
        within_s = self.plan.transaction_timeout_ms / 1000 + BEYOND_TIMEOUT_S
        changed = time.monotonic()
        before = self.coordinators()
        while (places := self.open_places()) != []:
            now = self.coordinators()
            if now != before or -1 in now:
                before, changed = now, time.monotonic()
            late_s = time.monotonic() - changed
            assert late_s < within_s, f"open after {late_s:.1f} s: {places}\n{self.said()}"
            time.sleep(0.05)  # between two looks
        return time.monotonic() - changed

    def wait_copied(self) -> None:
        """All that the source has, which grows no more."""
        wait_until(
            lambda: self.progress() >= self.source.written,
            lambda: f"{self.source.written} records copied, now {self.progress()}\n{self.said()}",
            timeout_s=PROGRESS_S,
            poll_s=0.2,
        )

    def said(self) -> str:
        return "\n".join(f"{each.plan.transactional_id}:\n{each.said()}" for each in self.copiers)


# -- faults ------------------------------------------------------------------------------------------------


def kill_a_copier(run: CopyRun) -> None:
    run.random.choice(run.copiers).kill()


def kill_all_copiers(run: CopyRun) -> None:
    for copier in run.copiers:
        copier.kill()


def kill_a_leader(run: CopyRun) -> None:
    partition = run.random.randrange(run.plan.partitions)
    _kill(run, _holder(lambda: run.cluster.leader(TARGET, partition)))


def kill_a_coordinator(run: CopyRun) -> None:
    """Of a transactional id."""
    which = run.random.randrange(len(run.copiers))
    _kill(run, _holder(lambda: run.coordinators()[which]))


def kill_the_groups_coordinator(run: CopyRun) -> None:
    _kill(run, _holder(lambda: run.cluster.coordinator(GROUP)))


def restart_a_coordinator(run: CopyRun) -> None:
    """With a clean stop of its node."""
    which = run.random.randrange(len(run.copiers))
    victim = _holder(lambda: run.coordinators()[which])
    run.cluster.stop(victim)
    run.cluster.start(victim)


def kill_a_coordinator_and_all_copiers(run: CopyRun) -> None:
    victim = _holder(lambda: run.coordinators()[0])
    kill_all_copiers(run)
    _kill(run, victim)


ONE_OF_EACH: tuple[Fault, ...] = (
    kill_a_copier,
    kill_a_coordinator,
    restart_a_coordinator,
    kill_a_leader,
    kill_all_copiers,
    kill_the_groups_coordinator,
    kill_a_coordinator_and_all_copiers,
)


def faults(count: int) -> list[Fault]:
    return list(itertools.islice(itertools.cycle(ONE_OF_EACH), count))


def _holder(find: Callable[[], int]) -> int:
    victim = poll(find, lambda node: node >= 0, poll_s=0.1)
    assert victim >= 0, "nobody holds the role"
    return victim


def _kill(run: CopyRun, node_id: int) -> None:
    run.cluster.kill(node_id)
    time.sleep(0.3)  # how long the node is away
    run.cluster.start(node_id)


# -- the test ----------------------------------------------------------------------------------------------


def copy_under_faults(cluster: LiveCluster, kind: CopierKind, plan: CopyPlan, folder: Path) -> CopyReport:
    """Raises when the copy or the cluster does not go on; the report says what else is wrong."""
    run = CopyRun(cluster, kind, plan, folder)
    report = CopyReport(seed=plan.seed)
    try:
        run.create_topics()
        with run.source:
            _strike(run, report)
            report.stable_after_s = _die_together(run)
        for copier in run.copiers:
            copier.start()
        run.wait_copied()
    finally:
        for copier in run.copiers:
            copier.stop()
            report.ends += copier.ends
    run.wait_stable()
    _judge(run, report)
    return report


def _strike(run: CopyRun, report: CopyReport) -> None:
    for copier in run.copiers:
        copier.start()
    run.wait_progress()
    for fault in run.plan.faults:
        time.sleep(run.random.uniform(0.1, 0.6))  # a fault comes at any moment of the copying
        fault(run)
        report.faults[fault.__name__] += 1
        run.cluster.wait_in_sync()
        run.wait_progress()


def _die_together(run: CopyRun) -> float:
    """All copiers and a coordinator: what they left open is ended by its time-out, whoever coordinates."""
    time.sleep(run.random.uniform(0, 0.3))  # any moment of their transactions
    for copier in run.copiers:
        copier.pause()
    kill_a_coordinator(run)
    return run.wait_stable()


def _judge(run: CopyRun, report: CopyReport) -> None:
    for index in range(run.plan.partitions):
        source = read_values(run.cluster.bootstrap, SOURCE, index)
        target = read_values(run.cluster.bootstrap, TARGET, index)
        every = read_values(run.cluster.bootstrap, TARGET, index, isolation="read_uncommitted")
        report.copied += len(target)
        report.uncommitted += len(every) - len(target)
        if (wrong := difference(source, target)) is not None:
            report.anomalies.append(f"partition {index}: {wrong}")


def difference(source: Values, target: Values) -> str | None:
    """What is wrong with the copy of a partition; None: nothing."""
    if source == target:
        return None
    pairs = itertools.zip_longest(source, target)
    place = next(number for number, (wanted, found) in enumerate(pairs) if wanted != found)
    missing, doubled = Counter(source) - Counter(target), Counter(target) - Counter(source)
    return (
        f"{len(source)} in, {len(target)} out, {missing.total()} missing, {doubled.total()} too many; "
        f"the first difference is at {place}: {source[place : place + 2]} came out as "
        f"{target[place : place + 2]}"
    )


def read_values(bootstrap: str, topic: str, partition: int, *, isolation: str = "read_committed") -> Values:
    """All that a reader gets up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: Values = []
    try:
        while True:
            message = consumer.poll(_READ_S)
            assert message is not None, f"no end of {topic}-{partition} within {_READ_S} s"
            if (error := message.error()) is None:
                values.append(bytes(message.value() or b""))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return values
            else:
                assert error.retriable(), str(error)
    finally:
        consumer.close()
