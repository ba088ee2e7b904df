# SPDX-License-Identifier: Apache-2.0
"""What it costs a large cluster to be created, to be idle, and to lose a node, its controller and a rack.

Read next: report.py.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.testing.simworld import Simulation
from headrace.types import NO_NODE
from tests.harness.scale.measured_cluster import MAX_STEPS, RACKS, Counts, MeasuredCluster
from tests.harness.simulation.cluster_plan import host_of

IDLE_S = 3.0
_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    nodes: int
    partitions: int
    per_topic: int

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {self.partitions:,} partitions, {self.per_topic:,} in a topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """Of one node or of a rack, until its partitions are led again."""

    partitions: int
    waits_s: float
    """Virtual time: delays of the network and the store, timers."""
    controller_cpu_s: float
    busiest_cpu_s: float
    """Of the other node with the most CPU."""
    commits: int
    commit_bytes: int
    largest_commit: int
    view_bytes: int

    @property
    def leads_again_s(self) -> float:
        """An upper bound where each node has a core."""
        return self.waits_s + self.controller_cpu_s + self.busiest_cpu_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    size: Size
    largest_entry: int
    memory_bytes: int
    """Of a node: that of the whole simulation, divided."""
    creation_cpu_s: float
    """Of a node, on average."""
    idle_cpu: float
    """Of a node, as a part of one core."""
    idle_bytes_per_s: float
    """Sent by a node."""
    node: Failover
    controller: Failover
    rack: Failover
    cpu_s: float
    """Of the whole run."""


def measure(size: Size) -> Measured:
    with Simulation(_SEED, max_steps=MAX_STEPS) as simulation, _without_garbage_collection():
        cluster = MeasuredCluster(simulation, size.nodes)
        found: list[Measured] = []

        async def run() -> None:
            found.append(await _measure(cluster, size))
            cluster.end()

        simulation.run(run())
    return found[0]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection walks the objects of all nodes, and would be charged to one of them."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _measure(cluster: MeasuredCluster, size: Size) -> Measured:
    started = time.process_time()
    await cluster.start_all()
    with cluster.measured() as creation:
        for number in range(size.partitions // size.per_topic):
            await cluster.create_topic(f"topic-{number}", size.per_topic, {})
        everyone = range(size.nodes)
        await cluster.wait_until_led(cluster.led_by([*everyone, NO_NODE]))
        await cluster.wait_until_in_sync()
    largest = cluster.state.largest_entry()
    with cluster.measured() as idle:
        await asyncio.sleep(IDLE_S)
    controller = cluster.view.controller_id
    ordinary = [node for node in everyone if node % RACKS != controller % RACKS]
    node = await _failover(cluster, ordinary[:1])
    rack = await _failover(cluster, [each for each in ordinary[1:] if each % RACKS == ordinary[-1] % RACKS])
    return Measured(
        size=size,
        largest_entry=largest,
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // size.nodes,
        creation_cpu_s=_nodes_cpu(creation, size) / size.nodes,
        idle_cpu=_nodes_cpu(idle, size) / size.nodes / IDLE_S,
        idle_bytes_per_s=idle.network_bytes / size.nodes / IDLE_S,
        node=node,
        rack=rack,
        controller=await _failover(cluster, [controller]),
        cpu_s=time.process_time() - started,
    )


async def _failover(cluster: MeasuredCluster, victims: list[int]) -> Failover:
    partitions = cluster.led_by(victims)
    with cluster.measured() as counts:
        for victim in victims:
            cluster.nodes[victim].kill()
        await cluster.wait_until_led(partitions)
    controller = cluster.view.controller_id
    others = [host_of(broker.node_id) for broker in cluster.brokers() if broker.node_id != controller]
    failover = Failover(
        partitions=len(partitions),
        waits_s=counts.virtual_s,
        controller_cpu_s=counts.cpu_s[host_of(controller)],
        busiest_cpu_s=counts.busiest(others),
        commits=counts.commits,
        commit_bytes=counts.commit_bytes,
        largest_commit=counts.largest_commit,
        view_bytes=counts.view_bytes // len(cluster.brokers()),
    )
    await asyncio.sleep(1)  # the next failover begins when this one has settled
    return failover


def _nodes_cpu(counts: Counts, size: Size) -> float:
    return sum(counts.cpu_s[host_of(node)] for node in range(size.nodes))
