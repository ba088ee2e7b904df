# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster of many nodes and racks that counts CPU by node, commits to the store and bytes.

Nodes, controller and replication are the broker's own code. Virtual time has waits and delays only, so the
CPU time of each node is measured beside it. Read next: failovers.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.broker.node import Broker
from headrace.coordination.memory import MemoryState
from headrace.coordination.store import Applied, Changes, Conflict, Operation
from headrace.testing.simworld import Simulation
from headrace.types import ClusterView, TopicPartition
from tests.harness.simulation.cluster import SimCluster
from tests.harness.simulation.cluster_plan import ClusterPlan, host_of, node_config
from tests.harness.simulation.node import SimNode

RACKS = 5
REPLICAS = 3
SESSION_MS = 6_000
_POLL_S = 0.005
MAX_STEPS = 1_000_000_000


def scale_plan(nodes: int) -> ClusterPlan:
    return ClusterPlan(
        nodes=nodes,
        profile="zookeeper",
        flush="os",
        partitions=1,
        replicas=REPLICAS,
        session_ms=SESSION_MS,
        moves=False,
        duration_s=0,
        producers=(),
        allowed_faults=(),
    )


@dataclass(slots=True, kw_only=True)
class Counts:
    """What happened in a span of time."""

    virtual_s: float = 0.0
    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By host."""
    network_bytes: int = 0
    commits: int = 0
    commit_bytes: int = 0
    largest_commit: int = 0
    view_bytes: int = 0
    """Entries of the store that nodes read again because they changed."""

    def busiest(self, hosts: Sequence[str]) -> float:
        return max((self.cpu_s[host] for host in hosts), default=0.0)


class MeasuredState(MemoryState):
    """The store's entries; counts what is written and what nodes read."""

    counts: Counts

    def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        outcome = super().commit(operations)
        written = sum(len(getattr(operation, "value", b"")) for operation in operations)
        if written and isinstance(outcome, Applied):
            self.counts.commits += 1
            self.counts.commit_bytes += written
            self.counts.largest_commit = max(self.counts.largest_commit, written)
        return outcome

    def changes_since(self, version: int) -> Changes:
        changes = super().changes_since(version)
        entries = changes.changed.values()
        self.counts.view_bytes += sum(len(entry.value) for entry in entries if entry is not None)
        return changes

    def largest_entry(self) -> int:
        return max(len(entry.value) for entry in self.view().entries.values())


class MeasuredCluster(SimCluster):
    """Node n is in rack n modulo RACKS. Nodes that are killed stay down."""

    def __init__(self, simulation: Simulation, nodes: int) -> None:
        super().__init__(simulation, scale_plan(nodes), busy_topics=())
        self.counts = Counts()
        self.state = MeasuredState(self.store.world, profile=self.plan.profile)
        self.state.counts = self.counts
        self.store.state = self.state
        self._runs: list[asyncio.Task[None]] = []
        self._stepped_at = time.thread_time()
        simulation.loop.after_step = self._charge

    def _node(self, node_id: int) -> SimNode:
        config = node_config(self.plan, node_id, {"broker.rack": f"rack{node_id % RACKS}"})
        node = SimNode(self.simulation, config, self.store.connect, machine=host_of(node_id))
        node.on_death = self.store.process_died
        return node

    def _charge(self) -> None:
        """CPU since the last step goes to the node whose step it was."""
        now, process = time.thread_time(), self.simulation.loop.stepped
        if process is not None:
            self.counts.cpu_s[process.host] += now - self._stepped_at
        self._stepped_at = now

    @contextmanager
    def measured(self) -> Iterator[Counts]:
        """Fills in the counts of what happens inside."""
        counts = self.counts = self.state.counts = Counts()
        began, sent = self.simulation.loop.time(), self.simulation.network.sent_bytes
        yield counts
        counts.virtual_s = self.simulation.loop.time() - began
        counts.network_bytes = self.simulation.network.sent_bytes - sent

    async def start_all(self) -> None:
        self._runs = [asyncio.ensure_future(node._run_once()) for node in self.nodes]
        for node in self.nodes:
            await node.wait_until_serving()

    def end(self) -> None:
        for run in self._runs:
            run.cancel()

    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.nodes if node.broker is not None]

    @property
    def view(self) -> ClusterView:
        """As the first live node has it."""
        return self.brokers()[0].cluster.view

    def led_by(self, node_ids: Collection[int]) -> list[TopicPartition]:
        return [
            TopicPartition(name, index)
            for name, topic in self.view.topics.items()
            for index, state in enumerate(topic.partitions)
            if state.leader in node_ids
        ]

    async def wait_until_led(self, partitions: Sequence[TopicPartition]) -> None:
        """Until a live node takes writes for each of these, and every live node names it in its metadata."""
        await _until(lambda: not self._not_led(partitions))
        version = self.state.version
        await _until(lambda: all(broker.cluster.view.version >= version for broker in self.brokers()))

    def _not_led(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        by_id = {broker.node_id: broker for broker in self.brokers()}
        topics = self.view.topics
        found = []
        for name, index in partitions:
            leader = by_id.get(topics[name].partitions[index].leader)
            partition = None if leader is None else leader.partitions.get(name, index)
            if partition is None or not partition.takes_writes:
                found.append(TopicPartition(name, index))
        return found

    async def wait_until_in_sync(self) -> None:
        await _until(
            lambda: all(len(s.isr) == REPLICAS for t in self.view.topics.values() for s in t.partitions)
        )


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(_POLL_S)
