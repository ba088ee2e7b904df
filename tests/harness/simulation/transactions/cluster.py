# SPDX-License-Identifier: Apache-2.0
"""The simulation of transactions: clients of both protocols copy records with their offsets on three nodes.

The input is written meanwhile; clients abort, die and are replaced, and what they left behind arrives late.
After the faults everything is copied once, in order, and nothing is left open. `run_seed` raises when
anything promised was broken; the same seed gives the same run. Read next: life.py, invariants.py,
tests/harness/transactions/history.py, simulation/several_nodes.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from headrace.coordination.memory import Profile
from headrace.testing.simworld import Simulation
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from tests.harness.history import FinalLog, History
from tests.harness.history import check as check_sends
from tests.harness.jepsen.checker import analyze, invalid
from tests.harness.jepsen.edn import export
from tests.harness.simulation import cluster_faults
from tests.harness.simulation.clients import LATEST, BrokenPromise, TryAgain, list_offset
from tests.harness.simulation.cluster import PROGRESS_S, SimCluster
from tests.harness.simulation.cluster_plan import PORT, ClusterPlan
from tests.harness.simulation.producer import ProducerKind, SimProducer
from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.run import RunReport, carry_out
from tests.harness.simulation.transactions import requests as wire
from tests.harness.simulation.transactions.copier import Copier
from tests.harness.simulation.transactions.invariants import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    TransactionInvariants,
)
from tests.harness.simulation.transactions.life import Habits, Surroundings
from tests.harness.simulation.transactions.links import LateRequests
from tests.harness.simulation.transactions.readers import CommittedReader, OffsetWatcher
from tests.harness.transactions.history import TransactionHistory, Written, check, fold_log

INPUT, OUTPUT, GROUP = "in", "out", "copiers"
TOPICS = (INPUT, OUTPUT, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
DURATION_S = 4.0
NODES = 3
SETTINGS = {"transaction.state.log.num.partitions": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    cluster: ClusterPlan
    sources: int
    outputs: int
    habits: Habits
    segment_ms: int
    """Of the output: transactions lie in several segments where it is short."""


@dataclass(slots=True, kw_only=True)
class TransactionReport(RunReport[TransactionPlan]):
    committed: int = 0
    not_committed: int = 0
    """Transactions that were aborted, or whose end is not known."""
    endings: int = 0
    """Transactions that a marker ended, on all replicas."""
    elections: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Why lives of clients ended."""
    late: Counter[str] = field(default_factory=Counter)
    """Answers to requests that arrived late."""
    late_answers: int = 0


def draw_plan(random: Random, duration_s: float = DURATION_S, *, of_sites: bool = False) -> TransactionPlan:
    """`of_sites`: also power cuts of all nodes and beside pauses, lost disks and stalled event loops."""
    profile: Profile = random.choice(("sqlite", "zookeeper"))
    faults = [*cluster_faults.OF_ONE_NODE, *cluster_faults.BETWEEN_NODES, *cluster_faults.OF_POWER]
    if profile == "zookeeper":
        faults += cluster_faults.CUTS
    cluster = ClusterPlan(
        nodes=NODES,
        profile=profile,
        flush=random.choice(("ack", "os")),
        partitions=0,
        replicas=NODES,
        session_ms=random.choice((1500, 3000)),
        moves=False,
        duration_s=duration_s,
        producers=(ProducerKind(acks=-1, idempotent=True, depth=random.choice((1, 3)), pause_s=0.5),),
        allowed_faults=(
            *random.sample(faults, random.randint(2, 6)),
            *(random.sample(cluster_faults.OF_SITES, 2) if of_sites else ()),
        ),
        lag_ms=random.choice((1_000, 10_000)),
    )
    return TransactionPlan(
        cluster=cluster,
        sources=random.choice((1, 2, 2)),
        outputs=random.choice((2, 3)),
        habits=Habits(aborts=random.choice((32, 32, 6)), deaths=random.choice((40, 15, 1000))),
        segment_ms=random.choice((100, 1_000, 604_800_000)),
    )


