# SPDX-License-Identifier: Apache-2.0
"""Schedules that replicated logs are known to fail on, on the real broker code, by name (T2).

Most are what a protocol of Apache Kafka's once lost or hung on: see the design's reliability document, 1.3.
Plain functions that raise; each breaks when its rule is taken out (T3). Read next: cluster_lab.py.
"""

from __future__ import annotations

import asyncio

from headrace.errors import CorruptLogError
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import open_connection
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.routing import open_any
from tests.harness.simulation.several_nodes import TOPIC
from tests.harness.simulation.store import STORE_HOST


def others_of(lab: ClusterLab, *node_ids: int) -> list[int]:
    return [node_id for node_id in range(lab.plan.nodes) if node_id not in node_ids]


async def only(lab: ClusterLab, node_id: int) -> None:
    """All others die, and the store knows it."""
    for other in others_of(lab, node_id):
        lab.nodes[other].kill()
    await lab.until(lambda: lab.state.isr == (node_id,), f"node {node_id} is alone in sync")


async def all_alike(lab: ClusterLab) -> None:
    await lab.until(lambda: set(lab.state.isr) == set(lab.state.replicas), "all are in sync")
    for node in lab.nodes:  # it copies before it serves
        await node.wait_until_serving()
    ends = {lab.partition(node_id).log_end_offset for node_id in range(lab.plan.nodes)}
    assert len(ends) == 1


def a_sole_in_sync_replica_restarts_with_a_tail_above_the_high_watermark() -> None:
    """Liveness: the others catch up on the tail, join, and it is committed."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"committed")
        leader = lab.state.leader
        await only(lab, leader)
        assert await lab.produce(b"tail", acks=1, node_id=leader) is ErrorCode.none
        assert await lab.produce(b"refused", node_id=leader) is ErrorCode.not_enough_replicas
        lab.nodes[leader].kill()
        lab.start(leader)
        await lab.until(lambda: lab.nodes[leader].broker is not None, "it is back")
        await lab.until(lambda: lab.state.leader == leader, "it leads")
        await lab.until(lambda: lab.partition(leader).leads, "it knows that it leads")
        assert lab.partition(leader).high_watermark < lab.partition(leader).log_end_offset == 2
        for other in others_of(lab, leader):
            lab.start(other)
        await all_alike(lab)
        assert await lab.read_all() == [b"committed", b"tail"]
        await lab.produced(b"more")

    for profile in ("sqlite", "zookeeper"):
        simulate_cluster(scenario, profile=profile)


def kip_101_a_fast_double_failover_loses_nothing() -> None:
    """A follower restarts before it heard that its last record is committed, then its leader dies."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        first = lab.state.leader
        second, third = others_of(lab, first)
        lab.nodes[third].kill()
        await lab.until(lambda: third not in lab.state.isr, "the third is out of sync")
        await lab.produced(b"two")
        assert lab.partition(second).high_watermark < lab.partition(second).log_end_offset
        lab.nodes[second].kill()
        lab.start(second)
        await lab.until(lambda: lab.nodes[second].broker is not None, "the second is back")
        lab.nodes[first].kill()
        await lab.until(lambda: lab.state.leader == second, "the second leads")
        lab.start(first)
        lab.start(third)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario)


