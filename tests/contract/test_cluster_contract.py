# SPDX-License-Identifier: Apache-2.0
"""The cluster's meaning on every store: registration, controllership, topics, settings, producer ids."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from headrace.client_quotas import QuotaEntity
from headrace.coordination.cluster_metadata import Changed, ClusterMetadata
from headrace.coordination.node_lifecycle import DuplicateNode
from headrace.coordination.store import Changes, Delete, Store
from headrace.errors import ApiError, CoordinationError, ErrorCode
from headrace.realworld import RealWorld
from headrace.types import NO_NODE, ClusterView, Endpoint, FinalizedFeatures, PartitionState, Topic
from tests.contract.store_backends import Backend, Run
from tests.harness import waiting

TTL_MS = 30_000
FEATURE = "transaction.version"
ENDPOINTS = (
    Endpoint(listener="OUTSIDE", host="localhost", port=9092),
    Endpoint(listener="INSIDE", host="node", port=29092),
)


def topic(name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Topic:
    state = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
    return Topic(
        name=name, topic_id=uuid.uuid4(), partitions=(state,) * partitions, configs=dict(configs or {})
    )


class DeafStore:
    """A store whose news can be held back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hears = asyncio.Event()
        self.hears.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        found = await self._store.changes(since_version, timeout_ms)
        await self.hears.wait()
        return found


async def register(cluster: ClusterMetadata, node_id: int = 1, **changes: Any) -> int:
    settings: dict[str, Any] = {
        "host_id": "host",
        "hostname": "name",
        "endpoints": ENDPOINTS,
        "rack": "r1",
        "session_ttl_ms": TTL_MS,
    }
    return await cluster.register_node(node_id=node_id, **(settings | changes))


async def controlling(store: Store) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(store, RealWorld())
    await register(cluster)
    assert await cluster.become_controller(1) is not None
    return cluster


async def reach(cluster: ClusterMetadata, other: ClusterMetadata) -> None:
    """Waits until one process sees what the other one sees."""
    await until(cluster, lambda: cluster.view.version >= other.view.version)


async def until(cluster: ClusterMetadata, true: Callable[[], bool]) -> None:
    """Looks again at each change of the view."""
    changed = asyncio.Event()
    cluster.subscribe(lambda old, new: changed.set())
    while not true():
        changed.clear()
        await asyncio.wait_for(changed.wait(), 10)


# The cluster and its nodes


