# SPDX-License-Identifier: Apache-2.0
"""What a node with a thousand partitions does by itself, it does for a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.harness.broker.simulated_node import SimBroker, on_a_node

MANY = 1000
LONGER_THAN_EVERY_JOB_S = 70
"""Checkpoints are written once a minute."""


class Visits:
    """Partitions that are looked at in one turn of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: SimBroker) -> None:
        self.most_in_a_turn = 0
        self.all = 0
        self._in_this_turn = 0
        really_all = Partitions.all

        def counted(partitions: Partitions) -> Iterator[Partition]:
            for partition in really_all(partitions):
                self.all += 1
                self._in_this_turn += 1
                self.most_in_a_turn = max(self.most_in_a_turn, self._in_this_turn)
                yield partition

        monkeypatch.setattr(Partitions, "all", counted)
        node.simulation.loop.after_step = self._stepped

    def _stepped(self) -> None:
        self._in_this_turn = 0


def test_no_periodic_job_visits_all_partitions_in_one_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        visits = Visits(monkeypatch, node)
        await asyncio.sleep(LONGER_THAN_EVERY_JOB_S)
        assert visits.all > MANY
        assert visits.most_in_a_turn <= MANY / 4

    on_a_node(scenario, settings={"log.retention.check.interval.ms": "10000"})


def test_the_scrub_asks_every_log_for_its_size_a_fixed_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        asked: Counter[TopicPartition] = Counter()

        def size_bytes(partition: Partition) -> int:
            asked[partition.topic_partition] += 1
            return partition.log.size_bytes

        monkeypatch.setattr(Partition, "size_bytes", property(size_bytes))
        await node.stop()
        await node.start()
        await asyncio.sleep(LONGER_THAN_EVERY_JOB_S)
        assert node.broker.metrics.scrub.passes == 1
        assert len(asked) >= MANY
        assert max(asked.values()) <= 2

    on_a_node(scenario)


def test_what_is_done_every_second_visits_a_partition_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        await asyncio.sleep(LONGER_THAN_EVERY_JOB_S)
        visits, seconds = Visits(monkeypatch, node), 60
        await asyncio.sleep(seconds)
        # Timeouts and flushes once a second; deleted files and high watermarks every five seconds;
        # compaction four times a minute, offsets once.
        assert visits.all <= (2 * seconds + 2 * seconds / 5 + 4 + 1 + 5) * MANY * 1.1

    on_a_node(scenario)


def test_a_sole_replica_has_no_high_watermark_in_the_checkpoints() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=10)
        await node.produce(b"0", name="wide", index=3)
        assert await node.broker.partitions.high_watermarks() == {}

    on_a_node(scenario)


def test_the_check_of_the_disk_looks_at_no_partition_that_reported_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=10)
        visits = Visits(monkeypatch, node)
        partitions = node.broker.partitions
        assert partitions.have_room
        assert not partitions.damaged()
        fenced = node.partition("wide", 3)
        fenced.log.fenced = True
        partitions.trouble_at(fenced)
        assert not partitions.have_room
        fenced.log.fenced = False
        assert partitions.have_room
        assert not visits.all

    on_a_node(scenario)


def test_a_fenced_log_that_nobody_reported_is_found_by_the_next_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create()
        monkeypatch.setattr(PartitionLog, "recover_in_place", lambda log: None)
        node.partition().log.fenced = True
        await asyncio.sleep(2)
        assert not node.broker.partitions.have_room

    on_a_node(scenario)


def test_a_log_that_is_opened_or_closed_meanwhile_is_in_the_checkpoints() -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        names = {TopicPartition("wide", index) for index in range(MANY)}
        partitions, view = node.broker.partitions, node.broker.cluster.view
        none = replace(view, topics={})
        partitions.apply_view(view, none)
        partitions.apply_view(none, view)
        while any(partitions.get(*name) is None for name in names):  # a few are opened in each turn
            offsets = await partitions.log_offsets()
            assert offsets.keys() >= names
            await asyncio.sleep(0)

    on_a_node(scenario)


def test_requests_are_answered_while_offsets_are_collected_for_the_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        visits = Visits(monkeypatch, node)
        offsets = await node.broker.partitions.log_offsets()
        assert len(offsets) >= MANY
        assert visits.most_in_a_turn <= MANY / 4

    on_a_node(scenario)