def kip_101_a_log_that_parts_is_cut_where_it_parts_and_no_earlier() -> None:
    """A follower holds what was acknowledged and more, and has not heard yet that it is committed."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        first, second, third = lab.state.replicas
        assert lab.state.leader == first
        name = {node_id: lab.nodes[node_id].machine.name for node_id in (first, second, third)}
        network = lab.simulation.network
        await lab.until(lambda: lab.partition(third).high_watermark == 1, "the third knows of it")
        waiting = lab.partition(first).commits._replica_waiters
        await lab.until(lambda: len(waiting) == 2, "fetches of both wait for the next record")
        network.cut(name[second], name[first])
        two = asyncio.ensure_future(lab.produce(b"two", node_id=first))
        both = (lab.partition(second), lab.partition(third))
        await lab.until(lambda: all(each.log_end_offset == 2 for each in both), "both have the second record")
        assert await lab.produce(b"never committed", acks=1, node_id=first) is ErrorCode.none
        await lab.until(lambda: lab.partition(third).log_end_offset == 3, "the third has all")
        network.cut(name[first], name[second])
        network.cut(name[first], name[third])
        network.mend(name[second], name[first])
        assert await two is ErrorCode.none
        assert lab.partition(third).high_watermark == 1, "it was told of nothing"
        lab.nodes[first].cut_power()
        network.mend_all()
        await lab.until(lambda: lab.state.leader == second, "the second leads")
        lab.start(first)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario)


def a_shrink_that_is_not_stored_commits_nothing() -> None:
    """R15: a leader wants its followers out of sync, and the controller does not hear of it."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await lead_apart_from_the_controller(lab)
        leader = lab.state.leader
        network, name = lab.simulation.network, lab.nodes[leader].machine.name
        for other in others_of(lab, leader):
            network.cut(name, lab.nodes[other].machine.name)
            network.cut(lab.nodes[other].machine.name, name)
        for value in (b"two", b"three"):  # by the second it has long asked for the shrink
            assert await lab.produce(value, node_id=leader) is ErrorCode.request_timed_out
        assert len(lab.state.isr) == lab.plan.nodes
        network.mend_all()
        everywhere = [lab.partition(node_id) for node_id in range(lab.plan.nodes)]
        await lab.until(lambda: all(each.high_watermark == 3 for each in everywhere), "all is committed")
        assert await lab.read_all() == [b"one", b"two", b"three"]

    simulate_cluster(scenario, lag_ms=500)


async def lead_apart_from_the_controller(lab: ClusterLab) -> None:
    while lab.state.leader == lab.invariants.view.controller_id:
        leader = lab.state.leader
        lab.nodes[leader].kill()
        await lab.until(lambda gone=leader: lab.state.leader not in (gone, -1), "another leads")  # type: ignore[misc]
        lab.start(leader)
        await all_alike(lab)


def kip_279_logs_that_part_in_several_epochs_become_one() -> None:
    """Two leaders wrote what nobody copied; the third has never heard of their epochs' ends."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        first = lab.state.leader
        await write_alone_and_die(lab, b"lost by the first")
        await lab.until(lambda: lab.state.leader not in (first, -1), "another leads")
        second = lab.state.leader
        (third,) = others_of(lab, first, second)
        await lab.until(lambda: lab.partition(second).takes_writes, "it takes records")
        await write_alone_and_die(lab, b"lost by the second")
        await lab.until(lambda: lab.state.leader == third, "the third leads")
        lab.start(first)
        await lab.produced(b"two")
        lab.start(second)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, flush="ack")


async def write_alone_and_die(lab: ClusterLab, value: bytes) -> None:
    """acks=1: written and synced by the leader, and copied by nobody."""
    leader = lab.state.leader
    network, name = lab.simulation.network, lab.nodes[leader].machine.name
    for other in others_of(lab, leader):
        network.cut(name, lab.nodes[other].machine.name)
    assert await lab.produce(value, acks=1, node_id=leader) is ErrorCode.none
    await asyncio.sleep(0.5)
    lab.nodes[leader].cut_power()
    network.mend_all()


def kip_320_a_leader_that_slept_through_its_end_acknowledges_nothing() -> None:
    """Nor does the new one answer readers of another epoch than its own."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        old = lab.state.leader
        world = lab.nodes[old].world
        assert world is not None
        lab.simulation.loop.pause(world.process)
        await lab.until(lambda: lab.state.leader not in (old, -1), "another leads")
        await lab.produced(b"two")
        sent = asyncio.ensure_future(lab.produce(b"to the zombie", node_id=old))
        await asyncio.sleep(0.5)
        lab.simulation.loop.resume(world.process)
        assert await sent is not ErrorCode.none
        await check_fences(lab)
        await all_alike(lab)
        values = await lab.read_all()
        assert values[:2] == [b"one", b"two"]
        assert b"to the zombie" not in values

    simulate_cluster(scenario, profile="zookeeper")


async def check_fences(lab: ClusterLab) -> None:
    """R11."""
    connection = await open_connection(lab.world, *lab.addresses[lab.state.leader], "lab")
    for off_by, expected in (
        (-1, ErrorCode.fenced_leader_epoch),
        (0, ErrorCode.none),
        (1, ErrorCode.unknown_leader_epoch),
    ):
        partition = {
            "partition": 0,
            "current_leader_epoch": lab.state.leader_epoch + off_by,
            "fetch_offset": 0,
            "partition_max_bytes": 1000,
        }
        topics = [{"topic": TOPIC, "partitions": [partition]}]
        fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "topics": topics}
        reply = await connection.call(ApiKey.FETCH, fields, version=11)
        assert reply.responses[0].partitions[0].error_code is expected
        if expected is not ErrorCode.none:
            assert await lab.fetch_as_replica(lab.state.leader_epoch + off_by) is expected
    connection.abort()


