# SPDX-License-Identifier: Apache-2.0
"""A file of one node of three is changed, cut or removed; the cluster must go on and heal by itself (R27).

Any file of the data directory, at rest (the node was stopped, cleanly or not) or while the node runs. Readers
and writers go on, nothing is lost, and in the end all replicas hold the same bytes up to the high watermark.
Read next: cluster_lab.py, broker/partition/scrubber.py.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.log.checkpoints import FORMAT_VERSION, META_PROPERTIES_FILE
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.world import Files, read_file, replace_file
from tests.harness.simulation.clients import BrokenPromise
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.several_nodes import TOPIC

SETTINGS = {
    "log.index.interval.bytes": "0",
    "log.index.size.max.bytes": "60",  # four batches to a segment
    "headrace.scrub.interval.ms": "20000",
}
LOG = DATA_DIRECTORY / f"{TOPIC}-0"
BEFORE, MEANWHILE = 30, 10
"""Records sent before and after the damage."""
HEALED_S = 600
_OF_THE_NODE = (
    "checkpoint",
    "meta.properties",
    "headrace-meta-copy",
    "headrace-boot-id",
    "cleanshutdown",
    "position",
)


@dataclass(slots=True)
class DamageReport:
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0


def run_seed(seed: int, *, logs_only: bool = False) -> DamageReport:
    """Raises BrokenPromise."""
    run = _Run(Random(f"damage {seed}"), logs_only=logs_only)
    simulate_cluster(run.scenario, seed, settings=SETTINGS, flush=run.random.choice(("ack", "os")))
    return run.report


class _Run:
    def __init__(self, random: Random, *, logs_only: bool) -> None:
        self.random = random
        self.report = DamageReport()
        self._logs_only = logs_only
        self._sent: list[bytes] = []
        self._was_killed = False

    async def scenario(self, lab: ClusterLab) -> None:
        await lab.until(lambda: set(lab.state.isr) == {0, 1, 2}, "all replicas are in sync")
        await self._send(lab, BEFORE)
        victim = self.random.randrange(3)
        at_rest = self.random.choice((None, lab.nodes[victim].stop_cleanly, lab.nodes[victim].kill))
        self._was_killed = at_rest == lab.nodes[victim].kill
        if at_rest is not None:
            at_rest()
            await lab.until(lambda: victim not in lab.invariants.view.nodes, "it is gone")
            await asyncio.sleep(5)  # its data directory is closed
        # A damaged replica breaks what holds for sound ones until that is found; the end is compared instead.
        lab.simulation.loop.after_step = None
        self._damage(lab.nodes[victim].machine.files)
        if at_rest is not None:
            lab.start(victim)
        await self._send(lab, MEANWHILE)
        await self._healed(lab)
        found = await lab.read_all()
        self.report.records_read += len(found)
        if list(dict.fromkeys(found)) != self._sent:
            raise BrokenPromise(f"sent {len(self._sent)} records in order, read {len(found)}: {found}")

    async def _send(self, lab: ClusterLab, count: int) -> None:
        for number in range(count):
            self._sent.append(b"%d-%d" % (len(self._sent), number) + b"x" * 50)
            await lab.produced(self._sent[-1])
            self.report.outcomes["ok"] += 1

    def _damage(self, files: Files) -> None:
        path = self.random.choice(self._files(files))
        size = len(read_file(files, path))
        kind = self.random.choice(self._kinds(path, size))
        sound = read_file(files, path)
        KINDS[kind](files, path, self.random.randrange(8 * size) if size else 0)
        if path.name == META_PROPERTIES_FILE and _is_of_a_newer_version(files, path):
            replace_file(files, path, sound)  # a node that refuses it is right
        self.report.faults[kind] += 1
        self.report.faults[path.suffix or path.name] += 1

    def _kinds(self, path: Path, size: int) -> list[str]:
        """Whether the first file of a log was removed, or by retention before a crash, cannot be told."""
        if self._was_killed and path.name == f"{0:020d}.log":
            return ["cut", "flip"]
        return sorted(KINDS) if size else ["remove"]

    def _files(self, files: Files) -> list[Path]:
        """Of the records, of the node, or those that belong to the records."""
        of_log = [LOG / name for name in files.listdir(LOG)]
        logs = [path for path in of_log if path.suffix == ".log"]
        kind = 0 if self._logs_only else self.random.randrange(3)
        if kind == 0:
            return self.random.choice((logs, logs[:1]))
        if kind == 1:
            return [path for path in of_log if path not in logs]
        names = (DATA_DIRECTORY / name for name in files.listdir(DATA_DIRECTORY))
        return [path for path in names if path.name.endswith(_OF_THE_NODE)]

    async def _healed(self, lab: ClusterLab) -> None:
        deadline = asyncio.get_running_loop().time() + HEALED_S
        while not all_equal(lab):
            if asyncio.get_running_loop().time() > deadline:
                raise BrokenPromise(f"not healed within {HEALED_S} s: {lab.state}, {told_by(lab)}")
            await asyncio.sleep(1)


def _is_of_a_newer_version(files: Files, path: Path) -> bool:
    if not files.exists(path):
        return False
    found = re.search(rb"^headrace\.format=(\d+)$", read_file(files, path), re.MULTILINE)
    return found is not None and int(found[1]) > FORMAT_VERSION


def flip(files: Files, path: Path, bit: int) -> None:
    file, position = files.open(path, "write"), bit // 8
    (byte,) = file.pread(1, position)
    file.pwritev([bytes([byte ^ (1 << bit % 8)])], position)
    file.fsync()
    file.close()


def cut(files: Files, path: Path, bit: int) -> None:
    file = files.open(path, "write")
    file.truncate(bit // 8)
    file.fsync()
    file.close()


def remove(files: Files, path: Path, bit: int) -> None:
    files.unlink(path)
    files.sync_directory(path.parent)


KINDS: dict[str, Callable[[Files, Path, int], None]] = {"flip": flip, "cut": cut, "remove": remove}


def all_equal(lab: ClusterLab) -> bool:
    if set(lab.state.isr) != {0, 1, 2} or any(node.broker is None for node in lab.nodes):
        return False
    replicas = [lab.partition(node_id) for node_id in range(3)]
    if not all(each.online for each in replicas):
        return False
    if len({(each.log_start_offset, each.log_end_offset, each.high_watermark) for each in replicas}) > 1:
        return False
    return len({_bytes_of(lab, node_id) for node_id in range(3)}) == 1


def _bytes_of(lab: ClusterLab, node_id: int) -> bytes:
    """All batches up to the high watermark."""
    partition = lab.partition(node_id)
    offset, data = partition.log_start_offset, b""
    while (found := partition.log.read(offset, 1 << 20, partition.high_watermark)) is not None:
        data += found.bytes()
        offset = found.next_offset
        found.release()
    return data


def told_by(lab: ClusterLab) -> list[str]:
    told = []
    for node in lab.nodes:
        found = None if node.broker is None else node.broker.partitions.get(TOPIC, 0)
        state = "down" if node.broker is None else "no log"
        if found is not None:
            state = f"{found.log_start_offset}..{found.log_end_offset}, {found.damage}"
        told.append(" ".join((state, *node.refusals, *node.failures)))
    return told
