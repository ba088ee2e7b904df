# SPDX-License-Identifier: Apache-2.0
"""What a node writes about itself: lines of groups, samples of lag; nothing of it may be in anyone's way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.broker.reporting import group_timeline
from headrace.broker.reporting.lag_samples import MOST_WRITTEN, SAMPLE_INTERVAL_S
from headrace.machines.groups.events import DeleteGroup, OffsetCommit, OffsetToCommit
from headrace.machines.machine import ReplyToken, TimelineEvent
from headrace.types import EVENTS_TOPIC, LAG_TOPIC, TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import TOPIC, SimBroker, on_a_node

METADATA = 3


async def commit(node: SimBroker, offset: int, group: str = "g", topic: str = TOPIC) -> None:
    """As a consumer without membership."""
    await node.broker.groups.ensure_topic()

    def event(token: ReplyToken) -> OffsetCommit:
        return OffsetCommit.of(token=token, version=8, offsets=(OffsetToCommit(topic, 0, offset),))

    await node.broker.groups.ask(group, event)


async def lines(node: SimBroker) -> list[dict[str, Any]]:
    """What happened to groups; test_cluster_timeline.py has the rest."""
    every = [json.loads(value or b"") for value in await node.values(name=EVENTS_TOPIC)]
    return [line for line in every if "group" in line and line["kind"] != "group_snapshot"]


async def written(node: SimBroker) -> list[dict[str, Any]]:
    return [json.loads(value) if value else {} for value in await node.values(name=LAG_TOPIC)]


def tell(node: SimBroker, kind: str = "join", **details: Any) -> None:
    wall_ms = node.world.clock.wall_ms()
    node.broker.timeline.note("g", TimelineEvent(wall_ms, kind, {"member_id": "m", **details}))


def dropped(node: SimBroker) -> dict[str, int]:
    return node.broker.metrics.own_records_dropped


# Events


def test_nothing_is_made_before_there_is_something_to_write():
    async def scenario(node: SimBroker) -> None:
        await asyncio.sleep(3 * SAMPLE_INTERVAL_S)
        assert not node.broker.cluster.view.topics

    on_a_node(scenario)


@pytest.mark.row("D21")
def test_lines_are_written_soon_in_order_and_in_one_batch():
    async def scenario(node: SimBroker) -> None:
        for number in range(5):
            tell(node, client_id=f"c-{number}")
        await asyncio.sleep(0.15)
        assert node.broker.metrics.topic(EVENTS_TOPIC).produces == 1
        told = await lines(node)
        assert [line["details"]["client_id"] for line in told] == [f"c-{n}" for n in range(5)]
        assert {(line["kind"], line["group"]) for line in told} == {("join", "g")}

    on_a_node(scenario)


def test_lines_that_wait_when_the_node_stops_are_still_written():
    async def scenario(node: SimBroker) -> None:
        tell(node)
        await node.stop()
        await node.start()
        assert [line["kind"] for line in await lines(node)] == ["join"]

    on_a_node(scenario)


def test_a_long_reason_is_cut():
    async def scenario(node: SimBroker) -> None:
        tell(node, "rebalance", reason="because " * 10_000)
        await asyncio.sleep(1.5)
        (line,) = await lines(node)
        assert len(line["details"]["reason"]) < 1_100

    on_a_node(scenario)


def test_dropped_events_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_timeline, "MOST_QUEUED", 10)

    async def scenario(node: SimBroker) -> None:
        for _ in range(13):
            tell(node)
        await asyncio.sleep(1.5)
        assert len(await lines(node)) == 10
        assert dropped(node) == {EVENTS_TOPIC: 3}

    on_a_node(scenario)


def test_on_a_full_disk_lines_are_dropped_and_groups_go_on(caplog: pytest.LogCaptureFixture):
    async def scenario(node: SimBroker) -> None:
        await node.create()
        tell(node)
        await asyncio.sleep(1.5)
        node.broker._housekeeping._disk.reserve_bytes = 1 << 62
        await asyncio.sleep(1.5)
        for _ in range(3):
            tell(node)
            await asyncio.sleep(1)
        node.broker._housekeeping._disk.reserve_bytes = 0
        await asyncio.sleep(1.5)
        tell(node, "leave", reason="x")
        await asyncio.sleep(1.5)
        assert [line["kind"] for line in await lines(node)] == ["join", "leave"]
        assert dropped(node) == {EVENTS_TOPIC: 3}

    on_a_node(scenario)
    said = [record.getMessage() for record in caplog.records if EVENTS_TOPIC in record.getMessage()]
    assert said == [
        f"{EVENTS_TOPIC} cannot be written, records are dropped: the disk is nearly full",
        f"{EVENTS_TOPIC} can be written again",
    ]


def test_a_topic_that_was_deleted_is_made_again():
    async def scenario(node: SimBroker) -> None:
        tell(node)
        await asyncio.sleep(1.5)
        assert await node.delete(EVENTS_TOPIC) == ErrorCode.none
        tell(node)
        await asyncio.sleep(1.5)
        assert len(await lines(node)) == 1

    on_a_node(scenario)


def test_both_can_be_switched_off():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(3 * SAMPLE_INTERVAL_S)
        assert node.broker.cluster.view.topics.keys() == {TOPIC, "__consumer_offsets"}

    on_a_node(scenario, settings={"headrace.events.enable": "false", "headrace.lag.enable": "false"})


def test_metadata_marks_these_topics_as_internal():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        connection = await node.connect()
        reply = await connection.call(METADATA, {"topics": None}, version=4, timeout_ms=5_000)
        connection.abort()
        internal = {topic.name: topic.is_internal for topic in reply.topics}
        assert internal == {TOPIC: False, "__consumer_offsets": True, EVENTS_TOPIC: True, LAG_TOPIC: True}

    on_a_node(scenario)


def test_a_regular_expression_does_not_mean_them():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        found = await node.broker.groups._patterns.matching([".*"], node.broker.cluster.view)
        assert found == {".*": {TOPIC, "__consumer_offsets"}}

    on_a_node(scenario)


# Samples


def test_only_partitions_that_a_group_reads_are_sampled_and_only_when_they_grew():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await node.create("unread")
        await node.produce(b"1", b"2")
        await node.produce(b"1", name="unread")
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        assert LAG_TOPIC not in node.broker.cluster.view.topics
        await commit(node, 1)
        await asyncio.sleep(SAMPLE_INTERVAL_S)
        assert len(await written(node)) == 1
        await asyncio.sleep(5 * SAMPLE_INTERVAL_S)
        assert len(await written(node)) == 1
        await node.produce(b"3")
        await asyncio.sleep(1.5 * SAMPLE_INTERVAL_S)  # each sample is a little later than the interval
        samples = (await written(node))[-1]["samples"]
        assert [offset for offset, _ in samples] == [2, 2, 3]
        assert len(await written(node)) == 2

    on_a_node(scenario)


def test_own_topics_are_not_sampled_by_themselves():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        await commit(node, 0, topic=LAG_TOPIC)
        await commit(node, 0, topic=EVENTS_TOPIC)
        await asyncio.sleep(20 * SAMPLE_INTERVAL_S)
        keys = node.broker.lag._series.keys()
        assert keys == {TopicPartition(TOPIC, 0)}

    on_a_node(scenario)


@pytest.mark.parametrize("clean", [True, False])
def test_samples_come_back_after_a_restart(clean: bool):
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        for _ in range(3):
            await node.produce(b"x")
            await asyncio.sleep(SAMPLE_INTERVAL_S)
        before = (await written(node))[-1]["samples"]
        await (node.stop() if clean else node.kill())
        await asyncio.sleep(3_600)
        await node.start()
        await node.produce(b"y")
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        after = (await written(node))[-1]["samples"]
        assert after[0] == before[0]
        assert before[-1] in after
        (_, held_until), (end, _) = after[-2:]
        assert end == 4
        assert held_until - before[-1][1] > 3_500_000  # nothing came while there was no node

    on_a_node(scenario)


def test_a_recreated_topic_starts_without_samples():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await node.produce(b"x", b"y", b"z")
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        await node.delete()
        await node.create()
        await commit(node, 0)
        await node.produce(b"x", b"y", b"z", b"4")
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        assert [offset for offset, _ in (await written(node))[-1]["samples"]] == [4]

    on_a_node(scenario)


def test_samples_of_deleted_groups_are_dropped():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        await node.broker.groups.ask("g", lambda token: DeleteGroup(token=token, version=2))
        await asyncio.sleep(70)
        assert (await written(node))[-1] == {}
        assert not node.broker.lag._series
        assert [line["kind"] for line in await lines(node)] == ["commit", "deleted"]

    on_a_node(scenario)


def test_events_refused_by_a_full_disk_are_written_later():
    async def scenario(node: SimBroker) -> None:
        await node.create()
        await commit(node, 0)
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        await node.produce(b"x")
        node.broker._housekeeping._disk.reserve_bytes = 1 << 62
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        assert dropped(node)[LAG_TOPIC] > 0
        node.broker._housekeeping._disk.reserve_bytes = 0
        await asyncio.sleep(2 * SAMPLE_INTERVAL_S)
        assert (await written(node))[-1]["samples"][-1][0] == 1

    on_a_node(scenario)


def test_many_busy_partitions_take_turns():
    count = MOST_WRITTEN + 50

    async def scenario(node: SimBroker) -> None:
        await node.create(partitions=count)
        node.broker.lag.committed("g", [(TOPIC, number) for number in range(count)])
        node.broker.lag._scan_at = 1e9
        for expected in (MOST_WRITTEN, count):
            await asyncio.sleep(SAMPLE_INTERVAL_S)
            assert node.partition(LAG_TOPIC).log_end_offset == expected

    on_a_node(scenario)
