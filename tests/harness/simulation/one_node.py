# SPDX-License-Identifier: Apache-2.0
"""The simulation of one node: the real broker under seeded faults, with producers, consumers and deletions.

`run_seed` raises when anything promised was broken; the same seed gives the same run. What is promised
depends on the flush policy drawn. Read next: faults.py, producer.py, consumer.py, tests/harness/history.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from headrace.broker.partition.partition import Partition
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.config import NodeConfig, load_config
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.testing.simworld import DATA_DIRECTORY, Simulation
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.history import FinalLog, History, check
from tests.harness.jepsen.edn import export
from tests.harness.simulation import faults
from tests.harness.simulation.clients import (
    EARLIEST,
    LATEST,
    BrokenPromise,
    Target,
    TryAgain,
    connect,
    list_offset,
)
from tests.harness.simulation.consumer import SimConsumer, fetch_all
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.producer import ProducerKind, SimProducer
from tests.harness.simulation.run import RunReport, carry_out

HOST, PORT, TOPIC = "127.0.0.1", 9092, "topic"
DURATION_S = 6.0
PROGRESS_S = 30
"""After the faults every producer gets home within this much virtual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a seed stands for."""

    flush: str
    allowed_faults: tuple[str, ...]
    partitions: int
    topic_configs: Mapping[str, str]
    deletes: bool
    retention: bool
    topic_churn: bool
    """Other topics are created, written to and deleted meanwhile."""
    duration_s: float
    producers: tuple[ProducerKind, ...]
    consumers: int

    @property
    def log_start_is_fixed(self) -> bool:
        return not self.deletes and not self.retention

    def durable(self, kind: ProducerKind) -> bool:
        """What the README promises: acks=all under `ack` always; any reply while the page cache survives."""
        return kind.acks == -1 or (kind.acks == 1 and "power_cut" not in self.allowed_faults)


def draw_plan(random: Random, duration_s: float = DURATION_S) -> Plan:
    flush = random.choice(("ack", "ack", "ack", "interval", "os"))
    retention = random.random() < 0.2
    configs = {
        "headrace.flush": flush,
        "segment.ms": str(random.choice((100, 1000, 604_800_000))),
        "index.interval.bytes": str(random.choice((0, 100, 4096))),
        "file.delete.delay.ms": str(random.choice((0, 1000))),
    }
    if retention:
        configs["retention.ms"] = str(random.choice((500, 3000)))
    idempotent = ProducerKind(acks=-1, idempotent=True, depth=random.choice((1, 3, 5)))
    others = [ProducerKind(acks=acks, depth=random.choice((1, 2, 8))) for acks in (-1, 1, 0)]
    return Plan(
        flush=flush,
        allowed_faults=faults.ALL if flush == "ack" else faults.HARMLESS_TO_THE_PAGE_CACHE,
        partitions=random.randint(1, 3),
        topic_configs=configs,
        deletes=random.random() < 0.3,
        retention=retention,
        topic_churn=random.random() < 0.3,
        duration_s=duration_s,
        producers=(idempotent, *random.sample(others, random.randint(0, 2))),
        consumers=random.randint(1, 2),
    )


class Invariants:
    """What must hold after every single step, on the node's own state."""

    def __init__(self, node: SimNode, plan: Plan) -> None:
        self._node = node
        self._plan = plan
        self._seen: dict[Partition, tuple[int, int]] = {}

    def check(self) -> None:
        broker = self._node.broker
        if broker is None:
            return
        for partition in broker.partitions.all():
            if partition.online:
                self._check_partition(partition)

    def _check_partition(self, partition: Partition) -> None:
        start, high_watermark, end = (
            partition.log_start_offset,
            partition.high_watermark,
            partition.log_end_offset,
        )
        name = partition.topic_partition
        if not start <= high_watermark <= end:
            raise BrokenPromise(f"{name}: log start {start}, high watermark {high_watermark}, log end {end}")
        last_start, last_high_watermark = self._seen.get(partition, (0, 0))
        if high_watermark < last_high_watermark:
            raise BrokenPromise(f"{name}: the high watermark went back to {high_watermark} (R14)")
        if start < last_start:
            raise BrokenPromise(f"{name}: the log start went back to {start} from {last_start}")
        if self._plan.flush == "ack" and high_watermark > partition.flushed_offset:
            raise BrokenPromise(
                f"{name}: high watermark {high_watermark} over bytes not synced, "
                f"which begin at {partition.flushed_offset} (R23)"
            )
        self._seen[partition] = (start, high_watermark)