def a_replica_that_lacks_what_was_acknowledged_is_not_let_in() -> None:
    """R16: a new leader has not heard that its last record is committed; who has all else asks for it."""

    async def scenario(lab: ClusterLab) -> None:
        await lead_apart_from_the_controller(lab)
        await lab.produced(b"one")
        first, second = lab.state.leader, lab.invariants.view.controller_id
        (third,) = others_of(lab, first, second)
        ends = (lab.partition(second), lab.partition(third))
        await lab.until(lambda: all(each.high_watermark == 1 for each in ends), "both know of it")
        network, name = lab.simulation.network, lab.nodes[third].machine.name
        for other in (first, second):
            network.cut(name, lab.nodes[other].machine.name)
            network.cut(lab.nodes[other].machine.name, name)
        await lab.produced(b"two")
        assert third not in lab.state.isr
        lab.nodes[first].kill()
        await lab.until(lambda: lab.state.leader == second and ends[0].leads, "the second leads")
        assert ends[0].high_watermark < ends[0].log_end_offset == 2
        last_epoch = ends[1].log.epochs.latest
        asking = lab.fetch_as_replica(lab.state.leader_epoch, follower=third, offset=1, last_epoch=last_epoch)
        assert await asking is ErrorCode.none
        await asyncio.sleep(1)
        assert lab.state.isr == (second,)
        network.mend_all()
        lab.start(first)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, lag_ms=500)


def a_leader_cut_off_from_everybody_acknowledges_nothing_and_loses_its_tail() -> None:
    """Clients still reach it: what it took with acks=1 is given up, as the documents say."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        old = lab.state.leader
        for other in (*(lab.nodes[node_id].machine.name for node_id in others_of(lab, old)), STORE_HOST):
            lab.simulation.network.cut(lab.nodes[old].machine.name, other)
            lab.simulation.network.cut(other, lab.nodes[old].machine.name)
        assert await lab.produce(b"lost", acks=1, node_id=old) is ErrorCode.none
        assert await lab.produce(b"not acknowledged", node_id=old) is not ErrorCode.none
        await lab.until(lambda: lab.state.leader not in (old, -1), "another is elected")
        new = lab.partition(lab.state.leader)
        await lab.until(lambda: new.leads, "another leads")  # until then it still copies from the old one
        assert await lab.produce(b"too late", acks=1, node_id=old) is ErrorCode.not_leader_or_follower
        lab.simulation.network.mend_all()
        await lab.produced(b"two")
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, profile="zookeeper")


def a_controller_that_was_replaced_creates_nothing() -> None:
    """R2: it has not heard of its end, and the store refuses what it writes."""

    async def scenario(lab: ClusterLab) -> None:
        old = lab.invariants.view.controller_id
        world = lab.nodes[old].world
        assert world is not None
        connection = await open_connection(lab.world, *lab.addresses[old], "lab")
        lab.simulation.network.cut(STORE_HOST, world.process.host)
        lab.store.expire(world.process)
        await lab.until(lambda: lab.invariants.view.controller_id not in (old, -1), "another is controller")
        topic = {"name": "late", "num_partitions": 1, "replication_factor": 1}
        connection.send(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 1_000})
        await asyncio.sleep(1)
        assert "late" not in lab.invariants.view.topics
        connection.abort()
        lab.simulation.network.mend_all()

    simulate_cluster(scenario, profile="zookeeper")


def a_replica_that_lost_its_tail_does_not_lead() -> None:
    """R20: the only one that surely has the record is dead; nobody leads until it is back."""

    async def scenario(lab: ClusterLab) -> None:
        await lose_power_of_the_second(lab)
        await check_that_the_second_waits_for_the_first(lab)

    for seed in range(4):
        simulate_cluster(scenario, seed)


def a_replica_that_lost_its_tail_says_so_until_it_is_let_in() -> None:
    """R20: its first start after the power cut ends unheard; the next one is in the same boot."""

    async def scenario(lab: ClusterLab) -> None:
        second = await lose_power_of_the_second(lab)
        lab.simulation.network.cut(STORE_HOST, lab.nodes[second].machine.name)
        lab.start(second)
        await asyncio.sleep(1)
        lab.nodes[second].kill()
        lab.simulation.network.mend_all()
        await check_that_the_second_waits_for_the_first(lab)

    for seed in range(4):
        simulate_cluster(scenario, seed)


def a_replaced_disk_of_the_last_in_sync_replica_does_not_lead() -> None:
    """R20: it returns first, with an empty data directory; the replica that was in sync before it leads."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        last = lab.state.leader
        await only(lab, last)
        await replace_disk_of(lab, last)
        assert last not in {*lab.state.isr, *lab.state.elr, *lab.state.last_known_elr, lab.state.leader}
        for other in others_of(lab, last):
            lab.start(other)
        await all_alike(lab)
        assert await lab.read_all() == [b"one"]

    for flush in ("ack", "os"):
        simulate_cluster(scenario, flush=flush)


