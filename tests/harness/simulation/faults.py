# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulation of one node: each is a method, drawn at random from those a run allows.

A fault that lasts is over when its method returns; `heal` ends all of them. tests/simulation/test_faults.py
holds that each one bites. Read next: one_node.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Collection
from random import Random

from headrace.testing.simnetwork import NetworkProfile, SimNetwork
from headrace.testing.simworld import DATA_DIRECTORY, WorkProfile
from tests.harness.simulation.node import SimNode

HARMLESS_TO_THE_PAGE_CACHE = (
    "kill",
    "restart",
    "disk_full",
    "write_error",
    "clock_jump",
    "reset_connections",
    "slow_disk",
    "slow_network",
    "small_window",
)
ALL = (*HARMLESS_TO_THE_PAGE_CACHE, "power_cut", "sync_error")

_HOUR_MS = 3_600_000
_ROOM = 1 << 40


class Faults:
    def __init__(self, node: SimNode, network: SimNetwork, random: Random, allowed: Collection[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._node = node
        self._network = network
        self._random = random
        self._allowed = sorted(allowed)
        self._usual_network = network.profile

    @property
    def broke_the_disk(self) -> bool:
        return bool(self.counts["write_error"] or self.counts["sync_error"])

    async def run(self, duration_s: float) -> None:
        """One fault after another, sometimes two at once, with quiet moments between them."""
        deadline = asyncio.get_running_loop().time() + duration_s
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(self._random.uniform(0.05, 1.2))
            names = self._random.sample(self._allowed, 2 if self._random.random() < 0.3 else 1)
            await asyncio.gather(*(self.inject(name) for name in names))
        self.heal()

    async def inject(self, name: str) -> None:
        self.counts[name] += 1
        self._network.loop.note(f"fault {name}")
        await getattr(self, name)()

    def heal(self) -> None:
        machine = self._node.machine
        machine.files.capacity = _ROOM
        machine.files.errors.clear()
        machine.work = WorkProfile()
        self._network.profile = self._usual_network

    # -- ends of the node ---------------------------------------------------------------------------

    async def kill(self) -> None:
        self._node.kill()

    async def power_cut(self) -> None:
        self._node.cut_power()

    async def restart(self) -> None:
        self._node.stop_cleanly()

    # -- disk ---------------------------------------------------------------------------------------

    async def disk_full(self) -> None:
        files = self._node.machine.files
        used = files.capacity - files.free_bytes(DATA_DIRECTORY)
        files.capacity = used + self._random.randint(0, 3000)
        await asyncio.sleep(self._random.uniform(0.1, 4))
        files.capacity = _ROOM

    async def write_error(self) -> None:
        await self._io_error("pwritev:.log")

    async def sync_error(self) -> None:
        await self._io_error("fsync:.log")

    async def _io_error(self, operation: str) -> None:
        """R24: the disk cannot be trusted any more; the operator looks at it and starts the node again."""
        errors = self._node.machine.files.errors
        errors[operation] = OSError(errno.EIO, os.strerror(errno.EIO))
        await asyncio.sleep(self._random.uniform(0.05, 1))
        if self._random.random() < 0.5 and "power_cut" in self._allowed:
            self._node.cut_power()
        errors.pop(operation, None)
        self._node.kill()

    async def slow_disk(self) -> None:
        self._node.machine.work = WorkProfile(least_ms=20, most_ms=self._random.choice((100, 1000)))
        await asyncio.sleep(self._random.uniform(0.1, 3))
        self._node.machine.work = WorkProfile()

    # -- clock --------------------------------------------------------------------------------------

    async def clock_jump(self) -> None:
        """Back by less than the hour that producers' clocks may be ahead; forward by less than retention."""
        jumps = (_HOUR_MS, 24 * _HOUR_MS, -_HOUR_MS // 2, 0)
        self._node.machine.wall_jump_ms = self._random.choice(jumps)

    # -- network --------------------------------------------------------------------------------------

    async def reset_connections(self) -> None:
        world = self._node.world
        if world is None:
            return
        for transport in self._network.transports_of(world.process):
            if self._random.random() < 0.5:
                transport.reset()

    async def slow_network(self) -> None:
        delay_ms = self._random.choice((20, 200, 1000))
        await self._with_network(NetworkProfile(least_delay_ms=delay_ms / 2, most_delay_ms=delay_ms))

    async def small_window(self) -> None:
        await self._with_network(NetworkProfile(window_bytes=500, split_probability=0.9))

    async def _with_network(self, profile: NetworkProfile) -> None:
        self._network.profile = profile
        await asyncio.sleep(self._random.uniform(0.1, 3))
        self._network.profile = self._usual_network
