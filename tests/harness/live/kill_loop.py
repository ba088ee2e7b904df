# SPDX-License-Identifier: Apache-2.0
"""T4, T5, T8 and T9 on real processes: faults under load by unmodified clients, then the history is checked.

Idempotent producers with acks=all, a reader by `assign`, a group that commits; a fault strikes the node that
holds a role. Knows neither store nor engine. Read next: cluster.py, load.py.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, Protocol, Self, get_args

from headrace.client.tools.reassignments import reassign
from headrace.types import TopicPartition
from tests.harness.history import Anomaly, FinalLog, History, check
from tests.harness.jepsen.edn import export
from tests.harness.live.cluster import LiveCluster, Role
from tests.harness.live.load import GroupCommitter, HeavyProducer, SteadyReader, read_all
from tests.harness.waiting import poll, wait_until

TOPIC, GROUP = "killed", "committers"
ROLES: tuple[Role, ...] = get_args(Role)
PARTITIONS = 3
PROGRESS_S = 100
"""At the start and after a fault clients get on within this time, by their own retries."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What happened; `anomalies` must be empty."""

    seed: int
    faults: int = 0
    by_role: dict[str, int] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    read: int = 0
    commits: int = 0
    gaps_s: list[float] = field(default_factory=list)
    """The longest pause between two acknowledgements, of each producer."""
    in_sync_after_s: list[float] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)

    def check(self) -> None:
        """Nothing lost, doubled or reordered; no send failed, all that was acknowledged was read."""
        assert self.anomalies == [], self.figures()
        assert self.sends.keys() == {"ok"}, self.figures()
        assert self.read >= self.sends["ok"], self.figures()
        assert self.commits > 0, self.figures()

    def figures(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "faults": self.faults,
            "by_role": self.by_role,
            "sends": self.sends,
            "records_read": self.read,
            "commits": self.commits,
            "longest_gap_s": round(max(self.gaps_s, default=0.0), 2),
            "slowest_in_sync_s": round(max(self.in_sync_after_s, default=0.0), 2),
            "anomalies": [str(each) for each in self.anomalies],
        }


