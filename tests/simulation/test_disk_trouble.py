# SPDX-License-Identifier: Apache-2.0
"""A node whose disk is full, damaged or failing does not lead where others can (R24, R25, R27)."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from headrace.errors import CorruptLogError
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import NO_NODE
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation import several_nodes
from tests.harness.simulation.clients import open_connection
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.cluster_plan import draw_plan
from tests.harness.simulation.several_nodes import TOPIC

ELECT_LEADERS, METADATA = 43, 3
ROOM = 1 << 40


async def all_in_sync(lab: ClusterLab) -> None:
    await lab.until(lambda: set(lab.state.isr) == {0, 1, 2}, "all replicas are in sync")


async def elect(lab: ClusterLab, kind: int) -> ErrorCode:
    up = next(node_id for node_id in range(3) if lab.nodes[node_id].broker is not None)
    connection = await open_connection(lab.world, *lab.addresses[up], "operator")
    partitions = [{"topic": TOPIC, "partitions": [0]}]
    fields = {"election_type": kind, "topic_partitions": partitions, "timeout": 1000}
    reply = await connection.call(ELECT_LEADERS, fields, timeout_ms=30_000)
    connection.abort()
    code: ErrorCode = reply.replica_election_results[0].partition_result[0].error_code
    return code


def fill(lab: ClusterLab, node_id: int) -> None:
    files = lab.nodes[node_id].machine.files
    files.capacity -= files.free_bytes(DATA_DIRECTORY)


def free(lab: ClusterLab, node_id: int) -> None:
    lab.nodes[node_id].machine.files.capacity = ROOM


def damage(lab: ClusterLab, node_id: int) -> None:
    """As a read or the scrub finds it."""
    lab.partition(node_id).fault(CorruptLogError("a batch at offset 0 has a wrong checksum"))


@pytest.mark.parametrize("profile", ["sqlite", "zookeeper"])
def test_a_leader_with_a_damaged_log_resigns_and_fetches_it_again(profile: str) -> None:
    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"before")
        victim, at = lab.state.leader, lab.simulation.loop.time()
        damage(lab, victim)
        await lab.until(lambda: lab.state.leader not in (victim, NO_NODE), "another leads")
        await lab.produced(b"after")
        assert lab.simulation.loop.time() - at < 2
        await lab.until(lambda: victim in lab.state.isr, "it holds all again")
        assert lab.partition(victim).log_end_offset == 2
        assert lab.partition(victim).online
        await lab.until(lambda: not lab.invariants.view.nodes[victim].offline, "it says so")
        await elect(lab, 0)
        await lab.produced(b"again")
        assert await lab.read_all() == [b"before", b"after", b"again"]

    simulate_cluster(scenario, profile=profile)  # type: ignore[arg-type]


def test_the_only_one_in_sync_with_a_damaged_log_waits_for_the_operator() -> None:
    """R27, R19: nobody else has all; an election that gives records up needs a word."""

    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        last = lab.state.leader
        behind = [node_id for node_id in range(3) if node_id != last]
        for node_id in behind:
            lab.nodes[node_id].cut_power()
        await lab.until(lambda: lab.state.isr == (last,), "it is alone")
        for node_id in behind:
            lab.simulation.network.cut(f"node{node_id}", f"node{last}")
            lab.start(node_id)
        await lab.until(lambda: len(lab.invariants.view.nodes) == 3, "the others are back and cannot copy")
        damage(lab, last)
        await lab.until(lambda: lab.state.leader == NO_NODE, "nobody leads")
        await asyncio.sleep(10)
        assert lab.state.leader == NO_NODE
        lab.simulation.network.mend_all()
        assert await elect(lab, 1) is ErrorCode.none
        assert lab.state.leader in behind
        await lab.produced(b"after")
        assert await lab.read_all() == [b"after"]

    simulate_cluster(scenario)


def test_a_full_leader_resigns_producers_go_on_and_it_returns_when_there_is_room() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"before")
        victim, at = lab.state.leader, lab.simulation.loop.time()
        fill(lab, victim)
        await lab.until(lambda: lab.state.leader not in (victim, NO_NODE), "another leads")
        await lab.produced(b"meanwhile")
        assert lab.simulation.loop.time() - at < 3
        assert victim not in lab.state.isr
        assert await elect(lab, 0) in (
            ErrorCode.preferred_leader_not_available, ErrorCode.election_not_needed, ErrorCode.none
        )  # fmt: skip
        assert lab.state.leader != victim
        free(lab, victim)
        await lab.until(lambda: victim in lab.state.isr, "it caught up")
        assert lab.partition(victim).log_end_offset == 2
        for node_id in set(range(3)) - {victim}:
            lab.nodes[node_id].stop_cleanly()
            await lab.until(lambda node_id=node_id: node_id not in lab.state.isr, "it stopped")  # type: ignore[misc]
        assert lab.state.leader == victim
        assert await lab.produce(b"after", acks=1, node_id=victim) is ErrorCode.none

    simulate_cluster(scenario)


def test_leadership_does_not_wander_among_nodes_that_are_all_full() -> None:
    """One disk under all nodes: reads go on where they were, and records are taken again after it."""

    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"before")
        for node_id in range(3):
            fill(lab, node_id)
        await lab.until(lambda: all(node.full for node in lab.invariants.view.nodes.values()), "all say so")
        before = lab.state.leader_epoch
        await asyncio.sleep(20)
        assert lab.state.leader_epoch == before
        assert lab.state.leader != NO_NODE
        assert await lab.read_all() == [b"before"]
        for node_id in range(3):
            free(lab, node_id)
        await lab.produced(b"after")
        await all_in_sync(lab)
        assert await lab.read_all() == [b"before", b"after"]

    simulate_cluster(scenario)


def test_a_node_that_stops_does_not_take_its_logs_for_damaged() -> None:
    """Others lead and its logs are closed already when one more change of the view comes."""

    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"kept")
        stopping = next(node for node in lab.state.replicas if node != lab.state.leader)
        broker, view = lab.nodes[stopping].broker, lab.invariants.view
        assert broker is not None
        closing = asyncio.ensure_future(broker.partitions.close())
        await asyncio.sleep(0)
        rest = tuple(node for node in lab.state.isr if node != stopping)
        changed = replace(view.topics[TOPIC], partitions=(replace(lab.state, isr=rest),))
        broker.partitions.apply_view(view, replace(view, topics={**view.topics, TOPIC: changed}))
        await closing
        names = lab.nodes[stopping].machine.files.listdir(DATA_DIRECTORY)
        assert f"{TOPIC}-0" in names
        assert not [name for name in names if name.endswith("-stray")]

    simulate_cluster(scenario)


def test_a_node_whose_disk_failed_does_not_claim_to_have_kept_everything() -> None:
    """R21, R24: records left to the page cache may be gone with a failed write-back, in the same boot."""

    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"before")
        victim = lab.state.leader
        broker = lab.nodes[victim].broker
        assert broker is not None
        broker.partitions._flusher.disk_failed(OSError(errno.EIO, "Input/output error"))
        await lab.until(lambda: victim not in lab.invariants.view.nodes, "it ended")
        lab.start(victim)
        await lab.until(lambda: victim in lab.invariants.view.nodes, "it is back")
        assert not lab.invariants.view.nodes[victim].lossless
        await all_in_sync(lab)
        lab.nodes[victim].stop_cleanly()
        await lab.until(lambda: victim not in lab.invariants.view.nodes, "it stopped")
        lab.start(victim)
        await lab.until(lambda: victim in lab.invariants.view.nodes, "it is back again")
        assert lab.invariants.view.nodes[victim].lossless

    simulate_cluster(scenario)


@pytest.mark.parametrize("operation", ["pwritev:.log", "fsync:.log"])
def test_a_leader_whose_disk_fails_ends_and_others_lead_at_once(operation: str) -> None:
    """R24: an error of the disk is never taken back; under `ack` nothing unsynced was acknowledged."""

    async def scenario(lab: ClusterLab) -> None:
        await all_in_sync(lab)
        await lab.produced(b"before")
        victim, at = lab.state.leader, lab.simulation.loop.time()
        errors = lab.nodes[victim].machine.files.errors
        errors[operation] = OSError(errno.EIO, "Input/output error")
        await lab.produced(b"after")
        assert lab.simulation.loop.time() - at < lab.plan.session_ms / 1000
        assert lab.state.leader not in (victim, NO_NODE)
        assert any("the disk of" in failure for failure in lab.nodes[victim].failures)
        errors.clear()
        lab.start(victim)
        await all_in_sync(lab)
        assert (await lab.read_all())[0] == b"before"
        assert b"after" in await lab.read_all()

    simulate_cluster(scenario, flush="ack")


SEEDS = 20
MIXED = (
    *("damaged_log", "damaged_log", "disk_full", "disk_full"),
    *("kill", "restart", "slow_disk", "pause"),
)


def test_t2_nothing_is_lost_where_disks_fill_and_logs_are_damaged_between_kills() -> None:
    """As test_several_nodes.py, with a mix of its own."""
    faults: Counter[str] = Counter()
    for seed in range(1, SEEDS + 1):
        plan = replace(draw_plan(Random(f"disk plan {seed}")), allowed_faults=MIXED)
        report = several_nodes.run_seed(seed, plan=plan)
        faults.update(report.faults)
        assert report.outcomes["ok"]
    assert faults["damage done"] > SEEDS // 3
    assert faults["disk_full"] > SEEDS
