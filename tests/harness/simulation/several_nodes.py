# SPDX-License-Identifier: Apache-2.0
"""The simulation of a cluster: three to five nodes of the real broker code and one store under seeded faults.

`run_seed` raises when anything promised was broken; the same seed gives the same run. Read next: cluster.py,
cluster_faults.py, cluster_invariants.py, routing.py, one_node.py (the same for a single node).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from headrace.client.errors import ClientError
from headrace.testing.simworld import Simulation
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from tests.harness.history import FinalLog, History, check
from tests.harness.jepsen.edn import export
from tests.harness.simulation.clients import (
    EARLIEST,
    LATEST,
    BrokenPromise,
    SimConnection,
    TryAgain,
    list_offset,
)
from tests.harness.simulation.cluster import PROGRESS_S, SimCluster
from tests.harness.simulation.cluster_plan import DURATION_S, PORT, ClusterPlan, draw_plan
from tests.harness.simulation.committer import SimCommitter
from tests.harness.simulation.consumer import SimConsumer, fetch_all
from tests.harness.simulation.producer import ProducerKind, SimProducer
from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.run import RunReport, carry_out

TOPIC = "topic"


@dataclass(slots=True, kw_only=True)
class ClusterReport(RunReport[ClusterPlan]):
    commits: int = 0
    elections: int = 0


class ClusterRun:
    def __init__(
        self, simulation: Simulation, plan: ClusterPlan, settings: Mapping[str, str] | None = None
    ) -> None:
        self.simulation = simulation
        self.plan = plan
        self.random = simulation.random_for("scenario")
        self.history = History(clock=lambda: int(simulation.loop.time() * 1e9))
        self.cluster = cluster = SimCluster(simulation, plan, busy_topics=(TOPIC,), settings=settings)
        self.world, self.store, self.nodes = cluster.world, cluster.store, cluster.nodes
        self.addresses, self.invariants, self.faults = cluster.addresses, cluster.invariants, cluster.faults
        self.targets = [self._target(index) for index in range(plan.partitions)]
        self.producers = [
            self._producer(target, number, kind)
            for target in self.targets
            for number, kind in enumerate(plan.producers)
        ]
        self.consumers = [self._consumer(target) for target in self.targets]
        self.committer = SimCommitter(
            self.world,
            self.addresses,
            simulation.random_for("committer"),
            group_id="group",
            topic=TOPIC,
        )

    # -- the parts ------------------------------------------------------------------------------------

    def _target(self, index: int) -> LeaderTarget:
        return LeaderTarget(
            host="",
            port=PORT,
            topic=TOPIC,
            partitions=self.plan.partitions,
            index=index,
            addresses=self.addresses,
        )

    def _producer(self, target: LeaderTarget, number: int, kind: ProducerKind) -> SimProducer:
        name = f"p{number}-{target.index}"
        random = self.simulation.random_for(f"producer {name}")
        return SimProducer(
            self.world, target, self.history, random, name=name, kind=kind, durable=kind.acks == -1
        )

    def _consumer(self, target: LeaderTarget) -> SimConsumer:
        name = f"c{target.index}"
        random = self.simulation.random_for(f"consumer {name}")
        return SimConsumer(self.world, target, self.history, random, name=name, slow=False, pause_s=0.5)

    # -- the run ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            supervisors = [group.create_task(node.supervise()) for node in self.nodes]
            self.simulation.loop.after_step = self.invariants.check
            for node in self.nodes:
                await node.wait_until_serving()
            await self._create_topic()
            working = [group.create_task(each.run(), name=each.name) for each in self.producers]
            working.append(group.create_task(self.committer.run(), name="committer"))
            consuming = [group.create_task(consumer.run()) for consumer in self.consumers]
            moving = group.create_task(self._ask_for_moves())
            await self._until(lambda: self.committer.commits > 0, "the first offset is committed")
            await self.faults.run(self.plan.duration_s)
            moving.cancel()
            final = await self._end(working, consuming)
            for supervisor in supervisors:
                supervisor.cancel()
        self._judge(final)

    async def _create_topic(self) -> None:
        await self.cluster.create_topic(TOPIC, self.plan.partitions, {"headrace.flush": self.plan.flush})

    async def _ask_for_moves(self) -> None:
        while self.plan.moves:
            await asyncio.sleep(self.random.uniform(0.5, 2))
            act = self.random.choice((self._elect, self._reassign))
            try:
                await self.cluster.with_any(act)
            except (ClientError, TryAgain, OSError):
                continue

    async def _elect(self, connection: SimConnection) -> None:
        fields = {"election_type": 0, "topic_partitions": None, "timeout": 5_000}
        await connection.call(ApiKey.ELECT_LEADERS, fields)

    async def _reassign(self, connection: SimConnection) -> None:
        index = self.random.randrange(self.plan.partitions)
        replicas = self.random.sample(range(self.plan.nodes), self.plan.replicas)
        partition = {"partition_index": index, "replicas": replicas}
        fields = {"timeout": 5_000, "topics": [{"name": TOPIC, "partitions": [partition]}]}
        await connection.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)

    async def _until(self, holds: Callable[[], bool], goal: str) -> None:
        await self.cluster.until(holds, goal, self._state)

    def _state(self) -> str:
        topic = self.invariants.view.topics.get(TOPIC)
        up = [node.broker is not None for node in self.nodes]
        return f"up {up}, committer {self.committer.progress}, {topic.partitions if topic else 'no topic'}"

    # -- the end ----------------------------------------------------------------------------------------

    async def _end(
        self, working: list[asyncio.Task[None]], consuming: list[asyncio.Task[None]]
    ) -> dict[TopicPartition, FinalLog]:
        self.cluster.start_nodes_with_a_broken_disk_again()
        self.committer.stopping = True
        for producer in self.producers:
            producer.stopping = True
        _, late = await asyncio.wait(working, timeout=PROGRESS_S)
        if late:
            problems = {each.name: each.progress for each in self.producers}
            problems["committer"] = self.committer.progress
            states = [f"{task.get_name()} after {problems[task.get_name()]}" for task in late]
            raise BrokenPromise(f"no progress within {PROGRESS_S} s after: {states}, {self._state()}")
        await self._until(
            lambda: self.cluster.all_in_sync(TOPIC, "__consumer_offsets"), "all replicas are in sync again"
        )
        for consumer in self.consumers:
            consumer.stopping = True
        await asyncio.wait(consuming)
        final = {}
        for target in self.targets:
            name = target.partition(target.index)
            final[name] = await self.cluster.retry(partial(self._read, target), f"{name} is read")
        return final

    async def _read(self, target: LeaderTarget) -> FinalLog:
        connection = await target.connect(self.world, "final")
        try:
            first = await list_offset(connection, target, target.index, EARLIEST)
            last = await list_offset(connection, target, target.index, LATEST)
            if first:
                raise BrokenPromise(f"records up to {first} were deleted and nobody asked for it")
            return FinalLog(records=await fetch_all(connection, target, target.index, first, last))
        finally:
            connection.abort()

    def _judge(self, final: Mapping[TopicPartition, FinalLog]) -> None:
        self.cluster.check_that_no_node_ended_itself()
        export(f"several-nodes-{self.simulation.seed}", self.history.operations(final), final)
        anomalies = check(self.history, final)
        if anomalies:
            raise BrokenPromise("; ".join(str(anomaly) for anomaly in anomalies[:5]))


def run_seed(seed: int, *, duration_s: float = DURATION_S, plan: ClusterPlan | None = None) -> ClusterReport:
    plan = plan or draw_plan(Random(f"cluster plan {seed}"), duration_s)
    report = ClusterReport(seed=seed, plan=plan)
    run = carry_out(report, lambda simulation: ClusterRun(simulation, plan))
    report.commits = run.committer.commits
    report.starts = sum(node.starts for node in run.nodes)
    report.elections = run.invariants.elections
    return report
