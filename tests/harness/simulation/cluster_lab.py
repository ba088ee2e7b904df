# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster of three with one client and every fault at hand, for schedules written by hand.

Read next: cluster_scenarios.py, several_nodes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from headrace.broker.partition.partition import Partition
from headrace.coordination.memory import Profile
from headrace.testing.simworld import ClockProfile, Simulation
from headrace.types import NO_NODE, PartitionState
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from headrace.wire.requests.replica_fetch import (
    REPLICA_FETCH_VERSION,
    ReplicaQuestion,
    read_replica_fetch_reply,
    write_replica_fetch,
)
from tests.harness.simulation.clients import (
    EARLIEST,
    LATEST,
    SimConnection,
    TryAgain,
    list_offset,
    log_in_as_node,
    open_connection,
)
from tests.harness.simulation.cluster_plan import ClusterPlan
from tests.harness.simulation.consumer import fetch_all
from tests.harness.simulation.several_nodes import TOPIC, ClusterRun


class ClusterLab(ClusterRun):
    """Nodes start when told to, and stay down when killed."""

    @property
    def state(self) -> PartitionState:
        """As the store has it."""
        return self.invariants.view.topics[TOPIC].partitions[0]

    def start(self, node_id: int) -> None:
        """Runs it once: a node that ends is not started again."""
        self._runs.append(asyncio.ensure_future(self.nodes[node_id]._run_once()))

    async def start_all(self) -> None:
        self._runs: list[asyncio.Task[None]] = []
        for node_id in range(self.plan.nodes):
            self.start(node_id)
        for node in self.nodes:
            await node.wait_until_serving()
        await self._create_topic()
        await self.until(lambda: self.state.leader != NO_NODE, "the topic has a leader")

    def end(self) -> None:
        for run in self._runs:
            run.cancel()

    async def until(self, holds: Callable[[], bool], goal: str) -> None:
        await self._until(holds, goal)

    def partition(self, node_id: int) -> Partition:
        broker = self.nodes[node_id].broker
        assert broker is not None
        partition = broker.partitions.get(TOPIC, 0)
        assert partition is not None
        return partition

    async def produce(self, value: bytes, *, acks: int = -1, node_id: int | None = None) -> ErrorCode:
        """To the leader that Metadata names, or to the node given."""
        connection = await self._connect(node_id)
        try:
            records = [Record(0, self.world.clock.wall_ms(), None, value)]
            data = {"index": 0, "records": bytes(build_batch(records))}
            topics = [{"name": TOPIC, "partition_data": [data]}]
            fields = {"transactional_id": None, "acks": acks, "timeout": 2_000, "topic_data": topics}
            reply = await connection.call(ApiKey.PRODUCE, fields, version=8, timeout_ms=10_000)
            code: ErrorCode = reply.responses[0].partition_responses[0].error_code
            return code
        finally:
            connection.abort()

    async def _connect(self, node_id: int | None) -> SimConnection:
        if node_id is None:
            return await self.targets[0].connect(self.world, "lab")
        return await open_connection(self.world, *self.addresses[node_id], "lab")

    async def fetch_as_replica(
        self,
        leader_epoch: int,
        *,
        follower: int | None = None,
        offset: int = 0,
        last_epoch: int = -1,
        node_epoch: int | None = None,
    ) -> ErrorCode:
        """What a follower is told that asks in the name of this epoch; left out: one that is in sync.

        `node_epoch`: another one than it is registered with.
        """
        if follower is None:
            follower = next(node_id for node_id in self.state.isr if node_id != self.state.leader)
        broker = self.nodes[self.state.leader].broker
        assert broker is not None
        connection = await self._connect(self.state.leader)
        await log_in_as_node(connection, follower, broker.cluster)
        topic_id = self.invariants.view.topics[TOPIC].topic_id
        question = ReplicaQuestion(0, leader_epoch, offset, last_epoch, 0, 1000)
        if node_epoch is None:
            node_epoch = self.invariants.view.nodes[follower].epoch
        request = write_replica_fetch(
            follower, node_epoch, [(topic_id, [question])], max_wait_ms=0, max_bytes=1000
        )
        frame = await connection.call_raw(ApiKey.FETCH, REPLICA_FETCH_VERSION, request, timeout_ms=5_000)
        connection.abort()
        refusal, answers = read_replica_fetch_reply(memoryview(frame))
        return ErrorCode(refusal or answers[topic_id, 0].error_code)

    async def produced(self, value: bytes) -> None:
        """As a client with retries: until it is acknowledged."""

        async def attempt() -> None:
            code = await self.produce(value)
            if code is not ErrorCode.none:
                raise TryAgain(code.name)

        await self.cluster.retry(attempt, f"{value!r} is acknowledged")

    async def read_all(self) -> list[bytes]:
        target = self.targets[0]

        async def attempt() -> list[bytes]:
            connection = await target.connect(self.world, "lab")
            try:
                first = await list_offset(connection, target, 0, EARLIEST)
                last = await list_offset(connection, target, 0, LATEST)
                return [value for _, value in await fetch_all(connection, target, 0, first, last)]
            finally:
                connection.abort()

        values: list[bytes] = await self.cluster.retry(attempt, "the topic is read")
        return values


def simulate_cluster(
    scenario: Callable[[ClusterLab], Coroutine[Any, Any, None]],
    seed: int = 1,
    *,
    nodes: int = 3,
    profile: Profile = "sqlite",
    flush: str = "os",
    lag_ms: int = 10_000,
    settings: Mapping[str, str] | None = None,
) -> None:
    plan = ClusterPlan(
        nodes=nodes,
        profile=profile,
        flush=flush,
        partitions=1,
        replicas=3,
        session_ms=3000,
        moves=False,
        duration_s=0,
        producers=(),
        allowed_faults=(),
        lag_ms=lag_ms,
    )
    with Simulation(seed, clock=ClockProfile()) as simulation:
        lab = ClusterLab(simulation, plan, settings)

        async def run() -> None:
            simulation.loop.after_step = lab.invariants.check
            await lab.start_all()
            await scenario(lab)
            lab.end()

        simulation.run(run())
