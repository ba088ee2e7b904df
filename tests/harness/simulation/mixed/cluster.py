# SPDX-License-Identifier: Apache-2.0
"""The mixed simulation: all faults, beside retention, compaction, scrubs, changes and a replaced node.

Times full of faults alternate with long ones without, in which logs age. `run_seed` raises when anything
promised was broken; the same seed gives the same run. Read next: plan.py, deletion.py,
keyed_logs.py, end_state.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol

from headrace.testing.simworld import Simulation
from headrace.types import TopicPartition
from tests.harness.history import FinalLog, History, check
from tests.harness.jepsen.edn import export
from tests.harness.simulation.clients import EARLIEST, LATEST, BrokenPromise, list_offset
from tests.harness.simulation.cluster import PROGRESS_S, SimCluster
from tests.harness.simulation.cluster_plan import PORT
from tests.harness.simulation.committer import SimCommitter
from tests.harness.simulation.consumer import SimConsumer, fetch_all
from tests.harness.simulation.mixed.changes import ChangeWriter, RuleWriter, TopicWriter
from tests.harness.simulation.mixed.clocks import ClockWatch
from tests.harness.simulation.mixed.damage import damage_a_file
from tests.harness.simulation.mixed.deletion import DeletionWatch
from tests.harness.simulation.mixed.end_state import difference, ignorant, leftovers
from tests.harness.simulation.mixed.keyed_logs import CompactionWatch
from tests.harness.simulation.mixed.membership import Replacement
from tests.harness.simulation.mixed.plan import SHORT_HOURS, MixedPlan, draw_plan
from tests.harness.simulation.producer import SimProducer
from tests.harness.simulation.routing import LeaderTarget
from tests.harness.simulation.run import RunReport, carry_out

KEPT, RETAINED, KEYED, OFFSETS = "kept", "retained", "keyed", "__consumer_offsets"
TOPICS = (KEPT, RETAINED, KEYED, OFFSETS)
_KEYS = 5
_LOOK_S = 10.0
_STEPS_PER_HOUR = 4_000_000
_DAY_MS = 86_400_000


class _Client(Protocol):
    stopping: bool
    awake: asyncio.Event
    progress: str


@dataclass(slots=True, kw_only=True)
class MixedReport(RunReport[MixedPlan]):
    commits: int = 0
    elections: int = 0
    deleted: int = 0
    compacted: int = 0
    changes: int = 0
    replaced: int = 0


class MixedRun:
    def __init__(self, simulation: Simulation, plan: MixedPlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.random = simulation.random_for("scenario")
        self.history = History(clock=lambda: int(simulation.loop.time() * 1e9))
        self.keyed_history = History(clock=self.history.tick)
        clocks = ClockWatch(simulation.loop)
        self.clocks = clocks
        self.deletion = DeletionWatch(
            clocks, self._true_ms, retention_ms=plan.retention_ms, retention_bytes=plan.retention_bytes
        )
        self.compaction = CompactionWatch(clocks, self._true_ms, tombstones_kept_ms=plan.tombstones_kept_ms)
        self.cluster = SimCluster(
            simulation,
            plan.cluster,
            busy_topics=TOPICS,
            settings=plan.settings,
            damage_file=self._damage_file,
            watched={RETAINED: self.deletion, KEYED: self.compaction},
        )
        self._node_on = {node.machine.name: node for node in self.cluster.nodes}
        self.faults = self.cluster.faults
        targets = {name: self._target(name) for name in (KEPT, RETAINED, KEYED)}
        self.read = {name: targets[name] for name in (KEPT, RETAINED)}
        self.producers = [self._producer(target) for target in targets.values()]
        self.consumers = [self._consumer(target) for target in self.read.values()]
        self.committer = SimCommitter(
            self.cluster.world,
            self.cluster.addresses,
            simulation.random_for("committer"),
            group_id="group",
            topic=KEPT,
        )
        self.rules = RuleWriter(self.cluster, simulation.random_for("rules"))
        self.topics = TopicWriter(
            self.cluster, simulation.random_for("topics"), configs={"headrace.flush": plan.cluster.flush}
        )
        self.replacement: Replacement | None = None

    # -- the parts --------------------------------------------------------------------------------------

    def _true_ms(self) -> int:
        return self.cluster.world.machine.wall_ms()

    def _target(self, topic: str) -> LeaderTarget:
        addresses = self.cluster.addresses
        return LeaderTarget(host="", port=PORT, topic=topic, partitions=1, index=0, addresses=addresses)

    def _producer(self, target: LeaderTarget) -> SimProducer:
        (kind,) = self.plan.cluster.producers
        name, is_keyed = f"p-{target.topic}", target.topic == KEYED
        return SimProducer(
            self.cluster.world,
            target,
            self.keyed_history if is_keyed else self.history,
            self.simulation.random_for(f"producer {name}"),
            name=name,
            kind=kind,
            durable=True,
            keys=_KEYS if is_keyed else 0,
        )

    def _consumer(self, target: LeaderTarget) -> SimConsumer:
        name = f"c-{target.topic}"
        random = self.simulation.random_for(f"consumer {name}")
        return SimConsumer(
            self.cluster.world, target, self.history, random, name=name, slow=False, pause_s=0.5
        )

    @property
    def _changers(self) -> list[ChangeWriter]:
        wanted = ((self.rules, self.plan.clients_change_rules), (self.topics, self.plan.topics_come_and_go))
        return [writer for writer, runs in wanted if runs]

    @property
    def _writers(self) -> list[_Client]:
        return [*self.producers, *self._changers, self.committer]

    def _damage_file(self, node_index: int) -> bool:
        node = self.cluster.nodes[node_index]
        done = damage_a_file(node, self.random, (KEPT, RETAINED))
        if done:
            self.simulation.loop.note(done)
            self.cluster.invariants.distrust(node)
        return bool(done)

    # -- the run ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        process = self.simulation.loop.stepped
        node = None if process is None else self._node_on.get(process.host)
        if node is not None:
            self.clocks.look(node)
        self.cluster.invariants.check()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:

            def start(coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
                return group.create_task(coroutine, name=name)

            nodes = self.cluster.nodes[:-1] if self.plan.replaces_node else self.cluster.nodes
            supervisors = [start(node.supervise(), "supervisor") for node in nodes]
            self.simulation.loop.after_step = self.check
            for node in nodes:
                await node.wait_until_serving()
            await self._create_topics()
            producing = [start(each.run(), each.name) for each in self.producers]
            producing.append(start(self.committer.run(), "committer"))
            consuming = [start(each.run(), each.name) for each in self.consumers]
            changing = [start(each.run(), type(each).__name__) for each in self._changers]
            looking = start(self._look_at_logs(), "look at logs")
            await self.cluster.until(lambda: self.committer.commits > 0, "the first offset is committed")
            if self.plan.replaces_node:
                spare = self.cluster.nodes[-1]
                self.replacement = Replacement(
                    self.cluster,
                    self.simulation.random_for("replacement"),
                    new=len(self.cluster.nodes) - 1,
                    old=self.random.randrange(len(nodes)),
                    start=lambda: supervisors.append(start(spare.supervise(), "supervisor")),
                )
                changing.append(start(self.replacement.run(), "replacement"))
            for rest_s in self.plan.rests_s:
                await self.faults.run(self.plan.cluster.duration_s)
                await self._rest(rest_s)
            await self.faults.run(self.plan.cluster.duration_s)
            self.cluster.start_nodes_with_a_broken_disk_again()
            final = await self._finish([*producing, *changing], consuming)
            for task in (looking, *supervisors):
                task.cancel()
        self._judge(final)

    async def _create_topics(self) -> None:
        flush, segment = {"headrace.flush": self.plan.cluster.flush}, str(self.plan.segment_ms)
        common = {**flush, "segment.ms": segment, "file.delete.delay.ms": "1000"}
        await self.cluster.create_topic(KEPT, 1, {**flush, "segment.ms": segment})
        limits = {
            "retention.ms": str(self.plan.retention_ms),
            "retention.bytes": str(self.plan.retention_bytes),
        }
        await self.cluster.create_topic(RETAINED, 1, {**common, **limits})
        compact = {"cleanup.policy": "compact", "delete.retention.ms": str(self.plan.tombstones_kept_ms)}
        await self.cluster.create_topic(KEYED, 1, {**common, **compact})

    async def _rest(self, seconds: float) -> None:
        """Clients do nothing and all heals; now and then a clock goes wrong by a day."""
        self.cluster.start_nodes_with_a_broken_disk_again()
        self._let_rest(resting=True)
        began = asyncio.get_running_loop().time()
        await self._all_healed()
        while (left_s := began + seconds - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, self.random.uniform(0.1, 0.6) * seconds))
            if self.random.random() < 0.3:
                victim = self.random.choice(self.cluster.nodes)
                victim.machine.wall_jump_ms = self.random.choice((_DAY_MS, -_DAY_MS // 48, 0))
        self._let_rest(resting=False)

    def _let_rest(self, *, resting: bool) -> None:
        clients: list[_Client] = [*self._writers, *self.consumers]
        for each in clients:
            if resting:
                each.awake.clear()
            else:
                each.awake.set()

    async def _all_healed(self) -> None:
        """Damage is found by a scrub at the latest, and the replica is fetched again."""
        await self._until(lambda: self.cluster.all_in_sync(*TOPICS), "all replicas are in sync again")
        different = partial(difference, self.cluster, (KEPT, RETAINED))
        within_s = 2 * max(self.plan.rests_s) + PROGRESS_S
        await self.cluster.until(
            lambda: not different(), "all replicas are alike", different, within_s=within_s
        )
        self.cluster.invariants.trust_all()

    async def _look_at_logs(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.5, _LOOK_S))
            for node in self.cluster.nodes:
                partition = None if node.broker is None else node.broker.partitions.get(KEYED, 0)
                if partition is not None and partition.online:
                    self.compaction.look(partition, node)

    async def _until(self, holds: Any, goal: str) -> None:
        await self.cluster.until(holds, goal, self._state)

    def _state(self) -> str:
        topics = self.cluster.invariants.view.topics
        states = {name: topics[name].partitions for name in TOPICS if name in topics}
        up = [node.broker is not None for node in self.cluster.nodes]
        told = [each.progress for each in self._writers]
        return f"up {up}, clients {told}, {states}"

    # -- the end ----------------------------------------------------------------------------------------

    async def _finish(
        self, working: list[asyncio.Task[None]], consuming: list[asyncio.Task[None]]
    ) -> dict[TopicPartition, FinalLog]:
        for each in self._writers:
            each.stopping = True
        _, late = await asyncio.wait(working, timeout=PROGRESS_S)
        if late:
            names = [task.get_name() for task in late]
            raise BrokenPromise(f"no progress within {PROGRESS_S} s after: {names}, {self._state()}")
        await self._all_healed()
        for consumer in self.consumers:
            consumer.stopping = True
        await asyncio.wait(consuming)
        await self._until(
            lambda: not ignorant(self.cluster, self.rules), "all nodes know all ACLs and quotas"
        )
        left = partial(leftovers, self.cluster)
        await self.cluster.until(lambda: not left(), "deleted topics leave the disks", left)
        final = {}
        for target in self.read.values():
            name = target.partition(0)
            final[name] = await self.cluster.retry(partial(self._final_log, target), f"{name} is read")
        return final

    async def _final_log(self, target: LeaderTarget) -> FinalLog:
        connection = await target.connect(self.cluster.world, "final")
        try:
            first = await list_offset(connection, target, 0, EARLIEST)
            last = await list_offset(connection, target, 0, LATEST)
            if first and target.topic == KEPT:
                raise BrokenPromise(f"records up to {first} were deleted and nobody asked for it")
            records = await fetch_all(connection, target, 0, first, last)
            return FinalLog(records=records, log_start=first)
        finally:
            connection.abort()

    def _judge(self, final: Mapping[TopicPartition, FinalLog]) -> None:
        self.cluster.check_that_no_node_ended_itself()
        self.compaction.check_acknowledged(self.keyed_history)
        export(f"mixed-{self.simulation.seed}", self.history.operations(final), final)
        anomalies = check(self.history, final)
        if anomalies:
            raise BrokenPromise("; ".join(str(anomaly) for anomaly in anomalies[:5]))


def run_seed(seed: int, *, hours: float = SHORT_HOURS, plan: MixedPlan | None = None) -> MixedReport:
    plan = plan or draw_plan(Random(f"mixed plan {seed}"), hours)
    report = MixedReport(seed=seed, plan=plan)
    max_steps = int(_STEPS_PER_HOUR * max(1.0, hours))
    run = carry_out(report, lambda simulation: MixedRun(simulation, plan), max_steps=max_steps)
    report.commits = run.committer.commits
    report.starts = sum(node.starts for node in run.cluster.nodes)
    report.elections = run.cluster.invariants.elections
    report.deleted, report.compacted = run.deletion.deleted, run.compaction.compacted
    report.changes = run.rules.changes + run.topics.changes
    report.replaced = int(run.replacement is not None and run.replacement.done)
    return report
