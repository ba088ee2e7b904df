# SPDX-License-Identifier: Apache-2.0
"""Schedules for rules of the store, of registrations, starts and disks, on the real broker code (T2).

Plain functions that raise; each breaks when its rule is taken out (T3). Read next: cluster_lab.py,
cluster_scenarios.py (of replicated logs).
"""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

from headrace.log.checkpoints import CLEAN_MARKER_FILE
from headrace.log.epochs import FILE_NAME
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.simulation.clients import SimConnection, log_in_as_node, open_connection
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.cluster_scenarios import all_alike, others_of
from tests.harness.simulation.several_nodes import TOPIC, run_seed

_RESERVE_BYTES = 16 << 20
"""More than the ballast, which is released when nearly nothing is free."""


async def connect_as(lab: ClusterLab, to: int, node_id: int) -> SimConnection:
    """A connection to a node that has logged in as another one."""
    broker = lab.nodes[to].broker
    assert broker is not None
    connection = await open_connection(lab.world, *lab.addresses[to], "as a node")
    await log_in_as_node(connection, node_id, broker.cluster)
    return connection


def changes_of_one_topic_at_the_same_time_are_all_kept() -> None:
    """R1: each writes the whole entry, on the condition that it is the one that was read."""
    settings = {"retention.ms": "60000", "segment.ms": "70000", "max.message.bytes": "80000"}

    async def scenario(lab: ClusterLab) -> None:
        await all_alike(lab)
        asked = lab.invariants.view.controller_id

        async def alter(name: str, value: str) -> None:
            connection = await open_connection(lab.world, *lab.addresses[asked], "operator")
            config = {"name": name, "config_operation": 0, "value": value}
            resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
            fields = {"resources": [resource], "validate_only": False}
            code = ErrorCode.unknown_server_error
            while code is not ErrorCode.none:
                reply = await connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, timeout_ms=10_000)
                code = reply.responses[0].error_code
            connection.abort()

        lab.nodes[others_of(lab, asked)[0]].kill()  # its replica leaves the ISR meanwhile
        await asyncio.gather(*(alter(name, value) for name, value in settings.items()))
        kept = lab.invariants.view.topics[TOPIC].configs
        assert settings.items() <= kept.items(), f"{kept} of {settings}"

    for seed in range(3):
        simulate_cluster(scenario, seed)


def an_earlier_registration_of_a_node_counts_for_nothing() -> None:
    """R3: neither its proposals nor its fetches; those of one that is not known yet are to be repeated."""

    async def scenario(lab: ClusterLab) -> None:
        await all_alike(lab)
        victim = lab.state.leader
        earlier = lab.invariants.view.nodes[victim].epoch
        lab.nodes[victim].kill()
        await lab.until(lambda: lab.state.leader not in (victim, NO_NODE), "another leads")
        lab.start(victim)
        await all_alike(lab)
        present = lab.invariants.view.nodes[victim].epoch
        assert present > earlier
        controller = lab.invariants.view.controller_id
        connection = await connect_as(lab, controller, victim)
        for epoch, expected in (
            (earlier, ErrorCode.stale_broker_epoch),
            (present, ErrorCode.none),
        ):
            fields = {"broker_id": victim, "broker_epoch": epoch, "topics": []}
            reply = await connection.call(ApiKey.ALTER_PARTITION, fields)
            assert reply.error_code is expected, f"proposed in epoch {epoch}: {reply.error_code!r}"
        connection.abort()
        for epoch, expected in (
            (earlier, ErrorCode.stale_broker_epoch),
            (present + 1, ErrorCode.broker_id_not_registered),
            (present, ErrorCode.none),
        ):
            asking = lab.fetch_as_replica(lab.state.leader_epoch, follower=victim, node_epoch=epoch)
            code = await asking
            assert code is expected, f"fetched in epoch {epoch}: {code!r}"

    simulate_cluster(scenario, profile="zookeeper")