class OneNodeRun:
    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.random = simulation.random_for("scenario")
        self.history = History(clock=lambda: int(simulation.loop.time() * 1e9))
        self.target = Target(host=HOST, port=PORT, topic=TOPIC, partitions=plan.partitions)
        self.world = simulation.start_process("clients")
        state = MemoryState(simulation.start_process("store"))
        self.node = SimNode(simulation, node_config(), partial(MemoryStore, state))
        self.faults = faults.Faults(
            self.node, simulation.network, simulation.random_for("faults"), plan.allowed_faults
        )
        self.producers = [self._producer(number, kind) for number, kind in enumerate(plan.producers)]
        self._deleted_below = [0] * plan.partitions
        self._churned = 0
        self.consumers = [self._consumer(number) for number in range(plan.consumers)]

    def _producer(self, number: int, kind: ProducerKind) -> SimProducer:
        return SimProducer(
            self.world,
            self.target,
            self.history,
            self.simulation.random_for(f"producer {number}"),
            name=f"p{number}",
            kind=kind,
            durable=self.plan.durable(kind),
        )

    def _consumer(self, number: int) -> SimConsumer:
        return SimConsumer(
            self.world,
            self.target,
            self.history,
            self.simulation.random_for(f"consumer {number}"),
            name=f"c{number}",
            slow=self.random.random() < 0.3,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            supervisor = group.create_task(self.node.supervise())
            await self._create_topic()
            self.simulation.loop.after_step = Invariants(self.node, self.plan).check
            producing = [group.create_task(producer.run()) for producer in self.producers]
            consuming = [group.create_task(consumer.run()) for consumer in self.consumers]
            bothering = [
                group.create_task(self._repeat(self._delete_some, wanted=self.plan.deletes)),
                group.create_task(self._repeat(self._churn_a_topic, wanted=self.plan.topic_churn)),
            ]
            await self.faults.run(self.plan.duration_s)
            await self._bring_home(producing)
            await self._end(consuming)
            for task in bothering:
                task.cancel()
            final = {
                self.target.partition(index): await self._read_all(index)
                for index in range(self.plan.partitions)
            }
            supervisor.cancel()
        self._judge(final)

    async def _create_topic(self) -> None:
        configs = [{"name": name, "value": value} for name, value in self.plan.topic_configs.items()]
        topic = {
            "name": TOPIC,
            "num_partitions": self.plan.partitions,
            "replication_factor": 1,
            "configs": configs,
        }
        await self.node.wait_until_serving()
        connection = await connect(self.world, self.target, "admin")
        reply = await connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
        connection.abort()
        if reply.topics[0].error_code is not ErrorCode.none:
            raise BrokenPromise(f"the topic was not created: {reply}")

    async def _repeat(self, act: Callable[[Connection], Awaitable[None]], *, wanted: bool) -> None:
        while wanted:
            await asyncio.sleep(self.random.uniform(0.2, 2))
            try:
                connection = await connect(self.world, self.target, "admin")
                try:
                    await act(connection)
                finally:
                    connection.abort()
            except (ClientError, TryAgain, OSError):
                continue

    async def _churn_a_topic(self, connection: Connection) -> None:
        """What is on its way to the disk when its topic goes must not harm anybody."""
        self._churned += 1
        name = f"churn-{self._churned}"
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        await connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
        batch = bytes(build_batch([Record(0, self.world.clock.wall_ms(), None, b"v" * 300)]))
        data = [{"index": index, "records": batch} for index in (0, 1)]
        topics = [{"name": name, "partition_data": data}]
        await connection.call(ApiKey.PRODUCE, {"acks": 1, "timeout": 1000, "topic_data": topics}, version=8)
        await asyncio.sleep(self.random.choice((0, 0, 0.01)))
        await connection.call(ApiKey.DELETE_TOPICS, {"topic_names": [name], "timeout": 10_000}, version=3)

    async def _delete_some(self, connection: Connection) -> None:
        index = self.random.randrange(self.plan.partitions)
        first = await list_offset(connection, self.target, index, EARLIEST)
        last = await list_offset(connection, self.target, index, LATEST)
        if first < self._deleted_below[index]:
            raise BrokenPromise(f"deleted records are back: {first} < {self._deleted_below[index]}")
        partition = {"partition_index": index, "offset": self.random.randint(first, last)}
        topic = {"name": TOPIC, "partitions": [partition]}
        reply = await connection.call(ApiKey.DELETE_RECORDS, {"topics": [topic], "timeout": 10_000})
        answer = reply.topics[0].partitions[0]
        if answer.error_code is ErrorCode.none:
            self._deleted_below[index] = max(self._deleted_below[index], answer.low_watermark)

    async def _bring_home(self, producing: list[asyncio.Task[None]]) -> None:
        broker = await self.node.wait_until_serving()
        online = sum(p.online for p in broker.partitions.all() if p.topic_partition.topic == TOPIC)
        if online < self.plan.partitions and self.faults.broke_the_disk:
            self.node.kill()  # R24: the operator starts it again; a disk that was only full needs nobody
        for producer in self.producers:
            producer.stopping = True
        _, late = await asyncio.wait(producing, timeout=PROGRESS_S)
        if late:
            states = [
                f"{producer.name} ({producer.kind}): {producer.progress}" for producer in self.producers
            ]
            raise BrokenPromise(f"no progress within {PROGRESS_S} s after the faults: {states}")

    async def _end(self, consuming: list[asyncio.Task[None]]) -> None:
        for consumer in self.consumers:
            consumer.stopping = True
        await asyncio.wait(consuming)

    async def _read_all(self, index: int) -> FinalLog:
        error: Exception | None = None
        for _ in range(PROGRESS_S * 10):
            try:
                connection = await connect(self.world, self.target, "final")
                try:
                    return await self._read_log(connection, index)
                finally:
                    connection.abort()
            except (ClientError, TryAgain, OSError) as failure:
                error = failure
                await asyncio.sleep(0.1)
        raise BrokenPromise(f"{self.target.partition(index)} cannot be read after the faults: {error}")

    async def _read_log(self, connection: Connection, index: int) -> FinalLog:
        first = await list_offset(connection, self.target, index, EARLIEST)
        last = await list_offset(connection, self.target, index, LATEST)
        if first < self._deleted_below[index]:
            raise BrokenPromise(f"deleted records are back: {first} < {self._deleted_below[index]}")
        if self.plan.log_start_is_fixed and first:
            raise BrokenPromise(f"records up to {first} were deleted and nobody asked for it")
        return FinalLog(records=await fetch_all(connection, self.target, index, first, last), log_start=first)

    def _judge(self, final: Mapping[TopicPartition, FinalLog]) -> None:
        if self.node.failures and not self.faults.broke_the_disk:
            raise BrokenPromise(f"the node ended itself: {self.node.failures[0]}")
        export(f"one-node-{self.simulation.seed}", self.history.operations(final), final)
        anomalies = check(self.history, final)
        if anomalies:
            raise BrokenPromise("; ".join(str(anomaly) for anomaly in anomalies[:5]))


def node_config() -> NodeConfig:
    settings = {
        "log.dirs": str(DATA_DIRECTORY),
        "listeners": f"PLAINTEXT://{HOST}:{PORT}",
        "log.retention.check.interval.ms": "700",
        "headrace.flush.interval.ms": "300",
        "headrace.metrics.port": "-1",
        "headrace.disk.reserve.bytes": "500",
    }
    return load_config(None, settings, None)


def run_seed(seed: int, *, duration_s: float = DURATION_S) -> RunReport[Plan]:
    plan = draw_plan(Random(f"plan {seed}"), duration_s)
    report = RunReport(seed=seed, plan=plan)
    run = carry_out(report, lambda simulation: OneNodeRun(simulation, plan))
    report.starts = run.node.starts
    return report
