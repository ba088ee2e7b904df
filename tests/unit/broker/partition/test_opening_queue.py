# SPDX-License-Identifier: Apache-2.0
"""A node that opens a thousand logs does not block its event loop (R8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.simulated_node import SimBroker, on_a_node

MANY = 1000
LOADED_DISK_MS = 20
"""What opening one log took on a machine with a load of twenty."""


class Openings:
    """Each takes its time, which the loop stands still; tells the longest stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, node: SimBroker) -> None:
        self.count = 0
        self.longest_stop_ms = 0.0
        self.first = asyncio.Event()
        self._loop = node.simulation.loop
        self._step_began = self._loop.time()
        really_open = PartitionLog.open

        def slowly(*arguments: Any, **options: Any) -> PartitionLog:
            self.count += 1
            self.first.set()
            self._loop.spend(LOADED_DISK_MS / 1000)
            self.longest_stop_ms = max(self.longest_stop_ms, (self._loop.time() - self._step_began) * 1000)
            return really_open(*arguments, **options)

        monkeypatch.setattr(PartitionLog, "open", slowly)
        node.simulation.loop.after_step = self._stepped

    def _stepped(self) -> None:
        self._step_began = self._loop.time()


def short_for(node: SimBroker) -> float:
    """A quarter of what a node may be silent before it leads nothing."""
    return float(node.config["broker.session.timeout.ms"] * 2 / 3 / 4)


def test_other_requests_are_served_while_a_thousand_partitions_are_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("busy")
        openings = Openings(monkeypatch, node)
        making = asyncio.ensure_future(node.create("wide", partitions=MANY))
        await openings.first.wait()
        assert await node.produce(b"meanwhile", name="busy", acks=1) == (ErrorCode.none, 0)
        code, _ = await node.produce(b"too early", name="wide", index=MANY - 1)
        assert code == ErrorCode.not_leader_or_follower  # which clients answer by trying again
        assert openings.count < MANY
        assert await making == ErrorCode.none
        assert openings.count == MANY
        assert openings.longest_stop_ms < short_for(node)
        assert await node.produce(b"open", name="wide", index=MANY - 1) == (ErrorCode.none, 0)

    on_a_node(scenario)


def test_a_restarted_node_opens_all_logs_without_blocking_before_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        await node.produce(b"kept", name="wide", index=MANY - 1)
        await node.kill()
        openings = Openings(monkeypatch, node)
        await node.start()
        assert openings.count == MANY
        assert openings.longest_stop_ms < short_for(node)
        assert (await node.fetch(name="wide", index=MANY - 1)).high_watermark == 1

    on_a_node(scenario)


def test_a_topic_deleted_while_its_logs_wait_for_their_turn_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: SimBroker) -> None:
        openings = Openings(monkeypatch, node)
        making = asyncio.ensure_future(node.create("wide", partitions=MANY))
        await openings.first.wait()
        assert await node.delete("wide") == ErrorCode.none
        await making
        assert openings.count < MANY
        await asyncio.sleep(5)
        assert not [name for name in node.files.listdir(DATA_DIRECTORY) if name.startswith("wide")]

    on_a_node(scenario)


def test_checkpoints_keep_the_offsets_of_unopened_logs() -> None:
    """A checkpoint that is written before all are open must not forget where the others begin."""
    last = TopicPartition("wide", MANY - 1)

    async def scenario(node: SimBroker) -> None:
        await node.create("wide", partitions=MANY)
        for value in (b"0", b"1", b"2"):
            await node.produce(value, name="wide", index=last.partition)
        await node.partition(*last).delete_records_before(2)
        await node.kill()
        await node.start()
        partitions, view = node.broker.partitions, node.broker.cluster.view
        partitions.apply_view(view, replace(view, topics={}))
        partitions.apply_view(replace(view, topics={}), view)
        assert partitions.get(*last) is None
        assert (await partitions.log_offsets())[last].log_start == 2

    on_a_node(scenario)