def a_replaced_disk_that_held_all_leaves_the_decision_to_the_operator() -> None:
    """R19: min.insync.replicas is 1, and nobody else has the last record."""

    async def scenario(lab: ClusterLab) -> None:
        await lab.produced(b"one")
        await all_alike(lab)
        last = lab.state.leader
        await only(lab, last)
        await lab.produced(b"two")
        await replace_disk_of(lab, last)
        for other in others_of(lab, last):
            lab.start(other)
            await lab.nodes[other].wait_until_serving()
        await asyncio.sleep(10)
        assert (lab.state.leader, lab.state.isr) == (NO_NODE, ())
        lab.invariants.forget_what_was_committed()
        connection = await open_any(lab.world, lab.addresses, "operator")
        partitions = [{"topic": TOPIC, "partitions": [0]}]
        fields = {"election_type": 1, "topic_partitions": partitions, "timeout": 5_000}
        await connection.call(ApiKey.ELECT_LEADERS, fields)
        connection.abort()
        await lab.until(lambda: lab.state.leader != NO_NODE, "the operator's election is done")
        await all_alike(lab)

    for flush in ("ack", "os"):
        simulate_cluster(scenario, flush=flush, settings={"min.insync.replicas": "1"})


async def replace_disk_of(lab: ClusterLab, node_id: int) -> None:
    """It registers once the session of its last process has ended (R10), and serves."""
    lab.nodes[node_id].replace_disk()
    lab.invariants.disk_was_replaced(node_id)
    await lab.until(lambda: node_id not in lab.invariants.view.nodes, "its session has ended")
    await asyncio.sleep(lab.plan.session_ms / 1000)
    lab.start(node_id)
    await lab.until(lambda: lab.nodes[node_id].broker is not None, "it is back with an empty disk")
    await asyncio.sleep(5)


def a_log_damaged_out_of_sync_is_fetched_again_while_its_node_runs() -> None:
    """R27: nothing about the topic changes meanwhile but what the controller does about the damage."""

    async def scenario(lab: ClusterLab) -> None:
        leader, follower = await an_out_of_sync_follower(lab)
        damage_log(lab, follower)
        await lab.until(lambda: lab.partition(follower).damage is None, "its log begins anew")
        assert follower not in lab.state.isr
        mend(lab, follower, leader)
        await all_alike(lab)
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, lag_ms=500)


def a_fetch_for_a_log_that_was_damaged_since_does_not_count_for_the_next_one() -> None:
    """R27: it arrives when the damage is no longer reported. The log is empty, under the same node epoch.

    The topic changes before the controller has heard of the damage, in the same leader epoch.
    """

    async def scenario(lab: ClusterLab) -> None:
        leader, follower = await an_out_of_sync_follower(lab)
        epoch = lab.state.leader_epoch
        name, network = lab.nodes[follower].machine.name, lab.simulation.network
        network.cut(STORE_HOST, name)
        change = asyncio.ensure_future(set_config(lab, "segment.ms", "1000000"))
        known = dict(lab.invariants.view.topics[TOPIC].configs)
        await lab.until(lambda: lab.invariants.view.topics[TOPIC].configs != known, "the topic changes")
        damage_log(lab, follower)
        lab.store.late_s = 0.5
        network.mend(STORE_HOST, name)
        await lab.until(lambda: lab.partition(follower).damage is None, "its log begins anew")
        assert lab.partition(follower).leader_epoch > epoch
        await asyncio.sleep(2)  # the leader knows that it is sound
        assert lab.partition(follower).log_end_offset == 0
        late = await lab.fetch_as_replica(epoch, follower=follower, offset=2, last_epoch=epoch)
        assert late is ErrorCode.fenced_leader_epoch
        assert follower not in lab.state.isr
        mend(lab, follower, leader)
        await all_alike(lab)
        await change
        assert await lab.read_all() == [b"one", b"two"]

    simulate_cluster(scenario, lag_ms=500)


