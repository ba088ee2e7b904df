# SPDX-License-Identifier: Apache-2.0
"""Proposals for in-sync replicas at the controller: what is judged, and what has to wait for the view."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.controller.isr_updater import IsrOutcome, IsrUpdater
from headrace.broker.controller.partition_reconciler import TopicRules
from headrace.errors import ApiError
from headrace.machines.replication.leader import IsrProposal
from headrace.types import ClusterView, Endpoint, Node, PartitionState, Topic
from headrace.wire.error_codes import ErrorCode

STATE = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1), partition_epoch=7)
TOPIC_ID = UUID(int=1)


class FakeCluster:
    """Its view lags until `wait_for_own_commits`."""

    def __init__(self, seen: PartitionState, written: PartitionState) -> None:
        self.view = _view(seen)
        self._written = written
        self.stored: list[Topic] = []

    async def wait_for_own_commits(self) -> None:
        self.view = _view(self._written)

    async def write_topics(self, topics: list[Topic]) -> list[None]:
        self.stored += topics
        return [None] * len(topics)


def _view(state: PartitionState) -> ClusterView:
    endpoints = (Endpoint(listener="PLAINTEXT", host="h", port=1),)
    nodes = {
        node_id: Node(node_id=node_id, epoch=10 + node_id, host_id="h", hostname="h", endpoints=endpoints)
        for node_id in range(3)
    }
    topic = Topic(name="t", topic_id=TOPIC_ID, partitions=(state,))
    return ClusterView(
        version=1, cluster_id="c", nodes=nodes, topics={"t": topic}, topic_names={TOPIC_ID: "t"}
    )


def judge(cluster: FakeCluster, proposal: IsrProposal) -> IsrOutcome:
    async def ask() -> IsrOutcome:
        async with asyncio.timeout(5):
            return await submit()

    async def submit() -> IsrOutcome:
        def spawn(coroutine: Any, *, name: str) -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(coroutine)

        world: Any = SimpleNamespace(tasks=SimpleNamespace(spawn=spawn))
        updater = IsrUpdater(cluster, world, lambda topic: TopicRules(None), lambda change: None)  # type: ignore[arg-type]
        return await updater.submit(TOPIC_ID, 0, proposal)

    return asyncio.run(ask())


def joins(state: PartitionState) -> IsrProposal:
    return IsrProposal(state.leader, state.leader_epoch, state.partition_epoch, ((0, 10), (1, 11), (2, 12)))


def test_a_proposal_is_judged_on_what_the_controller_wrote_last() -> None:
    """The leader may have heard of its own election before the controller has read it back."""
    elected = replace(STATE, leader_epoch=4, partition_epoch=8)
    cluster = FakeCluster(seen=replace(STATE, leader=1), written=elected)
    judgement = judge(cluster, joins(elected))
    assert isinstance(judgement, PartitionState)
    assert judgement.isr == (0, 1, 2)
    assert cluster.stored[0].partitions[0] == judgement


def test_a_leader_that_knows_more_than_the_controller_asks_again() -> None:
    cluster = FakeCluster(seen=STATE, written=STATE)
    assert judge(cluster, joins(replace(STATE, leader_epoch=4))) is ErrorCode.not_controller
    assert judge(cluster, joins(replace(STATE, partition_epoch=8))) is ErrorCode.not_controller
    assert cluster.stored == []


def test_a_leader_that_knows_less_is_refused() -> None:
    cluster = FakeCluster(seen=STATE, written=STATE)
    assert judge(cluster, joins(replace(STATE, leader_epoch=2))) is ErrorCode.fenced_leader_epoch
    assert judge(cluster, joins(replace(STATE, partition_epoch=6))) is ErrorCode.invalid_update_version


def test_a_proposal_is_answered_after_an_unexpected_error() -> None:
    """Else its reply would stand in the way of all others on the leader's connection."""
    cluster = FakeCluster(seen=STATE, written=STATE)

    async def fail(topics: list[Topic]) -> list[None]:
        raise ValueError("not foreseen")

    cluster.write_topics = fail  # type: ignore[method-assign]
    with pytest.raises(ApiError) as refusal:
        judge(cluster, joins(STATE))
    assert refusal.value.code is ErrorCode.unknown_server_error