def test_an_empty_store_gets_a_cluster_id_that_stays(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = await backend.open(), await backend.open()
        first, second = await asyncio.gather(
            ClusterMetadata.open(store, RealWorld()), ClusterMetadata.open(other, RealWorld())
        )
        assert first.view.cluster_id == second.view.cluster_id
        assert re.fullmatch(r"[A-Za-z0-9_-]{22}", first.view.cluster_id)
        await first.close()
        third = await ClusterMetadata.open(await backend.open(), RealWorld())
        assert third.view.cluster_id == second.view.cluster_id
        await second.close()
        await third.close()

    run(scenario)


def test_a_registered_node_is_seen_by_all_with_its_addresses_and_epoch(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        watching = await ClusterMetadata.open(await backend.open(), RealWorld())
        epoch = await register(cluster)
        await reach(watching, cluster)
        node = watching.view.nodes[1]
        assert node.epoch == epoch
        assert node.endpoints == ENDPOINTS
        assert (node.host_id, node.hostname, node.rack) == ("host", "name", "r1")
        await cluster.close()
        await watching.catch_up()
        assert watching.view.nodes == {}
        await watching.close()

    run(scenario)


def test_each_registration_has_a_higher_epoch(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        epochs = []
        for _ in range(3):
            cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
            epochs.append(await register(cluster))
            await cluster.close()
        assert epochs == sorted(set(epochs))

    run(scenario)


def test_a_live_duplicate_is_refused_and_changes_nothing(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        await register(cluster, hostname="first-host")
        second = await ClusterMetadata.open(await backend.open(), RealWorld())
        with pytest.raises(DuplicateNode, match="already registered from host first-host"):
            await register(second)
        await cluster.catch_up()
        assert cluster.view.nodes[1].hostname == "first-host"
        await second.close()
        await cluster.close()

    run(scenario)


def test_the_lock_on_one_directory_proves_nothing_about_a_process_on_another(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        await register(cluster, directory_id="one")
        second = await ClusterMetadata.open(await backend.open(), RealWorld())
        with pytest.raises(DuplicateNode, match=r"Set another node\.id"):
            await register(second, directory_id="two", replaces_dead_predecessor=True)
        epoch = cluster.view.nodes[1].epoch
        assert await register(second, directory_id="one", replaces_dead_predecessor=True) > epoch
        await second.close()
        await cluster.close()

    run(scenario)


def test_a_dead_predecessor_is_replaced_at_once_with_its_controllership(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        dead = await controlling(await backend.open())
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        epoch_before = cluster.view.nodes[1].epoch
        epoch = await register(cluster, replaces_dead_predecessor=True)
        assert epoch > epoch_before
        assert cluster.view.controller_id == NO_NODE
        assert await cluster.become_controller(1) == 2
        with pytest.raises(ApiError) as refused:
            await dead.create_topic(topic("from-the-grave"))
        assert refused.value.code is ErrorCode.not_controller
        await dead.close()
        await cluster.catch_up()
        assert cluster.view.nodes[1].epoch == epoch
        assert cluster.view.controller_id == 1
        await cluster.close()

    run(scenario)


def test_a_lost_session_is_followed_by_a_new_registration(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        epoch = await register(cluster, session_ttl_ms=400)
        assert await cluster.become_controller(1) == 1
        assert cluster._lifecycle is not None
        session = cluster._lifecycle._session
        assert session is not None
        await session._close()  # the store ended it; the node does not know yet
        await until(cluster, lambda: cluster.view.controller_epoch == 2)
        await cluster.catch_up()
        assert cluster.view.nodes[1].epoch > epoch
        assert cluster.view.controller_id == 1
        await waiting.until(lambda: not cluster.session_may_have_expired)
        await cluster.create_topic(topic("after"))
        await cluster.close()

    run(scenario)


# Controllership


def test_one_node_is_controller_at_a_time_and_each_has_a_higher_epoch(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one = await ClusterMetadata.open(await backend.open(), RealWorld())
        two = await ClusterMetadata.open(await backend.open(), RealWorld())
        await register(one, 1)
        await register(two, 2)
        outcomes = await asyncio.gather(one.become_controller(1), two.become_controller(2))
        assert sorted(outcomes, key=str) == [1, None]
        first, second = (one, two) if outcomes[0] else (two, one)
        assert await first.become_controller(1) == 1
        await first.close()
        await second.catch_up()
        assert second.view.controller_id == NO_NODE
        assert await second.become_controller(2) == 2
        await second.close()

    run(scenario)


def test_a_node_that_is_not_the_controller_may_not_write(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        await register(cluster)
        with pytest.raises(ApiError) as refused:
            await cluster.create_topic(topic("t"))
        assert refused.value.code is ErrorCode.not_controller
        assert cluster.view.topics == {}
        await cluster.close()

    run(scenario)


def test_a_controller_that_was_replaced_is_fenced_even_before_it_knows(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        store, other = DeafStore(await backend.open()), await backend.open()
        old = await controlling(store)
        new = await ClusterMetadata.open(other, RealWorld())
        await register(new, 2)
        store.hears.clear()
        entry = (await other.view()).entries["/controller"]
        await other.commit([Delete("/controller", entry.version)])
        await new.catch_up()
        assert await new.become_controller(2) == 2
        assert old.is_controller
        for write in (
            old.create_topic(topic("t")),
            old.alter_node_configs("", {"log.retention.ms": "1"}),
        ):
            with pytest.raises(ApiError) as refused:
                await write
            assert refused.value.code is ErrorCode.not_controller
        assert not old.is_controller
        await new.catch_up()
        assert new.view.topics == {}
        assert new.view.node_configs == {}
        await old.close()
        await new.close()

    run(scenario)


# Topics


def test_a_created_topic_is_in_the_view_when_the_call_returns(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        made = topic("t", partitions=3, configs={"retention.ms": "1000"})
        await cluster.create_topic(made)
        assert cluster.view.topics["t"] == made
        assert cluster.view.topic_by_id(made.topic_id) == made
        await cluster.close()
        again = await ClusterMetadata.open(await backend.open(), RealWorld())
        assert again.view.topics["t"] == made
        await again.close()

    run(scenario)


def test_every_field_of_a_partition_state_survives(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        state = PartitionState(
            replicas=(1, 2, 3),
            leader=2,
            leader_epoch=7,
            isr=(2, 3),
            partition_epoch=9,
            controller_epoch=4,
            elr=(1,),
            last_known_elr=(1, 3),
        )
        await cluster.create_topic(topic("t"))
        await cluster.alter_topic("t", partitions=(state,))
        assert cluster.view.topics["t"].partitions == (state,)
        await cluster.close()

    run(scenario)


def test_quotas_of_a_user_and_of_the_users_client_ids_come_and_go_by_themselves(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        user, pair = QuotaEntity("a/b"), QuotaEntity("a/b", "app")
        await cluster.alter_client_quotas(user, {"producer_byte_rate": 10.0})
        await cluster.alter_client_quotas(pair, {"consumer_byte_rate": 20.0})
        assert set(cluster.view.client_quotas) == {user, pair}
        await cluster.alter_client_quotas(user, {})
        await cluster.alter_client_quotas(user, {})
        assert cluster.view.client_quotas == {pair: {"consumer_byte_rate": 20.0}}
        await cluster.alter_client_quotas(pair, {})
        assert cluster.view.client_quotas == {}
        await cluster.close()

    run(scenario)


def test_an_existing_topic_is_refused_and_the_others_are_made(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        first = topic("b")
        await cluster.create_topic(first)
        results = await cluster.create_topics([topic("a"), topic("b"), topic("c")])
        assert [result and result.code for result in results] == [None, ErrorCode.topic_already_exists, None]
        assert set(cluster.view.topics) == {"a", "b", "c"}
        assert cluster.view.topics["b"] == first
        await cluster.close()

    run(scenario)


def test_bulk_creation_and_deletion_take_few_commits(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        before = cluster.view.version
        topics = [topic(f"t{n}") for n in range(1200)]
        assert await cluster.create_topics(topics) == [None] * 1200
        assert len(cluster.view.topics) == len(cluster.view.topic_names) == 1200
        assert cluster.view.version - before == 3
        assert await cluster.delete_topics([t.name for t in topics]) == [None] * 1200
        assert cluster.view.topics == {}
        assert cluster.view.topic_names == {}
        assert cluster.view.version - before == 6
        await cluster.close()

    run(scenario)


def test_a_topic_too_large_for_one_entry_is_refused_and_the_others_are_made(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        too_large, fits = topic("huge", partitions=20_000), topic("large", partitions=8_000)
        refusal, made = await cluster.create_topics([too_large, fits])
        assert refusal is not None
        assert refusal.code is ErrorCode.invalid_partitions
        assert made is None
        assert len(cluster.view.topics["large"].partitions) == 8_000
        with pytest.raises(ApiError) as refused:
            await cluster.alter_topic("large", partitions=too_large.partitions)
        assert refused.value.code is ErrorCode.invalid_partitions
        await cluster.close()

    run(scenario)


def test_deleting_answers_for_each_name(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        await cluster.create_topics([topic("a"), topic("b")])
        results = await cluster.delete_topics(["a", "missing", "b"])
        assert [result and result.code for result in results] == [
            None,
            ErrorCode.unknown_topic_or_partition,
            None,
        ]
        assert cluster.view.topics == {}
        await cluster.close()

    run(scenario)


def test_a_name_can_be_used_again_with_a_new_id(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        old, new = topic("t"), topic("t")
        await cluster.create_topic(old)
        await cluster.delete_topics(["t"])
        await cluster.create_topic(new)
        assert cluster.view.topics["t"].topic_id == new.topic_id
        assert cluster.view.topic_by_id(old.topic_id) is None
        await cluster.close()

    run(scenario)


def test_concurrent_deletion_and_alteration_both_end(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        await cluster.create_topic(topic("t"))
        outcomes = await asyncio.gather(
            cluster.alter_topic("t", configs={"retention.ms": "1"}),
            cluster.delete_topics(["t"]),
            return_exceptions=True,
        )
        assert outcomes[0] is None or isinstance(outcomes[0], Changed)
        assert outcomes[1] == [None]
        assert cluster.view.topics == {}
        await cluster.close()

    run(scenario)


# Settings


def test_settings_are_replaced_as_a_whole_and_only_when_unchanged(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        await cluster.create_topic(topic("t", configs={"a": "1"}))
        await cluster.alter_topic("t", configs={"b": "2"})
        assert cluster.view.topics["t"].configs == {"b": "2"}
        outcomes = await asyncio.gather(
            cluster.alter_topic("t", configs={"c": "3"}),
            cluster.alter_topic("t", configs={"d": "4"}),
            return_exceptions=True,
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Changed", "NoneType"]
        await cluster.close()

    run(scenario)


def test_node_settings_are_kept_per_node_and_for_all(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        await cluster.alter_node_configs("", {"log.retention.ms": "1"})
        await cluster.alter_node_configs("1", {"log.retention.ms": "2"})
        await cluster.alter_node_configs("", {})
        assert cluster.view.node_configs == {"": {}, "1": {"log.retention.ms": "2"}}
        await cluster.close()

    run(scenario)


def test_each_change_of_a_feature_has_a_higher_epoch_and_keeps_the_other_features(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        assert cluster.view.finalized_features == FinalizedFeatures()
        changes = [("share.version", 1), (FEATURE, 2), (FEATURE, 0), (FEATURE, 1)]
        for epoch, (name, level) in enumerate(changes):
            await cluster.finalize_feature(name, level)
            assert cluster.view.finalized_features.epoch == epoch
            assert cluster.view.finalized_features.levels[name] == level
        assert cluster.view.finalized_features.levels == {"share.version": 1, FEATURE: 1}
        assert cluster.view.transaction_version == 1
        other = await ClusterMetadata.open(await backend.open(), RealWorld())
        assert other.view.finalized_features == cluster.view.finalized_features
        with pytest.raises(ApiError, match="not the controller"):
            await other.finalize_feature(FEATURE, 2)
        await other.close()
        await cluster.close()

    run(scenario)


def test_settings_of_an_unknown_topic_are_refused(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        with pytest.raises(ApiError) as refused:
            await cluster.alter_topic("missing", configs={})
        assert refused.value.code is ErrorCode.unknown_topic_or_partition
        await cluster.close()

    run(scenario)


# Producer ids


def test_producer_ids_are_never_given_twice(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        clusters = [await ClusterMetadata.open(await backend.open(), RealWorld()) for _ in range(3)]
        given = await asyncio.gather(*(c.allocate_producer_ids(1) for c in clusters for _ in range(20)))
        for cluster in clusters:
            await cluster.close()
        restarted = await ClusterMetadata.open(await backend.open(), RealWorld())
        given.append(await restarted.allocate_producer_ids(2500))
        await restarted.close()
        ids = [producer_id for block in given for producer_id in block]
        assert len(ids) == len(set(ids)) == 60 + 2500

    run(scenario)


# The view


def test_subscribers_receive_every_change_with_the_old_and_new_view(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        steps: list[tuple[ClusterView, ClusterView]] = []
        changed: list[str] = []

        def hear(old: ClusterView, new: ClusterView) -> None:
            steps.append((old, new))
            changed.extend(cluster.changed_topics(old, new))

        cluster.subscribe(hear)
        started = cluster.view
        await cluster.create_topic(topic("a"))
        await cluster.create_topic(topic("b"))
        await cluster.delete_topics(["a"])
        assert steps[0][0] is started
        assert all(before[1] is after[0] for before, after in pairwise(steps))
        assert steps[-1][1] is cluster.view
        assert changed == ["a", "b", "a"]
        assert set(cluster.changed_topics(started, cluster.view)) == {"b"}
        await cluster.close()

    run(scenario)


def test_unchanged_parts_of_a_view_are_the_same_objects(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        await cluster.create_topic(topic("a"))
        before = cluster.view
        await cluster.create_topic(topic("b"))
        assert cluster.view.topics["a"] is before.topics["a"]
        assert cluster.view.nodes is before.nodes
        assert "b" not in before.topics
        await cluster.close()

    run(scenario)


def test_a_failing_subscriber_does_not_stop_the_others(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(await backend.open())
        heard: list[int] = []

        def fail(old: ClusterView, new: ClusterView) -> None:
            raise RuntimeError("a fault")

        cluster.subscribe(fail)
        cluster.subscribe(lambda old, new: heard.append(new.version))
        await cluster.create_topic(topic("a"))
        assert heard == [cluster.view.version]
        await cluster.close()

    run(scenario)
    assert "a fault" in caplog.text


def test_another_process_s_changes_arrive(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        writer = await controlling(await backend.open())
        reader = await ClusterMetadata.open(await backend.open(), RealWorld())
        await writer.create_topics([topic(f"t{n}") for n in range(30)])
        await writer.delete_topics([f"t{n}" for n in range(29)])
        await asyncio.wait_for(reach(reader, writer), 5)
        assert reader.view == writer.view
        await writer.close()
        await reader.close()

    run(scenario)


def test_a_reader_that_slept_through_many_removals_still_arrives(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        writer = await controlling(await backend.open())
        await writer.create_topics([topic(f"t{n}") for n in range(60)])
        store = DeafStore(await backend.open())
        reader = await ClusterMetadata.open(store, RealWorld())
        store.hears.clear()
        for n in range(59):
            await writer.delete_topics([f"t{n}"])
        store.hears.set()
        await writer.alter_node_configs("", {"log.retention.ms": "1"})
        await asyncio.wait_for(reach(reader, writer), 5)
        assert reader.view == writer.view
        await writer.close()
        await reader.close()

    run(scenario)


def test_waiting_for_a_closed_cluster_ends_with_an_error(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
        waiting = asyncio.ensure_future(cluster._wait_for_version(cluster.view.version + 100))
        await asyncio.sleep(0)
        await cluster.close()
        with pytest.raises(CoordinationError):
            await asyncio.wait_for(waiting, 5)

    run(scenario)
