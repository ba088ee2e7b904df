# SPDX-License-Identifier: Apache-2.0
"""Segments of two nodes of three are damaged, perhaps in the same place, and a node dies in its repair (R27).

The leader that is asked for a damaged range may be damaged there itself. In the end all replicas hold what
was sent, byte for byte. Read next: damaged_files.py, broker/replication/log_repairs.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.broker.partition.registry import Partitions
from headrace.log.scrub import scrub
from headrace.world import read_file
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.damaged_files import HEALED_S, LOG, SETTINGS, all_equal, flip, told_by

BEFORE = 30
LONGEST_REPAIR_S = 3.0


@dataclass(slots=True)
class SourceReport:
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0


def run_seed(seed: int) -> SourceReport:
    """Raises BrokenPromise."""
    run = _Run(Random(f"source {seed}"))
    simulate_cluster(run.scenario, seed, settings=SETTINGS, flush=run.random.choice(("ack", "os")))
    return run.report


class _Run:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.report = SourceReport()
        self._sent: list[bytes] = []

    async def scenario(self, lab: ClusterLab) -> None:
        await lab.until(lambda: set(lab.state.isr) == {0, 1, 2}, "all replicas are in sync")
        for number in range(BEFORE):
            self._sent.append(b"%d" % number + b"x" * 50)
            await lab.produced(self._sent[-1])
        lab.simulation.loop.after_step = None  # damaged replicas break what holds for sound ones
        one, other, third = self.random.sample(range(3), 3)
        sound = self._log(lab, third)
        path = self.random.choice([path for path in sound if sound[path]])
        bit = self.random.randrange(8 * len(sound[path]))
        flip(lab.nodes[one].machine.files, path, bit)
        self.report.faults["one"] += 1
        if self.random.random() < 0.6:
            if self.random.random() < 0.3:
                bit = self.random.randrange(8 * len(sound[path]))
            flip(lab.nodes[other].machine.files, path, bit)
            self.report.faults["two"] += 1
        if self.random.random() < 0.4:
            await self._kill_in_repair(lab, one)
        await self._healed(lab)
        for node_id in range(3):
            held = self._log(lab, node_id)
            if any(held[path] != data for path, data in sound.items()):
                raise BrokenPromise(f"node {node_id} holds other bytes than were sent")
        found = await lab.read_all()
        self.report.records_read += len(found)
        if list(dict.fromkeys(found)) != self._sent:
            raise BrokenPromise(f"sent {len(self._sent)} records, read {len(found)}")

    def _log(self, lab: ClusterLab, node_id: int) -> dict[Path, bytes]:
        files = lab.nodes[node_id].machine.files
        names = [name for name in files.listdir(LOG) if name.endswith(".log")]
        return {LOG / name: read_file(files, LOG / name) for name in names}

    async def _kill_in_repair(self, lab: ClusterLab, victim: int) -> None:
        """As soon as the repair has begun, or a little later."""
        broker = lab.nodes[victim].broker
        assert broker is not None
        repairing = _begun(broker.partitions)
        deadline = asyncio.get_running_loop().time() + HEALED_S / 4
        while not repairing():
            if asyncio.get_running_loop().time() > deadline:
                return  # the bit is in a field that no reader needs, or the other was found first
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.random() ** 3 * LONGEST_REPAIR_S)
        lab.nodes[victim].kill()
        self.report.faults["killed"] += 1
        await lab.until(lambda: victim not in lab.invariants.view.nodes, "it is gone")
        await asyncio.sleep(5)
        lab.start(victim)

    async def _healed(self, lab: ClusterLab) -> None:
        deadline = asyncio.get_running_loop().time() + HEALED_S
        while not (all_equal(lab) and self._is_sound(lab)):
            if asyncio.get_running_loop().time() > deadline:
                raise BrokenPromise(f"not healed within {HEALED_S} s: {lab.state}, {told_by(lab)}")
            await asyncio.sleep(1)
        for node in lab.nodes:
            assert node.broker is not None
            counters = node.broker.metrics.scrub
            self.report.outcomes["repaired"] += counters.repaired
            self.report.outcomes["refetched"] += counters.refetched

    def _is_sound(self, lab: ClusterLab) -> bool:
        """Two replicas with the same damage are equal, too."""
        return all(not scrub(lab.partition(node_id).log.plan_scrub()).faults for node_id in range(3))


def _begun(partitions: Partitions) -> Callable[[], bool]:
    return lambda: bool(partitions.damaged())
