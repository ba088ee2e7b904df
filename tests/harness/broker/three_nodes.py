# SPDX-License-Identifier: Apache-2.0
"""Three whole nodes in the simulated world around one store: for what needs replicas and no process.

`on_three_nodes` runs a scenario; each node is asked by itself, nothing is retried. Read next:
simulated_node.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headrace.broker.node import start_node
from headrace.broker.partition.leader_role import LeaderRole
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simworld import Simulation
from headrace.types import PartitionState
from tests.harness.broker.simulated_node import CREATE, HOST, TOPIC, SimBroker, node_config
from tests.harness.simulation.clients import SimConnection, open_connection

NODES = (1, 2, 3)
FIRST_PORT = 9100
LONG_S = 20.0


class SimMember(SimBroker):
    def __init__(
        self, simulation: Simulation, node_id: int, state: MemoryState, settings: Mapping[str, str]
    ) -> None:
        self.node_id = node_id
        port = FIRST_PORT + node_id
        own = {"node.id": str(node_id), "listeners": f"PLAINTEXT://{HOST}:{port}"}
        super().__init__(simulation, {**own, **settings})
        self.config = node_config({**own, **settings})
        self.state = state
        self.is_up = False

    @property
    def files(self) -> MemoryFiles:
        return self.simulation.machine(f"node{self.node_id}").files

    async def start(self) -> None:
        self.world = self.simulation.start_process(f"node{self.node_id}")
        starting = start_node(self.world, self.config, MemoryStore(self.state, self.world))
        self.broker = await self.world.tasks.spawn(starting, name="start")
        self.is_up = True

    async def stop(self) -> None:
        self.is_up = False
        await super().stop()

    async def kill(self) -> None:
        self.is_up = False
        await super().kill()

    async def connect(self) -> SimConnection:
        return await open_connection(self.clients, HOST, FIRST_PORT + self.node_id, "test")

    async def ask(self, api_key: int, fields: Mapping[str, Any], version: int | None = None) -> Any:
        return await self._once(api_key, fields, version)

    @property
    def log_end(self) -> int:
        return self.partition().log_end_offset

    def batches(self) -> list[tuple[int, int]]:
        """(first offset, epoch) of what the log of the topic's first partition holds."""
        log = self.partition().log
        return [(offset, log.epochs.epoch_for(offset)) for offset in range(log.log_end_offset)]


class SimTrio:
    def __init__(self, simulation: Simulation, settings: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.clients = simulation.start_process("clients")
        state = MemoryState(self.clients)
        self.members = {node_id: SimMember(simulation, node_id, state, settings) for node_id in NODES}

    async def start(self) -> None:
        for member in self.members.values():
            await member.start()

    @property
    def up(self) -> list[SimMember]:
        return [member for member in self.members.values() if member.is_up]

    @property
    def state(self) -> PartitionState:
        """Of the topic's first partition, as some live node sees it."""
        return self.up[0].broker.cluster.view.topics[TOPIC].partitions[0]

    @property
    def leader(self) -> SimMember:
        return self.members[self.state.leader]

    @property
    def followers(self) -> list[SimMember]:
        return [member for member in self.up if member.node_id != self.state.leader]

    async def create(self, *replicas: int, partitions: int = 1, **configs: str) -> None:
        """A topic on these nodes, or on all; the first of them leads."""
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(replicas or NODES)}
                for index in range(partitions)
            ],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        fields = {"topics": [topic], "timeout": 5000, "validate_only": False}
        reply = await self.up[0].ask(CREATE, fields)
        assert int(reply.topics[0].error_code) == 0
        await self.until(lambda: all(TOPIC in m.broker.cluster.view.topics for m in self.up))
        await self.until(lambda: self.leader.partition().takes_writes)

    async def until(self, holds: Callable[[], bool], within_s: float = LONG_S) -> None:
        deadline = self.clients.clock.monotonic() + within_s
        while not holds():
            assert self.clients.clock.monotonic() < deadline, f"not within {within_s} s"
            await self.clients.tasks.sleep(0.01)

    async def until_led(self) -> None:
        """By a live node that takes writes."""
        await self.until(
            lambda: (
                self.state.leader in self.members
                and self.leader.is_up
                and isinstance(self.leader.partition().role, LeaderRole)
                and self.leader.partition().takes_writes
            )
        )

    async def until_all_in_sync(self) -> None:
        await self.until(lambda: set(self.state.isr) == set(self.state.replicas))


def on_three_nodes(
    scenario: Callable[[SimTrio], Awaitable[None]],
    *,
    settings: Mapping[str, str] | None = None,
    seed: int = 1,
) -> None:
    with Simulation(seed) as simulation:

        async def main() -> None:
            trio = SimTrio(simulation, settings or {})
            await trio.start()
            await scenario(trio)

        simulation.run(main())
