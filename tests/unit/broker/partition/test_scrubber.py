# SPDX-License-Identifier: Apache-2.0
"""What the scrub takes for damage, and what for a log that changed while it was checked (R27)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.metrics import ScrubCounters
from headrace.broker.partition.scrubber import INTERVAL, RATE, Scrubber
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.simworld import Simulation, SimWorld
from tests.harness.batches.log_tools import DIRECTORY, batch, open_log

BATCHES_PER_SEGMENT, BATCHES = 4, 10
SETTINGS = {INTERVAL: 60_000, RATE: 1 << 30}


class OnePartition:
    """With a log of three segments."""

    online = True
    leads = False

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.damaged_segments: dict[int, str] = {}
        self.size_bytes = log.size_bytes

    def report_damage(self, base_offset: int, what: str) -> None:
        self.damaged_segments[base_offset] = what


def scrubbed(meanwhile: Any) -> dict[int, str]:
    """What is found; `meanwhile` is called with the log while its first segment is checked."""
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        view, _ = batch(b"value")
        config = LogConfig(segment_bytes=BATCHES_PER_SEGMENT * len(view))
        partition = OnePartition(open_log(world.files, config))
        for _ in range(BATCHES):
            partition.log.append(*batch(b"value"), 0)

        async def scenario() -> None:
            world.tasks.call_soon(meanwhile, partition.log, world)
            await scrubber(world, partition).run_when_due()

        simulation.run(scenario())
        return partition.damaged_segments


def scrubber(world: SimWorld, partition: OnePartition) -> Scrubber:
    partitions: Any = SimpleNamespace(all=lambda: [partition], repaired={})
    return Scrubber(
        world=world, partitions=partitions, setting=SETTINGS.__getitem__, counters=ScrubCounters()
    )


def test_a_log_that_is_truncated_while_it_is_checked_is_not_damaged() -> None:
    """Also where it ends in a segment that was planned to be checked, and whose turn comes later."""
    for end in (BATCHES_PER_SEGMENT - 1, BATCHES_PER_SEGMENT + 1, BATCHES - 1):
        assert scrubbed(lambda log, _, end=end: log.truncate_to(end)) == {}


def test_a_file_that_was_cut_is_damaged() -> None:
    def cut(log: PartitionLog, world: SimWorld) -> None:
        file = world.files.open(DIRECTORY / f"{BATCHES_PER_SEGMENT:020d}.log", "write")
        file.truncate(50)
        file.close()

    assert list(scrubbed(cut)) == [BATCHES_PER_SEGMENT]
