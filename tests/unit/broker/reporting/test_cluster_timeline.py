# SPDX-License-Identifier: Apache-2.0
"""Events of nodes and topics, and snapshots: what they rebuild is the cluster as it was."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.reporting.cluster_timeline import LOG_ENDS_S, SNAPSHOT_S
from headrace.console.state.model import Event, Snapshot
from headrace.console.state.recorded import read_recorded
from headrace.console.state.replay import Replay
from headrace.types import EVENTS_TOPIC, ClusterView, TopicPartition
from tests.harness.broker.simulated_node import TOPIC, SimBroker, on_a_node
from tests.harness.broker.three_nodes import SimMember, SimTrio, on_three_nodes
from tests.unit.broker.reporting.test_internal_topics import commit, tell

WRITTEN_S = 1.5
TAKEN_OVER_S = 30


async def recorded(node: SimBroker) -> list[Event]:
    events = [read_recorded(value) for value in await node.values(name=EVENTS_TOPIC)]
    assert None not in events
    return [event for event in events if event is not None]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def replayed(events: list[Event]) -> Snapshot:
    replay = Replay()
    for event in events:
        replay.take(event)
    assert replay.has_snapshot
    return replay.snapshot(events[-1].at_ms)


def seen(view: ClusterView) -> dict[tuple[str, int], Any]:
    return {
        (name, index): (state.leader, state.leader_epoch, state.replicas, state.isr)
        for name, topic in view.topics.items()
        for index, state in enumerate(topic.partitions)
    }


def shown(snapshot: Snapshot) -> dict[tuple[str, int], Any]:
    return {
        (name, index): (state.leader, state.leader_epoch, state.replicas, state.isr)
        for name, topic in snapshot.topics.items()
        for index, state in topic.partitions.items()
    }


def test_one_node_makes_no_topic_for_them() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await asyncio.sleep(2 * LOG_ENDS_S)
        assert node.broker.cluster.view.topics.keys() == {TOPIC}
        assert len(node.broker.events) == 0, "what nobody keeps does not wait"

    on_a_node(scenario)


def test_topics_that_are_created_altered_and_deleted_are_replayed() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=3)
        await node.create("gone")
        tell(node)
        await asyncio.sleep(WRITTEN_S)
        await node.add_partitions(5)
        await node.delete("gone")
        await node.create("late", partitions=2)
        await asyncio.sleep(WRITTEN_S)
        events = await recorded(node)
        wanted = {("partitions_added", TOPIC), ("topic_deleted", "gone"), ("topic_created", "late")}
        assert wanted <= {(event.kind, event.topic) for event in events}
        (added,) = (event for event in events if event.kind == "partitions_added")
        assert (added.details["first"], added.details["count"]) == (3, 5)
        snapshot = replayed(events)
        assert shown(snapshot) == seen(node.broker.cluster.view)
        assert snapshot.controller == node.config["node.id"]
        assert snapshot.cluster_id == node.broker.cluster.view.cluster_id

    on_a_node(scenario)


def test_a_snapshot_is_written_again_at_intervals() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        tell(node)
        await asyncio.sleep(WRITTEN_S)
        assert kinds(await recorded(node)).count("snapshot") == 1
        await asyncio.sleep(2 * SNAPSHOT_S)
        events = await recorded(node)
        assert kinds(events).count("snapshot") == 3
        last = max(index for index, event in enumerate(events) if event.kind == "snapshot")
        assert shown(replayed(events[last:])) == seen(node.broker.cluster.view)

    on_a_node(scenario)


def test_log_ends_are_noted_when_they_changed() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=2)
        tell(node)
        await asyncio.sleep(2 * LOG_ENDS_S)
        before = kinds(await recorded(node)).count("log_ends")
        await asyncio.sleep(5 * LOG_ENDS_S)
        assert kinds(await recorded(node)).count("log_ends") == before, "nothing was written"
        await node.produce(b"1", b"2")
        await asyncio.sleep(LOG_ENDS_S + WRITTEN_S)
        events = await recorded(node)
        assert kinds(events).count("log_ends") == before + 1
        assert events[-1].details["ends"] == [[TOPIC, [[0, 0, 2]]]]
        partitions = replayed(events).topics[TOPIC].partitions
        assert [partitions[index].end for index in range(2)] == [2, 0]

    on_a_node(scenario)


def test_committed_offsets_of_groups_are_in_snapshots() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.produce(b"1", b"2", b"3")
        await commit(node, 2)
        await asyncio.sleep(SNAPSHOT_S + 2 * WRITTEN_S)
        events = await recorded(node)
        snapshots = [event for event in events if event.kind == "group_snapshot"]
        assert [event.details["offsets"] for event in snapshots][-1] == [[TOPIC, [[0, 2]]]]
        group = replayed(events).groups["g"]
        assert group.progress[TopicPartition(TOPIC, 0)].committed == 2
        assert (group.group_type, group.coordinator) == ("classic", node.config["node.id"])

    on_a_node(scenario)


async def events_of(trio: SimTrio) -> list[Event]:
    leader = trio.up[0].broker.cluster.view.topics[EVENTS_TOPIC].partitions[0].leader
    return await recorded(trio.members[leader])


async def kept_by_all(trio: SimTrio) -> None:
    await trio.until(lambda: EVENTS_TOPIC in trio.up[0].broker.cluster.view.topics, within_s=TAKEN_OVER_S)
    await trio.clients.tasks.sleep(2 * WRITTEN_S)


def test_a_failover_is_recorded_whoever_was_the_controller() -> None:
    async def scenario(trio: SimTrio) -> None:
        controller = trio.up[0].broker.cluster.view.controller_id
        others = [node for node in trio.members if node != controller]
        await trio.create(controller, *others)
        await kept_by_all(trio)
        victim: SimMember = trio.members[controller]
        before = replayed(await events_of(trio))
        assert shown(before)[TOPIC, 0][0] == controller
        assert all(node.up for node in before.nodes.values())
        await victim.kill()
        await trio.until_led()
        await trio.clients.tasks.sleep(2 * WRITTEN_S)
        events = await events_of(trio)
        down = [event for event in events if event.kind == "node_down"]
        assert [(event.node, event.details["orderly"]) for event in down] == [(controller, False)]
        assert [event.node for event in events if event.kind == "controller"][-1] in others
        (moved,) = (event for event in events if event.kind == "leader" and event.topic == TOPIC)
        assert 0 <= int(str(moved.details["took_ms"])) < 5_000
        after = replayed(events)
        assert shown(after) == seen(trio.up[0].broker.cluster.view)
        assert not after.nodes[controller].up
        await victim.start()
        await trio.until_all_in_sync()
        await trio.clients.tasks.sleep(2 * WRITTEN_S)
        assert all(node.up for node in replayed(await events_of(trio)).nodes.values())

    on_three_nodes(scenario)
