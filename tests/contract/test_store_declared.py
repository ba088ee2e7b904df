# SPDX-License-Identifier: Apache-2.0
"""A restored store that is declared newer: what nodes then find in it, over all kinds of store."""

from __future__ import annotations

import uuid
from random import Random

import pytest

from headrace.coordination import documents
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.recovery.history import is_declared_newer, position_in, why_behind
from headrace.coordination.restore.declare import EPOCHS_SKIPPED, PRODUCER_IDS_SKIPPED, declare_newer
from headrace.errors import CoordinationError
from headrace.realworld import RealWorld
from headrace.types import NO_NODE, PartitionState, Topic
from tests.contract.store_backends import Backend, Run

TOPIC = Topic(
    name="orders",
    topic_id=uuid.UUID(int=7),
    configs={"retention.ms": "5"},
    partitions=(
        PartitionState(replicas=(1, 2, 3), leader=2, leader_epoch=5, isr=(2, 3), partition_epoch=9, elr=(1,)),
        PartitionState(replicas=(2,), leader=2, leader_epoch=1, isr=(2,)),
    ),
)


async def filled(backend: Backend) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
    await cluster.begin_store_epoch()
    await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=30_000)
    assert await cluster.become_controller(1) is not None
    await cluster.create_topic(TOPIC)
    assert await cluster.allocate_producer_ids(10)
    return cluster


def test_no_replica_counts_as_in_sync_and_no_epoch_or_producer_id_is_used_again(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        before = await filled(backend)
        controller_epoch, next_id = before.view.controller_epoch, before._projection.next_producer_id
        cluster_id, secret = before.view.cluster_id, before.node_secret
        await before.close()
        store = await backend.open()
        declared = await declare_newer(store, Random(1))
        assert (declared.topics, declared.partitions) == (1, 2)
        assert declared.commits == (await store.view()).commits
        after = await ClusterMetadata.open(await backend.open(), RealWorld())
        topic = after.view.topics["orders"]
        assert (topic.topic_id, topic.configs) == (TOPIC.topic_id, TOPIC.configs)
        for was, state in zip(TOPIC.partitions, topic.partitions, strict=True):
            assert (state.replicas, state.leader, state.isr, state.elr) == (was.replicas, NO_NODE, (), ())
            assert state.last_known_elr == was.replicas
            assert state.leader_epoch == was.leader_epoch + EPOCHS_SKIPPED
            assert state.partition_epoch == was.partition_epoch + EPOCHS_SKIPPED
        assert after.view.controller_epoch == controller_epoch + EPOCHS_SKIPPED
        assert after._projection.next_producer_id == next_id + PRODUCER_IDS_SKIPPED
        assert (after.view.cluster_id, after.node_secret) == (cluster_id, secret)
        await after.close()

    run(scenario)


def test_nodes_that_had_seen_more_take_it(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await filled(backend)
        seen = position_in(cluster.store_history, cluster.commits + 1_000)
        await cluster.close()
        store = await backend.open()
        present = await ClusterMetadata.open(await backend.open(), RealWorld())
        assert why_behind(present.store_history, present.commits, seen) is not None
        await declare_newer(store, Random(1))
        await present.catch_up()
        assert is_declared_newer(present.store_history, seen)
        assert why_behind(present.store_history, present.commits, seen) is None
        assert present.store_history.epochs[-1].start == present.commits
        await present.close()

    run(scenario)


def test_a_store_with_a_registered_node_is_left_as_it_is(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await filled(backend)
        store = await backend.open()
        before = await store.view()
        with pytest.raises(CoordinationError, match=r"registered in the coordination store: 1\. Stop them"):
            await declare_newer(store, Random(1))
        assert (await store.view()).entries == before.entries
        await cluster.close()

    run(scenario)


def test_a_store_without_topics_and_history_is_declared_too(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        await declare_newer(await backend.open(), Random(1))
        await cluster.catch_up()
        assert len(cluster.store_history.declarations) == 1
        assert documents.CONTROLLER_EPOCH not in (await (await backend.open()).view()).entries
        await cluster.close()

    run(scenario)
