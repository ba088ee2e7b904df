# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulated cluster: those of one node, and those of the network between nodes.

Each fault is a method, drawn at random from those a run allows, on a node drawn at random: often one that
leads, or the controller. tests/simulation/test_cluster_faults.py holds that each bites. Read next: faults.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random

from headrace.broker.partition.follower_role import FollowerRole
from headrace.broker.partition.leader_role import LeaderRole
from headrace.errors import CorruptLogError
from headrace.testing.simnetwork import NetworkProfile, SimNetwork
from tests.harness.simulation.faults import Faults
from tests.harness.simulation.node import SimNode
from tests.harness.simulation.store import STORE_HOST, StoreServer

OF_ONE_NODE = (
    "kill",
    "restart",
    "disk_full",
    "write_error",
    "clock_jump",
    "reset_connections",
    "slow_disk",
    "slow_network",
)
BETWEEN_NODES = (
    "pause",
    "expire_session",
    "late_views",
    "unknown_outcomes",
    "kill_several",
    "lossy_network",
)
CUTS = ("cut_a_link", "isolate", "cut_off_from_store", "cut_one_way")
"""Between hosts only: the nodes of a SQLite store share one."""
OF_POWER = ("power_cut",)
OF_SITES = ("stall", "power_cut_of_all", "power_cut_beside_a_pause", "lost_disk")
"""Drawn by mixed plans only: mixed/plan.py."""
OF_FILES = ("damaged_file",)
OF_LOGS = ("damaged_log",)
"""Not beside a loss of power: what two of three lose may be all there is."""

Victims = Callable[[], Sequence[int]]


