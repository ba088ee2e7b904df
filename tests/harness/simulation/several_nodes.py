"""The simulation of a cluster: three to five nodes of the real broker code and one store under seeded faults.

`run_seed` raises when anything promised was broken; the same seed gives the same run. Read next:
cluster_faults.py, cluster_invariants.py, routing.py, one_node.py (the same for a single node).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from headrace.client.errors import ClientError
from headrace.testing.simworld import Simulation
from headrace.types import NO_NODE, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.history import FinalLog, History, check
from tests.harness.simulation.clients import (
    EARLIEST,
    LATEST,
    BrokenPromise,
    SimConnection,
    TryAgain,
    list_offset,
)
from tests.harness.simulation.cluster_faults import ClusterFaults
from tests.harness.simulation.cluster_invariants import ClusterInvariants, needed_insync
from tests.harness.simulation.cluster_plan import (
    DURATION_S,
    PORT,
    ClusterPlan,
    draw_plan,
    host_of,
    node_config,
)
from tests.harness.simulation.committer import SimCommitter
from tests.harness.simulation.consumer import SimConsumer, fetch_all
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.producer import ProducerKind, SimProducer
from tests.harness.simulation.routing import Address, LeaderTarget, open_any
from tests.harness.simulation.run import carry_out
from tests.harness.simulation.store import StoreServer

TOPIC = "topic"
PROGRESS_S = 30
"""After the faults all goes on within this much virtual time: every producer gets home, all are in sync."""


@dataclass(slots=True, kw_only=True)
class ClusterReport:
    seed: int
    plan: ClusterPlan
    trace_hash: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    records_read: int = 0
    commits: int = 0
    starts: int = 0
    elections: int = 0


class ClusterRun:
    def __init__(self, simulation: Simulation, plan: ClusterPlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.random = simulation.random_for("scenario")
        self.history = History()
        self.world = simulation.start_process("clients")
        self.store = StoreServer(simulation, plan.profile)
        self.nodes = [self._node(node_id) for node_id in range(plan.nodes)]
        self.addresses: tuple[Address, ...] = tuple((host_of(node_id), PORT) for node_id in range(plan.nodes))
        self.invariants = ClusterInvariants(self.nodes, self.store, simulation.loop, flush=plan.flush)
        self.faults = ClusterFaults(
            self.nodes,
            simulation.network,
            self.store,
            simulation.random_for("faults"),
            plan.allowed_faults,
            likely_victims=self._likely_victims,
            may_lose_power=self._may_lose_power,
            may_be_damaged=self._may_be_damaged,
        )
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
        self._lost_power: set[int] = set()

    # -- the parts ------------------------------------------------------------------------------------

    def _node(self, node_id: int) -> SimNode:
        config = node_config(self.plan, node_id)
        node = SimNode(self.simulation, config, self.store.connect, machine=host_of(node_id))
        node.on_death = self.store.process_died
        return node

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

    # -- nodes that faults may hit ------------------------------------------------------------------------

    def _likely_victims(self) -> Sequence[int]:
        view = self.invariants.view
        topic = view.topics.get(TOPIC)
        leaders = [state.leader for state in topic.partitions] if topic is not None else []
        return sorted({node for node in (*leaders, view.controller_id) if node != NO_NODE})

    def _may_lose_power(self, node_id: int) -> bool:
        """Fewer than min.insync.replicas may lose at a time: the others hold what is acknowledged."""
        if self.plan.flush == "ack":
            return True
        self._forget_who_caught_up()
        for topic in self.invariants.view.topics.values():
            needed = needed_insync(topic)
            for state in topic.partitions:
                sound = {*state.isr, *state.elr} - self._lost_power - {node_id}
                if needed > 1 and len(state.replicas) - len(sound) >= needed:
                    return False
        self._lost_power.add(node_id)
        return True

    def _may_be_damaged(self) -> bool:
        """One log at a time: all others hold everything, and the last one was fetched anew."""
        view = self.invariants.view
        brokers = [node.broker for node in self.nodes]
        return (
            all({*s.isr} == {*s.replicas} for topic in view.topics.values() for s in topic.partitions)
            and not any(node.offline for node in view.nodes.values())
            and all(broker is not None and not broker.partitions.damaged() for broker in brokers)
        )

    def _forget_who_caught_up(self) -> None:
        topics = self.invariants.view.topics.values()
        states = [state for topic in topics if needed_insync(topic) > 1 for state in topic.partitions]
        self._lost_power = {
            node_id
            for node_id in self._lost_power
            if self.nodes[node_id].broker is None
            or any(node_id in state.replicas and node_id not in state.isr for state in states)
        }

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
        topic = {
            "name": TOPIC,
            "num_partitions": self.plan.partitions,
            "replication_factor": self.plan.replicas,
            "configs": [{"name": "headrace.flush", "value": self.plan.flush}],
        }

        async def create(connection: SimConnection) -> None:
            reply = await connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
            code = reply.topics[0].error_code
            if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise TryAgain(f"{code.name}: {reply.topics[0].error_message}")

        await self._insist(create, "the topic is created")

    async def _ask_for_moves(self) -> None:
        while self.plan.moves:
            await asyncio.sleep(self.random.uniform(0.5, 2))
            act = self.random.choice((self._elect, self._reassign))
            try:
                await self._with_any(act)
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

    async def _with_any(self, act: Callable[[SimConnection], Awaitable[Any]]) -> Any:
        connection = await open_any(self.world, self.addresses, "admin")
        try:
            return await act(connection)
        finally:
            connection.abort()

    async def _insist(self, act: Callable[[SimConnection], Awaitable[Any]], goal: str) -> Any:
        return await self._retry(lambda: self._with_any(act), goal)

    async def _retry(self, act: Callable[[], Awaitable[Any]], goal: str) -> Any:
        problem: Exception | None = None
        deadline = asyncio.get_running_loop().time() + PROGRESS_S
        while asyncio.get_running_loop().time() < deadline:
            try:
                return await act()
            except (ClientError, TryAgain, OSError) as error:
                problem = error
                await asyncio.sleep(0.1)
        raise BrokenPromise(f"not within {PROGRESS_S} s: {goal}: {problem}")

    async def _until(self, holds: Callable[[], bool], goal: str) -> None:
        async def look() -> None:
            if not holds():
                raise TryAgain(self._state())

        await self._retry(look, goal)

    def _state(self) -> str:
        topic = self.invariants.view.topics.get(TOPIC)
        up = [node.broker is not None for node in self.nodes]
        return f"up {up}, committer {self.committer.progress}, {topic.partitions if topic else 'no topic'}"

    # -- the end ----------------------------------------------------------------------------------------

    async def _end(
        self, working: list[asyncio.Task[None]], consuming: list[asyncio.Task[None]]
    ) -> dict[TopicPartition, FinalLog]:
        self._start_nodes_with_a_broken_disk_again()
        self.committer.stopping = True
        for producer in self.producers:
            producer.stopping = True
        _, late = await asyncio.wait(working, timeout=PROGRESS_S)
        if late:
            problems = {each.name: each.progress for each in self.producers}
            problems["committer"] = self.committer.progress
            states = [f"{task.get_name()} after {problems[task.get_name()]}" for task in late]
            raise BrokenPromise(f"no progress within {PROGRESS_S} s after: {states}, {self._state()}")
        await self._until(self._all_in_sync, "all replicas are in sync again")
        for consumer in self.consumers:
            consumer.stopping = True
        await asyncio.wait(consuming)
        final = {}
        for target in self.targets:
            name = target.partition(target.index)
            final[name] = await self._retry(partial(self._read, target), f"{name} is read")
        return final

    def _start_nodes_with_a_broken_disk_again(self) -> None:
        """R24: the operator does; a disk that was only full needs nobody."""
        for number, node in enumerate(self.nodes):
            if self.faults.broke_the_disk_of(number):
                node.kill()

    def _all_in_sync(self) -> bool:
        view = self.invariants.view
        topics = [topic for topic in view.topics.values() if topic.name in (TOPIC, "__consumer_offsets")]
        states = [state for topic in topics for state in topic.partitions]
        return all(state.leader != NO_NODE and {*state.isr} == {*state.replicas} for state in states)

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
        for number, node in enumerate(self.nodes):
            if node.failures and not self.faults.broke_the_disk_of(number):
                raise BrokenPromise(f"node {number} ended itself: {node.failures[0]}")
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