def a_follower_changes_no_in_sync_replicas() -> None:
    """R4: the leader proposes, and the controller writes."""

    async def scenario(lab: ClusterLab) -> None:
        await all_alike(lab)
        before = lab.state
        follower = next(node_id for node_id in before.replicas if node_id != before.leader)
        epoch_of = {node_id: node.epoch for node_id, node in lab.invariants.view.nodes.items()}
        members = [{"broker_id": each, "broker_epoch": epoch_of[each]} for each in before.isr[:2]]
        proposed = {
            "partition_index": 0,
            "leader_epoch": before.leader_epoch,
            "new_isr_with_epochs": members,
            "leader_recovery_state": 0,
            "partition_epoch": before.partition_epoch,
        }
        topic_id = lab.invariants.view.topics[TOPIC].topic_id
        fields = {
            "broker_id": follower,
            "broker_epoch": epoch_of[follower],
            "topics": [{"topic_id": topic_id, "partitions": [proposed]}],
        }
        for node_id in range(lab.plan.nodes):
            connection = await connect_as(lab, node_id, follower)
            reply = await connection.call(ApiKey.ALTER_PARTITION, fields)
            connection.abort()
            assert lab.state == before, f"changed by node {node_id}: {lab.state}"
            if node_id != lab.invariants.view.controller_id:
                assert reply.error_code is ErrorCode.not_controller
            else:
                assert reply.topics[0].partitions[0].error_code is ErrorCode.fenced_leader_epoch

    simulate_cluster(scenario)


def a_new_leader_takes_no_records_before_its_epoch_is_on_disk() -> None:
    """R9: an error in the middle of a role change is repaired, and the change is not taken for done."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        first = lab.state.leader
        disks = [lab.nodes[node_id].machine.files for node_id in others_of(lab, first)]

        def fail(operation: str, path: Path) -> None:
            is_of_topic = path.parent.name == f"{TOPIC}-0" and path.name.startswith(FILE_NAME)
            if operation == "pwritev" and is_of_topic:
                raise OSError(errno.EIO, "Input/output error")

        for files in disks:
            files.on_operation = fail
        lab.nodes[first].kill()
        await lab.until(lambda: lab.state.leader not in (first, NO_NODE), "another is elected")
        second = lab.state.leader
        await lab.until(lambda: lab.partition(second).leads, "it knows that it leads")
        await asyncio.sleep(3)
        assert not lab.partition(second).takes_writes, "its epoch is not on disk"
        for files in disks:
            files.on_operation = None
        await lab.until(lambda: lab.partition(second).takes_writes, "it tried again")
        await lab.produced(b"two")
        lab.start(first)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario)


def after_a_power_cut_of_all_the_longest_log_leads_once_all_are_back() -> None:
    """R19b: with records left to the page cache nobody is sure; all that were in sync are asked."""

    async def scenario(lab: ClusterLab) -> None:
        await all_alike(lab)
        await lab.produced(b"first")
        last = lab.partition(2)
        await lab.until(lambda: last.log_end_offset == 1, "the last has it")
        last.request_flush()
        await last.flushed()
        for node in lab.nodes:
            node.cut_power()
        lab.invariants.forget_what_was_committed()
        for node_id in (0, 1):
            lab.start(node_id)
        await lab.until(lambda: set(lab.invariants.view.nodes) == {0, 1}, "two are back")
        await asyncio.sleep(5)
        assert lab.state.leader == NO_NODE, "the last may hold more"
        lost.append({lab.partition(0).log_end_offset, lab.partition(1).log_end_offset} == {0})
        lab.start(2)
        await lab.until(lambda: lab.state.leader != NO_NODE, "all are back, and one leads")
        await lab.produced(b"after")
        assert await lab.read_all() == [b"first", b"after"]

    lost: list[bool] = []
    for seed in range(1, 5):
        simulate_cluster(scenario, seed)
    assert any(lost), "the others never lost it"


def two_of_three_killed_processes_are_enough_to_go_on() -> None:
    """R21: all die at once, and the page cache is intact: those that return hold all that they reported."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        for node in lab.nodes:
            node.kill()
        first, second, _ = lab.state.replicas
        for node_id in (first, second):
            lab.start(node_id)
        await lab.until(lambda: lab.state.leader in (first, second), "one of them leads")
        assert await lab.read_all() == [b"one"]
        await lab.produced(b"two")

    for profile in ("sqlite", "zookeeper"):
        simulate_cluster(scenario, profile=profile)


