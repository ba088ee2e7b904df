# SPDX-License-Identifier: Apache-2.0
"""Hostile, damaged and sound frames against a whole simulated node, in process (T15).

Every frame is answered or closes its connection, nothing unforeseen is raised in the node, and memory
stays. The same on sockets: tests/integration/test_fuzzed_requests.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from headrace.testing.simworld import Simulation
from tests.harness import soak
from tests.harness.broker.simulated_node import SimBroker
from tests.harness.fuzzing.fast_paths import outcome, repeating_requests
from tests.harness.fuzzing.frames import frames
from tests.harness.fuzzing.node_under_fire import endure, no_unforeseen_errors

SHORT, LONG = 50_000, 1_000_000
WARM_UP, CHUNK = 5_000, 5_000
MEMORY_ROOM = 64 << 20
SEEDS = 12


def resident_bytes() -> int:
    """Without what the allocator keeps of memory that was given back."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def fire(node: SimBroker, chance: Random, count: int) -> Counter[str]:
    """In chunks: what the frames delete or configure away is there again in the next one."""
    outcomes: Counter[str] = Counter()
    while count > 0:
        await node.create()
        outcomes += await endure(node, islice(frames(chance), min(count, CHUNK)))
        count -= CHUNK
    return outcomes


def survive(count: int, seed: int) -> dict[str, object]:
    """Memory is counted from when caches and buffers are warm. What came of the frames, and the growth."""
    with Simulation(seed, max_steps=1000 * count) as simulation, no_unforeseen_errors():

        async def main() -> dict[str, object]:
            node, chance = SimBroker(simulation, {}), Random(seed)
            await node.start()
            await fire(node, chance, WARM_UP)
            before = resident_bytes()
            outcomes = await fire(node, chance, count)
            grown = resident_bytes() - before
            assert await node.create() in (0, 36)  # it serves, and the topic may exist
            return {"frames": count, "outcomes": dict(outcomes), "grown_bytes": grown}

        figures = simulation.run(main())
    assert int(str(figures["grown_bytes"])) < MEMORY_ROOM
    return figures


def test_t15_frames_in_process_are_answered_or_closed_and_memory_stays() -> None:
    figures = survive(SHORT, soak.first_seed())
    outcomes = Counter(figures["outcomes"])  # type: ignore[arg-type]
    assert outcomes["answered"] > SHORT // 4
    assert outcomes["closed"] > SHORT // 10
    assert outcomes["given up"] < SHORT // 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t15_fuzz_a_million_frames_in_process() -> None:
    started, seed = time.monotonic(), soak.first_seed() + 1
    soak.write_report("T15-in-process", started, {"seed": seed, **survive(LONG, seed)})


@pytest.mark.parametrize("number", range(SEEDS))
def test_fast_paths_give_the_replies_and_the_state_of_the_plain_ones(number: int) -> None:
    requests = repeating_requests(Random(soak.first_seed() + number))
    assert outcome(requests, fast=True) == outcome(requests, fast=False)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t15_fuzz_fast_paths() -> None:
    for number in range(SEEDS, 2_000):
        requests = repeating_requests(Random(soak.first_seed() + number))
        assert outcome(requests, fast=True) == outcome(requests, fast=False), number
