# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster without its clients: nodes, store, invariants, faults, and requests to any node.

The runs with clients are made of it: several_nodes.py, transactions/cluster.py. Read next: cluster_plan.py,
cluster_faults.py, cluster_invariants.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from headrace.client.errors import ClientError
from headrace.testing.simworld import Simulation
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import BrokenPromise, SimConnection, TryAgain
from tests.harness.simulation.cluster_faults import ClusterFaults
from tests.harness.simulation.cluster_invariants import ClusterInvariants, LogWatch, needed_insync
from tests.harness.simulation.cluster_plan import PORT, ClusterPlan, host_of, node_config
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.routing import Address, open_any
from tests.harness.simulation.store import StoreServer

PROGRESS_S = 30
"""After the faults all goes on within this much virtual time: every producer gets home, all are in sync."""


class SimCluster:
    """`busy_topics`: faults often hit the leaders of these, or the controller."""

    def __init__(
        self,
        simulation: Simulation,
        plan: ClusterPlan,
        *,
        busy_topics: Collection[str],
        settings: Mapping[str, str] | None = None,
        damage_file: Callable[[int], bool] = lambda _: False,
        watched: Mapping[str, LogWatch] | None = None,
    ) -> None:
        self.simulation = simulation
        self.plan = plan
        self._busy_topics = busy_topics
        self._settings = settings or {}
        self.world = simulation.start_process("clients")
        """The process of all clients."""
        self.store = StoreServer(simulation, plan.profile)
        self.nodes = [self._node(node_id) for node_id in range(plan.nodes)]
        self.addresses: tuple[Address, ...] = tuple((host_of(node_id), PORT) for node_id in range(plan.nodes))
        self.invariants = ClusterInvariants(
            self.nodes, self.store, simulation.loop, flush=plan.flush, watched=watched or {}
        )
        self.faults = ClusterFaults(
            self.nodes,
            simulation.network,
            self.store,
            simulation.random_for("faults"),
            plan.allowed_faults,
            likely_victims=self._likely_victims,
            may_lose_power=self._may_lose_power,
            may_lose_disk=self._may_lose_disk,
            may_be_damaged=self._may_be_damaged,
            damage_file=damage_file,
        )
        self._behind: set[int] = set()
        """Nodes that may lack what they once reported, and have not caught up."""

    def _node(self, node_id: int) -> SimNode:
        config = node_config(self.plan, node_id, self._settings)
        node = SimNode(self.simulation, config, self.store.connect, machine=host_of(node_id))
        node.on_death = self.store.process_died
        return node

    # -- nodes that faults may hit ------------------------------------------------------------------------

    def _likely_victims(self) -> Sequence[int]:
        view = self.invariants.view
        topics = [topic for name, topic in view.topics.items() if name in self._busy_topics]
        leaders = [state.leader for topic in topics for state in topic.partitions]
        return sorted({node for node in (*leaders, view.controller_id) if node != NO_NODE})

    def _may_lose_power(self, node_id: int) -> bool:
        return self.plan.flush == "ack" or self._may_lose_records(node_id)

    def _may_lose_disk(self, node_id: int) -> bool:
        """Whatever the flush policy; what one replica alone holds is no promise then."""
        if not self._may_lose_records(node_id):
            return False
        self.invariants.disk_was_replaced(node_id)
        return True

    def _may_lose_records(self, node_id: int) -> bool:
        """Fewer than min.insync.replicas may at a time: the others hold what is acknowledged."""
        self._forget_who_caught_up()
        for topic in self.invariants.view.topics.values():
            needed = needed_insync(topic)
            for state in topic.partitions:
                sound = {*state.isr, *state.elr} - self._behind - {node_id}
                if needed > 1 and len(state.replicas) - len(sound) >= needed:
                    return False
        self._behind.add(node_id)
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
        self._behind = {
            node_id
            for node_id in self._behind
            if self.nodes[node_id].broker is None
            or any(node_id in state.replicas and node_id not in state.isr for state in states)
        }

    # -- requests to any node -----------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": self.plan.replicas,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }

        async def create(connection: SimConnection) -> None:
            reply = await connection.call(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 10_000})
            code = reply.topics[0].error_code
            if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                raise TryAgain(f"{code.name}: {reply.topics[0].error_message}")

        await self.retry(lambda: self.with_any(create), "the topic is created")

    async def with_any(self, act: Callable[[SimConnection], Awaitable[Any]]) -> Any:
        connection = await open_any(self.world, self.addresses, "admin")
        try:
            return await act(connection)
        finally:
            connection.abort()

    async def retry(
        self, act: Callable[[], Awaitable[Any]], goal: str, *, within_s: float = PROGRESS_S
    ) -> Any:
        problem: Exception | None = None
        deadline = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                return await act()
            except (ClientError, TryAgain, OSError) as error:
                problem = error
                await asyncio.sleep(0.1)
        raise BrokenPromise(f"not within {within_s:.0f} s: {goal}: {problem}")

    async def until(
        self,
        holds: Callable[[], bool],
        goal: str,
        state: Callable[[], object] = lambda: "",
        *,
        within_s: float = PROGRESS_S,
    ) -> None:
        async def look() -> None:
            if not holds():
                raise TryAgain(f"{state()}")

        await self.retry(look, goal, within_s=within_s)

    # -- the end ------------------------------------------------------------------------------------------

    def start_nodes_with_a_broken_disk_again(self) -> None:
        """R24: the operator does; a disk that was only full needs nobody."""
        for number, node in enumerate(self.nodes):
            if self.faults.broke_the_disk_of(number):
                node.kill()

    def all_in_sync(self, *names: str) -> bool:
        topics = [topic for topic in self.invariants.view.topics.values() if topic.name in names]
        states = [state for topic in topics for state in topic.partitions]
        return all(state.leader != NO_NODE and {*state.isr} == {*state.replicas} for state in states)

    def check_that_no_node_ended_itself(self) -> None:
        """Only a broken disk is a reason to (R24)."""
        for number, node in enumerate(self.nodes):
            if node.failures and not self.faults.broke_the_disk_of(number):
                raise BrokenPromise(f"node {number} ended itself: {node.failures[0]}")