def a_leader_with_too_little_room_hands_over_before_its_disk_is_full() -> None:
    """R25: what is left is for checkpoints and retention; records go on elsewhere."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        victim = lab.state.leader
        leave_free(lab, victim, _RESERVE_BYTES - 1)
        await lab.until(lambda: lab.state.leader not in (victim, NO_NODE), "another leads")
        await lab.until(lambda: victim not in lab.state.isr, "it is out of sync")
        await lab.produced(b"two")
        assert lab.partition(victim).log_end_offset == 1, "nor does it copy records"
        leave_free(lab, victim, 1 << 40)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, settings={"headrace.disk.reserve.bytes": str(_RESERVE_BYTES)})


def a_full_disk_has_room_for_checkpoints() -> None:
    """R25: the ballast is released when nothing else is free."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        victim = others_of(lab, lab.state.leader)[0]
        files, broker = lab.nodes[victim].machine.files, lab.nodes[victim].broker
        await lab.until(lambda: files.exists(DATA_DIRECTORY / "ballast"), "it has put room aside")
        leave_free(lab, victim, 0)
        await lab.until(lambda: lab.invariants.view.nodes[victim].full, "it says that it is full")
        assert broker is not None
        await lab.produced(b"two")
        await broker.offsets.persist()
        lab.nodes[victim].stop_cleanly()
        await lab.until(lambda: victim not in lab.invariants.view.nodes, "it stopped")
        assert files.exists(DATA_DIRECTORY / CLEAN_MARKER_FILE), "it could not stop cleanly"

    simulate_cluster(scenario, settings={"headrace.disk.reserve.bytes": str(_RESERVE_BYTES)})


def leave_free(lab: ClusterLab, node_id: int, byte_count: int) -> None:
    files = lab.nodes[node_id].machine.files
    files.capacity += byte_count - files.free_bytes(DATA_DIRECTORY)


def requests_that_wait_are_not_overwritten_by_those_of_others() -> None:
    """R30: bytes behind a request that waits are kept apart from what the node reads next."""

    async def scenario(lab: ClusterLab) -> None:
        await all_alike(lab)
        leader = lab.state.leader
        waiting = await open_connection(lab.world, *lab.addresses[leader], "waiting")
        others = [await open_connection(lab.world, *lab.addresses[leader], "other") for _ in range(3)]
        log_end = lab.partition(leader).log_end_offset
        fetch = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": log_end}
        topics = [{"topic": TOPIC, "partitions": [{**fetch, "partition_max_bytes": 1000}]}]
        fields = {"replica_id": -1, "max_wait": 3_000, "min_bytes": 1000, "max_bytes": 2000, "topics": topics}
        waiting.send(ApiKey.FETCH, fields, version=11)
        sent = [asyncio.ensure_future(_append(waiting, b"waits %d" % number)) for number in range(3)]
        await asyncio.sleep(0.5)
        for number, connection in enumerate(others):
            await _append(connection, b"%d" % number * 7)
        await asyncio.gather(*sent)
        values = await lab.read_all()
        assert sorted(values) == sorted(
            [*(b"waits %d" % number for number in range(3)), *(b"%d" % number * 7 for number in range(3))]
        ), values

    simulate_cluster(scenario)


async def _append(connection: SimConnection, value: bytes) -> None:
    data = {"index": 0, "records": bytes(build_batch([Record(0, 0, None, value)]))}
    topics = [{"name": TOPIC, "partition_data": [data]}]
    fields: dict[str, Any] = {"transactional_id": None, "acks": 1, "timeout": 5_000, "topic_data": topics}
    reply = await connection.call(ApiKey.PRODUCE, fields, version=8, timeout_ms=20_000)
    code = reply.responses[0].partition_responses[0].error_code
    assert code is ErrorCode.none, code


def the_same_seed_gives_the_same_run() -> None:
    """R35: nothing of the clock, the order of threads or the randomness of this machine is in it."""
    hashes = [run_seed(5, duration_s=1.0).trace_hash for _ in range(2)]
    assert all(one == other for one, other in pairwise(hashes)), "it is not repeatable"


SCENARIOS = (
    changes_of_one_topic_at_the_same_time_are_all_kept,
    an_earlier_registration_of_a_node_counts_for_nothing,
    a_follower_changes_no_in_sync_replicas,
    a_new_leader_takes_no_records_before_its_epoch_is_on_disk,
    after_a_power_cut_of_all_the_longest_log_leads_once_all_are_back,
    two_of_three_killed_processes_are_enough_to_go_on,
    a_leader_with_too_little_room_hands_over_before_its_disk_is_full,
    a_full_disk_has_room_for_checkpoints,
    requests_that_wait_are_not_overwritten_by_those_of_others,
    the_same_seed_gives_the_same_run,
)
