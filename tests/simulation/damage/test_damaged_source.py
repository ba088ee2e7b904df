# SPDX-License-Identifier: Apache-2.0
"""Damage on two replicas, and deaths in the middle of a repair: every replica becomes whole again (R27)."""

from __future__ import annotations

import pytest

from headrace.log.repair import marker
from headrace.testing.memory_files import MemoryFiles
from headrace.world import read_file, replace_file
from tests.harness import soak
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.damaged_files import LOG, SETTINGS, all_equal, flip
from tests.harness.simulation.damaged_source import run_seed
from tests.harness.simulation.seeds import run_all

SIMULATION = "damaged_source"
SOAK_SEEDS = 1_000


@pytest.mark.parametrize("seed", range(1, 7))
def test_damage_on_two_replicas_heals_from_the_third(seed: int) -> None:
    report = run_seed(seed)
    assert report.records_read
    assert not report.outcomes["refetched"]


async def stopped_with_records(lab: ClusterLab, count: int) -> MemoryFiles:
    """All replicas have so many records, and node 0 has stopped cleanly; its files."""
    await lab.until(lambda: set(lab.state.isr) == {0, 1, 2}, "all replicas are in sync")
    for number in range(count):
        await lab.produced(b"%d" % number)
    lab.nodes[0].stop_cleanly()
    await lab.until(lambda: lab.nodes[0].broker is None, "it has stopped")
    return lab.nodes[0].machine.files


def test_a_log_whose_damage_cannot_be_confined_is_fetched_as_a_whole() -> None:
    """What names the damaged segment is damaged itself."""
    refetched = []

    async def scenario(lab: ClusterLab) -> None:
        files = await stopped_with_records(lab, 20)
        replace_file(files, LOG / marker.FILE_NAME, b"?")
        lab.start(0)
        await lab.until(lambda: all_equal(lab), "all replicas are equal")
        broker = lab.nodes[0].broker
        assert broker is not None
        refetched.append(broker.metrics.scrub.refetched)
        assert list(dict.fromkeys(await lab.read_all())) == [b"%d" % number for number in range(20)]

    simulate_cluster(scenario, settings=SETTINGS)
    assert refetched == [1]


def test_a_damaged_segment_that_the_leader_has_deleted_is_kept_aside_and_the_log_begins_later() -> None:
    found = []

    async def scenario(lab: ClusterLab) -> None:
        files = await stopped_with_records(lab, 30)
        flip(files, LOG / f"{0:020d}.log", 800)
        damaged = read_file(files, LOG / f"{0:020d}.log")
        marker.write(files, LOG, 0)
        await lab.until(lambda: lab.state.leader in (1, 2), "another node leads")
        await lab.partition(lab.state.leader).delete_records_before(20)
        lab.start(0)
        await lab.until(lambda: lab.nodes[0].broker is not None and all_equal(lab), "all are equal")
        broker = lab.nodes[0].broker
        assert broker is not None
        assert read_file(files, LOG / f"{0:020d}.log.damaged-1") == damaged
        counters = broker.metrics.scrub
        await lab.until(lambda: counters.kept > 0, "what is kept aside is counted")
        assert (counters.kept, counters.kept_bytes) == (1, len(damaged))
        found.append((lab.partition(0).log_start_offset, counters.repaired, counters.refetched))

    simulate_cluster(scenario, settings=SETTINGS)
    assert found == [(20, 1, 0)]


def test_a_whole_log_is_fetched_in_a_later_leader_epoch_than_the_range_that_did_not_fit() -> None:
    """What the repair asked for may arrive late, and names offsets that the log does not hold any more."""
    found = []

    async def scenario(lab: ClusterLab) -> None:
        files = await stopped_with_records(lab, 30)
        flip(files, LOG / f"{0:020d}.log", 800)
        marker.write(files, LOG, 0)
        await lab.until(lambda: lab.state.leader in (1, 2) and 0 not in lab.state.isr, "others go on")
        await lab.partition(lab.state.leader).delete_records_before(2)
        epoch = lab.state.leader_epoch
        lab.start(0)
        await lab.until(lambda: lab.nodes[0].broker is not None and all_equal(lab), "all are equal")
        broker = lab.nodes[0].broker
        assert broker is not None
        found.append((broker.metrics.scrub.refetched, lab.state.leader_epoch - epoch))
        await lab.until(lambda: not lab.invariants.view.nodes[0].offline_epochs, "it takes its report back")

    simulate_cluster(scenario, settings=SETTINGS)
    assert found == [(1, 1)]


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_damage_on_two_replicas_heals() -> None:
    first = soak.fresh_seeds().stop
    tally = run_all(SIMULATION, range(first, first + SOAK_SEEDS))
    assert tally.failures == []
    assert min(tally.faults[name] for name in ("one", "two", "killed")) > SOAK_SEEDS // 10