class TransactionRun:
    def __init__(self, simulation: Simulation, plan: TransactionPlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.transactions = TransactionHistory(clock=lambda: int(simulation.loop.time() * 1e9))
        self.history = History(clock=self.transactions.tick)
        """Of the input."""
        self.cluster = SimCluster(simulation, plan.cluster, busy_topics=TOPICS, settings=SETTINGS)
        self.faults = self.cluster.faults
        self.invariants = TransactionInvariants(
            self.cluster.nodes, simulation.loop, lambda: self.cluster.invariants.view, output=OUTPUT
        )
        self.sources = [self._target(INPUT, index, plan.sources) for index in range(plan.sources)]
        self.outputs = [self._target(OUTPUT, index, plan.outputs) for index in range(plan.outputs)]
        self.late = LateRequests(simulation.random_for("late requests"))
        self.producers = [self._producer(target) for target in self.sources]
        self.copiers = [self._copier(target) for target in self.sources]
        self.readers = [self._reader(target) for target in self.outputs]
        self.watchers = [self._watcher(target) for target in self.sources]

    # -- the parts ----------------------------------------------------------------------------------------

    def _target(self, topic: str, index: int, partitions: int) -> LeaderTarget:
        return LeaderTarget(
            host="",
            port=PORT,
            topic=topic,
            partitions=partitions,
            index=index,
            addresses=self.cluster.addresses,
        )

    def _producer(self, target: LeaderTarget) -> SimProducer:
        (kind,) = self.plan.cluster.producers
        name = f"p{target.index}"
        random = self.simulation.random_for(f"producer {name}")
        return SimProducer(
            self.cluster.world, target, self.history, random, name=name, kind=kind, durable=True
        )

    def _copier(self, target: LeaderTarget) -> Copier:
        surroundings = Surroundings(
            world=self.cluster.world,
            addresses=self.cluster.addresses,
            history=self.transactions,
            late=self.late,
            outputs=self.outputs,
            group_id=GROUP,
            habits=self.plan.habits,
        )
        name = f"copier-{target.index}"
        return Copier(surroundings, target, self.simulation.random_for(name), name=name)

    def _reader(self, target: LeaderTarget) -> CommittedReader:
        name = f"reader-{target.index}"
        random = self.simulation.random_for(name)
        return CommittedReader(self.cluster.world, target, self.transactions, random, name=name)

    def _watcher(self, target: LeaderTarget) -> OffsetWatcher:
        return OffsetWatcher(
            self.cluster.world,
            self.cluster.addresses,
            target.partition(target.index),
            self.transactions,
            self.simulation.random_for(f"watcher-{target.index}"),
            group_id=GROUP,
        )

    # -- the run ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        self.cluster.invariants.check()
        self.invariants.check()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:

            def start(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                return group.create_task(coroutine, name=name)

            supervisors = [start(node.supervise(), "supervisor") for node in self.cluster.nodes]
            self.simulation.loop.after_step = self.check
            for node in self.cluster.nodes:
                await node.wait_until_serving()
            await self._create_topics()
            producing = [start(each.run(), each.name) for each in self.producers]
            copying = [start(each.run(), each.name) for each in self.copiers]
            reading = [start(each.run(), each.name) for each in self.readers]
            reading += [start(each.run(), "watcher") for each in self.watchers]
            await self.cluster.until(self._has_begun, "the first transaction is committed", self._state)
            await self.faults.run(self.plan.cluster.duration_s)
            await self._finish(producing, copying)
            inputs, outputs = await self._final_logs()
            for task in (*reading, *supervisors):
                task.cancel()
        self._judge(inputs, outputs)

    async def _create_topics(self) -> None:
        flush = {"headrace.flush": self.plan.cluster.flush}
        await self.cluster.create_topic(INPUT, self.plan.sources, flush)
        configs = {**flush, "segment.ms": str(self.plan.segment_ms)}
        await self.cluster.create_topic(OUTPUT, self.plan.outputs, configs)

    def _has_begun(self) -> bool:
        return any(each.committed_at is not None for each in self.transactions.transactions.values())

    def _state(self) -> str:
        topics = self.cluster.invariants.view.topics
        states = {name: topics[name].partitions for name in TOPICS if name in topics}
        up = [node.broker is not None for node in self.cluster.nodes]
        clients = [each.progress for each in self.copiers]
        clients += [each.progress for each in self.readers] + [each.progress for each in self.watchers]
        return f"up {up}, clients {clients}, {states}"

    # -- the end ------------------------------------------------------------------------------------------

    async def _finish(self, producing: list[asyncio.Task[None]], copying: list[asyncio.Task[None]]) -> None:
        self.cluster.start_nodes_with_a_broken_disk_again()
        for producer in self.producers:
            producer.stopping = True
        await self._wait_for(producing)
        for copier, source in zip(self.copiers, self.sources, strict=True):
            copier.finish(await self._end_of(source))
        await self._wait_for(copying)
        await self.late.all_answered()
        await self.cluster.until(
            lambda: self.cluster.all_in_sync(*TOPICS), "all replicas are in sync again", self._state
        )
        for reader, output in zip(self.readers, self.outputs, strict=True):
            await self._until_read(reader, await self._end_of(output))
        for watcher, copier in zip(self.watchers, self.copiers, strict=True):
            await self._until_committed(watcher, copier)

    async def _until_read(self, reader: CommittedReader, end: int) -> None:
        goal = f"{reader.name}, at {reader.position}, reads up to {end}"
        await self.cluster.until(lambda: reader.position >= end, goal, self._state)

    async def _until_committed(self, watcher: OffsetWatcher, copier: Copier) -> None:
        goal = f"{copier.name} has committed {copier.goal}"
        await self.cluster.until(lambda: watcher.offset == copier.goal, goal, lambda: watcher.offset)

    async def _wait_for(self, tasks: list[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=PROGRESS_S)
        if late:
            names = [task.get_name() for task in late]
            raise BrokenPromise(
                f"no progress within {PROGRESS_S} s after the faults: {names}, {self._state()}"
            )

    async def _end_of(self, target: LeaderTarget) -> int:
        async def ask() -> int:
            connection = await target.connect(self.cluster.world, "final")
            try:
                return await list_offset(connection, target, target.index, LATEST)
            finally:
                connection.abort()

        end: int = await self.cluster.retry(ask, "the end of a log is known")
        return end

    async def _final_logs(
        self,
    ) -> tuple[dict[TopicPartition, list[Written]], dict[TopicPartition, list[Written]]]:
        found: tuple[dict[TopicPartition, list[Written]], ...] = ({}, {})
        for logs, targets in zip(found, (self.sources, self.outputs), strict=True):
            for target in targets:
                name = target.partition(target.index)
                logs[name] = fold_log(await self.cluster.retry(partial(self._raw, target), f"{name} is read"))
        return found[0], found[1]

    async def _raw(self, target: LeaderTarget) -> list[memoryview]:
        """Every batch, read as uncommitted."""
        name, position, found = target.partition(target.index), 0, list[memoryview]()
        end = await self._end_of(target)
        connection = await target.connect(self.cluster.world, "final")
        try:
            while position < end:
                fields = wire.fetch_fields(name, position, 1 << 20, committed=False)
                reply = await connection.call(ApiKey.FETCH, fields, version=wire.FETCH_VERSION)
                if wire.code_of_fetch(reply) is not ErrorCode.none:
                    raise TryAgain(wire.code_of_fetch(reply).name)
                data, at = memoryview(bytes(reply.responses[0].partitions[0].records or b"")), 0
                if not data:
                    raise BrokenPromise(f"nothing to read at {position} of {name}, below {end}")
                while at < len(data):
                    header = read_header(data, at)
                    found.append(data[at : at + header.size])
                    at += header.size
                    position = header.next_offset
        finally:
            connection.abort()
        return found

    def _judge(
        self, inputs: Mapping[TopicPartition, list[Written]], outputs: Mapping[TopicPartition, list[Written]]
    ) -> None:
        self.cluster.check_that_no_node_ended_itself()
        final = {
            name: FinalLog(records=[(each.offset, each.value) for each in log])
            for name, log in inputs.items()
        }
        committed = {
            name: FinalLog(
                records=[(each.offset, each.value) for each in log if each.committed], gaps_allowed=True
            )
            for name, log in outputs.items()
        }
        values = {name: [each.value for each in log] for name, log in inputs.items()}
        operations = [*self.history.operations(final), *self.transactions.operations()]
        operations.sort(key=lambda operation: operation.invoked_at)
        export(f"transactions-{self.simulation.seed}", operations, {**final, **committed})
        anomalies = [
            *check_sends(self.history, final),
            *check(self.transactions, values, outputs),
            *invalid(analyze(operations, {**final, **committed})),
        ]
        if anomalies:
            raise BrokenPromise("; ".join(str(anomaly) for anomaly in anomalies[:5]))


def run_seed(
    seed: int,
    *,
    duration_s: float = DURATION_S,
    of_sites: bool = False,
    plan: TransactionPlan | None = None,
) -> TransactionReport:
    plan = plan or draw_plan(Random(f"transaction plan {seed}"), duration_s, of_sites=of_sites)
    report = TransactionReport(seed=seed, plan=plan)
    run = carry_out(report, lambda simulation: TransactionRun(simulation, plan))
    transactions = run.transactions.transactions.values()
    report.committed = sum(each.committed_at is not None for each in transactions)
    report.not_committed = len(transactions) - report.committed
    report.records_read = sum(len(read.records) for read in run.transactions.reads)
    report.endings = run.invariants.endings
    report.starts = sum(node.starts for node in run.cluster.nodes)
    report.elections = run.cluster.invariants.elections
    for copier in run.copiers:
        report.ends += copier.ends
    report.late = run.late.replies
    report.late_answers = run.late.replies.total()
    return report