class Load(Protocol):
    """Clients that write to TOPIC and read from it as members of GROUP."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def wait_started(self) -> None: ...

    def wait_progress(self) -> None:
        """Until more is acknowledged than was by now; raises when that does not come."""

    def judge(self, report: Report) -> None:
        """After the clients have ended: fills in what they did and what of it must not be."""


Fault = Callable[[LiveCluster, int], None]
"""Strikes a node, and has it back when it returns."""


def kill_and_start(cluster: LiveCluster, node_id: int) -> None:
    cluster.kill(node_id)
    time.sleep(0.3)  # how long the node is away
    cluster.start(node_id)


def kill_all_and_start(cluster: LiveCluster, node_id: int) -> None:
    """As a power cut of the whole site ends processes, with what their kernels hold kept (T5)."""
    cluster.kill_all()
    cluster.start(*cluster.node_ids)


def pause_for(seconds: float) -> Fault:
    def pause(cluster: LiveCluster, node_id: int) -> None:
        cluster.pause(node_id)
        time.sleep(seconds)  # how long the node stands still
        cluster.resume(node_id)

    return pause


def stop_and_start(cluster: LiveCluster, node_id: int) -> None:
    """As in a rolling restart."""
    cluster.stop(node_id)
    cluster.start(node_id)


def move_away(cluster: LiveCluster, node_id: int) -> None:
    """Everything of the topic that the node holds goes to nodes that do not hold it; it needs one more."""
    reassign(cluster.as_admin, moves_away_from(cluster, node_id), timeout_ms=60_000)


def moves_away_from(cluster: LiveCluster, node_id: int) -> dict[tuple[str, int], tuple[int, ...]]:
    metadata = cluster.metadata()
    assert metadata is not None, "no node answers"
    targets = {}
    for each in metadata.partitions:
        if each.topic == TOPIC and node_id in each.replicas:
            heir = next(other for other in cluster.node_ids if other not in each.replicas)
            replicas = tuple(heir if node == node_id else node for node in each.replicas)
            targets[each.topic, each.index] = replicas
    return targets


def in_turn(*faults: Fault) -> Fault:
    """One after the other, and from the beginning again."""
    turns = cycle(faults)

    def strike(cluster: LiveCluster, node_id: int) -> None:
        next(turns)(cluster, node_id)

    return strike


def strike_under_load(
    cluster: LiveCluster,
    *,
    faults: int = 1_000_000,
    at_most_s: float = math.inf,
    seed: int,
    fault: Fault = kill_and_start,
    roles: tuple[Role, ...] = ROLES,
    pause_s: float = 0.005,
    order: Literal["roles", "nodes"] = "roles",
    load: Load | None = None,
    configs: Mapping[str, str] | None = None,
) -> Report:
    """Strikes who holds each role in turn, or each node in turn; the next when all are in sync and at work.

    Ends after `faults` of them, or the first after `at_most_s`. `pause_s`: between two sends of a producer;
    `configs`: of the topic, with _ for the dots. Raises only when the cluster does not come back.
    """
    source = random.Random(seed)
    nodes = cluster.node_ids
    create_topic(cluster, configs or {})
    load = load or ConfluentLoad(cluster.bootstrap, pause_s, cluster.client_options)
    report = Report(seed=seed)
    with load:
        load.wait_started()
        deadline = time.monotonic() + at_most_s
        for number in range(faults):
            if time.monotonic() > deadline:
                break
            role = roles[number % len(roles)] if order == "roles" else "any"
            victim = nodes[number % len(nodes)]
            if role != "any":
                victim = _wait_for_holder(cluster, role, source.randrange(PARTITIONS))
            fault(cluster, victim)
            report.faults += 1
            report.by_role[role] = report.by_role.get(role, 0) + 1
            report.in_sync_after_s.append(cluster.wait_in_sync())
            load.wait_progress()
            time.sleep(source.uniform(0.1, 0.5))  # the next fault comes at any moment of the load
        load.wait_progress()
    load.judge(report)
    return report


def create_topic(cluster: LiveCluster, configs: Mapping[str, str]) -> None:
    """TOPIC, as ConfluentLoad needs it."""
    nodes = cluster.node_ids
    replicas = [[nodes[(first + step) % len(nodes)] for step in range(3)] for first in range(PARTITIONS)]
    cluster.create_topic(TOPIC, replicas, min_insync_replicas="2", **configs)


def _wait_for_holder(cluster: LiveCluster, role: Role, partition: int) -> int:
    victim = poll(lambda: cluster.holder(role, TOPIC, partition, GROUP), lambda node: node in cluster.alive())
    assert victim in cluster.alive(), f"nobody is {role} of partition {partition}"
    return victim


class ConfluentLoad:
    """Three idempotent producers, a reader and a member of a group, all of librdkafka."""

    def __init__(self, bootstrap: str, pause_s: float, options: Mapping[str, Any] | None = None) -> None:
        """`options`: security settings of librdkafka."""
        self._bootstrap = bootstrap
        self._options = dict(options or {})
        self._producers = [
            HeavyProducer(
                bootstrap,
                f"p{index}",
                TopicPartition(TOPIC, index),
                {"enable.idempotence": True, "acks": "all", **self._options},
                pause_s=pause_s,
            )
            for index in range(PARTITIONS)
        ]
        self._reader = SteadyReader(bootstrap, "reader", TOPIC, PARTITIONS, self._options)
        self._group = GroupCommitter(bootstrap, GROUP, TOPIC, {"session.timeout.ms": 10_000, **self._options})

    def __enter__(self) -> ConfluentLoad:
        for client in (*self._producers, self._reader, self._group):
            client.start()
        return self

    def wait_started(self) -> None:
        """Until records are acknowledged in each partition, and a commit of the group."""

        def progress() -> str:
            acknowledged = {each.name: len(each.acknowledged_at) for each in self._producers}
            return f"{acknowledged}, {self._group.commits} commits, {self._group.refused} refused"

        wait_until(
            lambda: self._group.commits and all(each.acknowledged_at for each in self._producers),
            progress,
            timeout_s=PROGRESS_S,
        )

    def wait_progress(self) -> None:
        before = [len(each.acknowledged_at) for each in self._producers]

        def now() -> list[int]:
            return [len(each.acknowledged_at) for each in self._producers]

        wait_until(
            lambda: all(after > count for after, count in zip(now(), before, strict=True)),
            lambda: f"an acknowledgement of each producer; before {before}, now {now()}",
            timeout_s=PROGRESS_S,
        )

    def __exit__(self, *_: object) -> None:
        """The reader last, when it has read what was acknowledged: it may have lost a connection just now."""
        for producer in self._producers:
            producer.finish()
        acknowledged = sum(len(each.acknowledged_at) for each in self._producers)
        poll(lambda: self._reader.records_read >= acknowledged, timeout_s=PROGRESS_S)
        for client in (self._group, self._reader):
            client.finish()

    def use(self, options: Mapping[str, Any]) -> None:
        """Security settings for `judge`, where they have changed."""
        self._options = dict(options)
        self._group.use(options)

    def judge(self, report: Report) -> None:
        history = History(
            [send for producer in self._producers for send in producer.history.sends],
            self._reader.history.polls,
        )
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        final = {each: read_all(self._bootstrap, each, options=self._options) for each in partitions}
        export("kill-loop", history.operations(final), final)
        report.anomalies = [*check(history, final), *self._judge_group(final)]
        report.sends = {str(name): count for name, count in history.outcomes().items()}
        report.read = sum(len(poll.records) for poll in history.polls)
        report.commits = self._group.commits
        report.gaps_s = [producer.longest_gap_s() for producer in self._producers]

    def _judge_group(self, final: dict[TopicPartition, FinalLog]) -> list[Anomaly]:
        """A commit that was acknowledged is not forgotten, and none is ahead of the log."""
        stored, anomalies = self._group.stored(), []
        for index, acknowledged in self._group.committed.items():
            partition = TopicPartition(TOPIC, index)
            end = len(final[partition].records)
            if not acknowledged <= stored[index] <= end:
                detail = f"{acknowledged} was acknowledged, {stored[index]} is stored, the log ends at {end}"
                anomalies.append(Anomaly(kind="lost-commit", partition=partition, detail=detail))
        return anomalies