class ClusterFaults:
    """`likely_victims`: node ids that matter most just now; `may_lose_power` guards what is promised."""

    def __init__(
        self,
        nodes: Sequence[SimNode],
        network: SimNetwork,
        store: StoreServer,
        random: Random,
        allowed: Collection[str],
        *,
        likely_victims: Victims,
        may_lose_power: Callable[[int], bool],
        may_lose_disk: Callable[[int], bool] = lambda _: False,
        may_be_damaged: Callable[[], bool] = lambda: False,
        damage_file: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._nodes = nodes
        self._network = network
        self._store = store
        self._random = random
        self._allowed = sorted(allowed)
        self._likely_victims = likely_victims
        self._may_lose_power = may_lose_power
        self._may_lose_disk = may_lose_disk
        self._may_be_damaged = may_be_damaged
        self._damage_file = damage_file
        self._of_one = [Faults(node, network, random, ()) for node in nodes]
        self._usual_network = network.profile

    def broke_the_disk_of(self, node_index: int) -> bool:
        return self._of_one[node_index].broke_the_disk

    async def run(self, duration_s: float) -> None:
        """Faults overlap: a node may fail while another one is still away."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + duration_s
        async with asyncio.TaskGroup() as group:
            while loop.time() < deadline:
                await asyncio.sleep(self._random.uniform(0.05, 1.0))
                group.create_task(self.inject(self._random.choice(self._allowed)))
        self.heal()

    async def inject(self, name: str, victim: int | None = None) -> None:
        node_index = self._victim() if victim is None else victim
        if name == "power_cut" and not self._may_lose_power(node_index):
            name = "kill"
        self.counts[name] += 1
        self._network.loop.note(f"fault {name} {node_index}")
        if name in OF_ONE_NODE:
            await self._of_one[node_index].inject(name)
        else:
            act: Callable[[int], Awaitable[None]] = getattr(self, name)
            await act(node_index)

    def _victim(self) -> int:
        likely = self._likely_victims() if self._random.random() < 0.6 else ()
        return self._random.choice(likely or range(len(self._nodes)))

    def heal(self) -> None:
        for faults in self._of_one:
            faults.heal()
        self._network.mend_all()
        self._network.profile = self._usual_network
        self._store.late_s = 0.02
        self._store.unknown_probability = 0.0
        for node in self._nodes:
            if node.world is not None and (node.world.process.paused or node.world.process.stalled):
                self._network.loop.resume(node.world.process)

    # -- nodes ----------------------------------------------------------------------------------------

    async def kill_several(self, node_index: int) -> None:
        count = self._random.randint(2, len(self._nodes))
        for victim in [node_index, *self._others(node_index)][:count]:
            self._nodes[victim].kill()
            await asyncio.sleep(self._random.choice((0, 0, 0.05, 0.5)))

    async def power_cut(self, node_index: int) -> None:
        """Nobody is told: a host without power sends no reset."""
        node = self._nodes[node_index]
        cuts = self._cuts_around(node_index)
        for one, other in cuts:
            self._network.cut(one, other)
        node.cut_power()
        await asyncio.sleep(self._random.uniform(0.1, 2))
        for one, other in cuts:
            self._network.mend(one, other)

    async def power_cut_of_all(self, node_index: int) -> None:
        """As many as may lose power at a time; the others are killed."""
        for victim in [node_index, *self._others(node_index)]:
            self._end(victim)
            await asyncio.sleep(self._random.choice((0, 0, 0.05, 0.5)))

    async def power_cut_beside_a_pause(self, node_index: int) -> None:
        """A node sleeps while its peers lose power and come back, and then goes on."""
        world = self._nodes[node_index].world
        if world is None or world.process.paused:
            return
        self._network.loop.pause(world.process)
        await asyncio.sleep(self._random.choice((0, 0.5, 2)))
        for victim in self._others(node_index)[: self._random.randint(1, len(self._nodes) - 1)]:
            self._end(victim)
        await asyncio.sleep(self._random.choice((0.2, 1.0, 6.0)))
        self._network.loop.resume(world.process)

    def _end(self, node_index: int) -> None:
        node = self._nodes[node_index]
        if self._may_lose_power(node_index):
            self.counts["power lost"] += 1
            node.cut_power()
        else:
            node.kill()

    async def lost_disk(self, node_index: int) -> None:
        """The node returns under its id with an empty disk; a kill where others do not hold everything."""
        if self._may_lose_disk(node_index):
            self.counts["disks replaced"] += 1
            self._nodes[node_index].replace_disk()
        else:
            self._nodes[node_index].kill()

    async def damaged_file(self, node_index: int) -> None:
        if self._may_be_damaged() and self._damage_file(node_index):
            self.counts["files damaged"] += 1

    async def stall(self, node_index: int) -> None:
        """The event loop is blocked; threads go on: flushes end, and nobody hears of it."""
        world = self._nodes[node_index].world
        if world is None or world.process.paused or world.process.stalled:
            return
        self._network.loop.stall(world.process)
        await asyncio.sleep(self._random.choice((0.2, 1.0, 2.5, 6.0)))
        self._network.loop.resume(world.process)

    async def damaged_log(self, node_index: int) -> None:
        """As a read or the scrub finds it (R27), in any partition that others hold as well."""
        node = self._nodes[node_index]
        if node.broker is None or node.world is None or not self._may_be_damaged():
            return
        held = node.broker.partitions.all()
        shared = [each for each in held if isinstance(each.role, LeaderRole | FollowerRole)]
        if shared:
            self.counts["damage done"] += 1
            partition = self._random.choice(shared)
            found = CorruptLogError("a batch has a wrong checksum")
            if partition.log_end_offset % 2:  # else it is not known where, and the whole log is fetched
                found.base_offset = partition.log.segment_range(partition.log_end_offset)[0]
            node.world.process.context().run(partition.fault, found)

    async def pause(self, node_index: int) -> None:
        """SIGSTOP: from a hiccup to longer than the session lasts."""
        world = self._nodes[node_index].world
        if world is None or world.process.paused:
            return
        self._network.loop.pause(world.process)
        await asyncio.sleep(self._random.choice((0.2, 1.0, 2.5, 6.0)))
        self._network.loop.resume(world.process)

    async def expire_session(self, node_index: int) -> None:
        world = self._nodes[node_index].world
        if world is not None:
            self._store.expire(world.process)

    # -- the store ------------------------------------------------------------------------------------

    async def late_views(self, _: int) -> None:
        self._store.late_s = self._random.choice((0.2, 1.0, 2.0))
        await asyncio.sleep(self._random.uniform(0.5, 3))
        self._store.late_s = 0.02

    async def unknown_outcomes(self, _: int) -> None:
        self._store.unknown_probability = 0.3
        await asyncio.sleep(self._random.uniform(0.5, 3))
        self._store.unknown_probability = 0.0

    # -- the network ----------------------------------------------------------------------------------

    async def lossy_network(self, _: int) -> None:
        self._network.profile = NetworkProfile(loss_probability=0.1)
        await asyncio.sleep(self._random.uniform(0.5, 3))
        self._network.profile = self._usual_network

    async def cut_a_link(self, node_index: int) -> None:
        other = self._random.choice(self._others(node_index))
        await self._cut([self._ways(node_index, other)])

    async def cut_one_way(self, node_index: int) -> None:
        other = self._random.choice(self._others(node_index))
        ways = self._ways(node_index, other)
        await self._cut([ways[: 2 if self._random.random() < 0.2 else 1]])

    async def isolate(self, node_index: int) -> None:
        """From all other nodes, and half of the times from the store too; clients still reach it."""
        ways = [self._ways(node_index, other) for other in self._others(node_index)]
        if self._random.random() < 0.5:
            ways.append(self._ways_to_store(node_index))
        await self._cut(ways)

    async def cut_off_from_store(self, node_index: int) -> None:
        """The nasty one: its peers see it alive."""
        await self._cut([self._ways_to_store(node_index)])

    async def _cut(self, ways: Sequence[Sequence[tuple[str, str]]]) -> None:
        flat = [way for some in ways for way in some]
        for one, other in flat:
            self._network.cut(one, other)
        await asyncio.sleep(self._random.choice((0.3, 1.0, 3.0, 5.0)))
        for one, other in flat:
            self._network.mend(one, other)

    def _others(self, node_index: int) -> list[int]:
        others = [other for other in range(len(self._nodes)) if other != node_index]
        self._random.shuffle(others)
        return others

    def _ways(self, one: int, other: int) -> list[tuple[str, str]]:
        here, there = self._nodes[one].machine.name, self._nodes[other].machine.name
        return [(here, there), (there, here)]

    def _ways_to_store(self, node_index: int) -> list[tuple[str, str]]:
        here = self._nodes[node_index].machine.name
        return [(here, STORE_HOST), (STORE_HOST, here)]

    def _cuts_around(self, node_index: int) -> list[tuple[str, str]]:
        return [(self._nodes[node_index].machine.name, host) for host in self._hosts(node_index)]

    def _hosts(self, node_index: int) -> list[str]:
        nodes = [node.machine.name for node in self._nodes if node is not self._nodes[node_index]]
        return [*nodes, STORE_HOST, "clients"]