async def an_out_of_sync_follower(lab: ClusterLab) -> tuple[int, int]:
    """Leader and follower; nothing that the follower sends arrives at the leader."""
    await lab.produced(b"one")
    await all_alike(lab)
    leader = lab.state.leader
    follower = others_of(lab, leader)[0]
    names = [lab.nodes[node_id].machine.name for node_id in (follower, leader)]
    lab.simulation.network.cut(names[0], names[1])
    await lab.produced(b"two")
    await lab.until(lambda: follower not in lab.state.isr, "the follower is out of sync")
    await asyncio.sleep(1)  # all nodes know it
    return leader, follower


def mend(lab: ClusterLab, follower: int, leader: int) -> None:
    names = [lab.nodes[node_id].machine.name for node_id in (follower, leader)]
    lab.simulation.network.mend(names[0], names[1])


def damage_log(lab: ClusterLab, node_id: int) -> None:
    """As a scrub finds it that cannot tell where; the whole log is fetched then."""
    node = lab.nodes[node_id]
    assert node.world is not None
    lab.invariants.distrust(node)
    error = CorruptLogError("a batch has a wrong checksum")
    node.world.process.context().run(lab.partition(node_id).fault, error)


async def set_config(lab: ClusterLab, name: str, value: str) -> None:
    connection = await open_connection(lab.world, *lab.addresses[lab.state.leader], "operator")
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resources = [{"resource_type": 2, "resource_name": TOPIC, "configs": configs}]
    fields = {"resources": resources, "validate_only": False}
    reply = await connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
    connection.abort()
    assert reply.responses[0].error_code is ErrorCode.none


async def lose_power_of_the_second(lab: ClusterLab) -> int:
    """Two hold an acknowledged record; the one that does not lead loses it, and stays eligible."""
    first = lab.state.leader
    second, third = others_of(lab, first)
    lab.nodes[third].kill()
    await lab.until(lambda: third not in lab.state.isr, "the third is out of sync")
    await lab.produced(b"one")
    lab.nodes[second].cut_power()
    await lab.until(lambda: lab.state.isr == (first,), "the second is out of sync")
    return second


async def check_that_the_second_waits_for_the_first(lab: ClusterLab) -> None:
    first = lab.state.leader
    second, third = others_of(lab, first)
    lab.nodes[first].kill()
    lab.start(second)
    await lab.until(lambda: lab.nodes[second].broker is not None, "the second is back")
    await asyncio.sleep(5)
    assert lab.state.leader in (first, -1)
    lab.start(third)
    lab.start(first)
    await all_alike(lab)
    assert await lab.read_all() == [b"one"]


SCENARIOS = (
    a_sole_in_sync_replica_restarts_with_a_tail_above_the_high_watermark,
    kip_101_a_fast_double_failover_loses_nothing,
    kip_101_a_log_that_parts_is_cut_where_it_parts_and_no_earlier,
    a_shrink_that_is_not_stored_commits_nothing,
    kip_279_logs_that_part_in_several_epochs_become_one,
    kip_320_a_leader_that_slept_through_its_end_acknowledges_nothing,
    a_replica_that_lacks_what_was_acknowledged_is_not_let_in,
    a_leader_cut_off_from_everybody_acknowledges_nothing_and_loses_its_tail,
    a_controller_that_was_replaced_creates_nothing,
    a_replica_that_lost_its_tail_does_not_lead,
    a_replica_that_lost_its_tail_says_so_until_it_is_let_in,
    a_replaced_disk_of_the_last_in_sync_replica_does_not_lead,
    a_replaced_disk_that_held_all_leaves_the_decision_to_the_operator,
    a_log_damaged_out_of_sync_is_fetched_again_while_its_node_runs,
    a_fetch_for_a_log_that_was_damaged_since_does_not_count_for_the_next_one,
)
