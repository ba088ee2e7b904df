# SPDX-License-Identifier: Apache-2.0
"""A simulated node with one client and every fault at hand, for scenarios that are written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.testing.simworld import Simulation, SimWorld
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.simulation import faults
from tests.harness.simulation.clients import SimConnection, Target, connect
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.one_node import HOST, PORT, node_config

PRODUCE = 0
TARGET = Target(host=HOST, port=PORT, topic="topic", partitions=1)


class Lab:
    """A node, a client, and the faults."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.clients: SimWorld = simulation.start_process("clients")
        state = MemoryState(simulation.start_process("store"))
        self.node = SimNode(simulation, node_config(), partial(MemoryStore, state))
        self.faults = faults.Faults(
            self.node, simulation.network, simulation.random_for("faults"), faults.ALL
        )
        self.connection: SimConnection

    async def start(self, configs: dict[str, str]) -> None:
        await self.node.wait_until_serving()
        await self.connect()
        settings = [{"name": name, "value": value} for name, value in configs.items()]
        topic = {"name": "topic", "num_partitions": 1, "replication_factor": 1, "configs": settings}
        await self.connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})

    async def connect(self) -> None:
        self.connection = await connect(self.clients, TARGET, "lab")

    def now(self) -> float:
        return self.simulation.loop.time()

    async def produce(self, size: int = 100) -> ErrorCode:
        records = [Record(0, self.clients.clock.wall_ms(), None, b"v" * size)]
        data = {"index": 0, "records": bytes(build_batch(records))}
        topics = [{"name": "topic", "partition_data": [data]}]
        fields = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topics}
        reply = await self.connection.call(PRODUCE, fields, version=8, timeout_ms=60_000)
        code: ErrorCode = reply.responses[0].partition_responses[0].error_code
        return code

    async def during(self, fault: str) -> asyncio.Task[None]:
        """The fault goes on while the test looks at its effect."""
        task = asyncio.ensure_future(self.faults.inject(fault))
        await asyncio.sleep(0.01)
        return task


def simulate(scenario: Callable[[Lab], Coroutine[Any, Any, None]], seed: int = 1, **configs: str) -> None:
    """Runs the scenario on a node with one topic, whose settings are given with _ for the dots."""
    with Simulation(seed) as simulation:
        lab = Lab(simulation)

        async def run() -> None:
            supervisor = asyncio.ensure_future(lab.node.supervise())
            await lab.start({name.replace("_", "."): value for name, value in configs.items()})
            assert await lab.produce() is ErrorCode.none
            await scenario(lab)
            supervisor.cancel()

        simulation.run(run())
