# SPDX-License-Identifier: Apache-2.0
"""R6: an unknown outcome is looked up before anything is tried again. On the simulated ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.memory import Fault, MemoryState, MemoryStore
from headrace.coordination.outcomes import commit_resolving_unknown
from headrace.coordination.store import Applied, Conflict, Create, Delete, Set
from headrace.errors import ApiError, CoordinationError, ErrorCode, OutcomeUnknown
from headrace.realworld import RealWorld
from headrace.types import PartitionState, Topic

UNKNOWN = [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED]


def on_a_store(scenario: Callable[[MemoryStore, MemoryStore], Awaitable[None]]) -> None:
    async def main() -> None:
        world = RealWorld()
        state = MemoryState(world, profile="zookeeper")
        await scenario(MemoryStore(state, world), MemoryStore(state, world))

    asyncio.run(main())


@pytest.mark.parametrize("fault", UNKNOWN)
def test_create_set_and_delete_take_place_exactly_once(fault: Fault) -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        store.faults = [fault]
        assert isinstance(await commit_resolving_unknown(store, [Create("/a", b"1")]), Applied)
        version = (await store.view()).entries["/a"].version
        store.faults = [fault]
        assert isinstance(await commit_resolving_unknown(store, [Set("/a", b"2", version)]), Applied)
        entry = (await store.view()).entries["/a"]
        assert (entry.value, entry.version) == (b"2", version + 1)
        store.faults = [fault]
        assert isinstance(await commit_resolving_unknown(store, [Delete("/a", entry.version)]), Applied)
        assert (await store.view()).entries == {}

    on_a_store(scenario)


@pytest.mark.parametrize("fault", UNKNOWN)
def test_a_conflict_behind_an_unknown_outcome_is_found(fault: Fault) -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        await other.commit([Create("/a", b"theirs")])
        store.faults = [fault]
        assert await commit_resolving_unknown(store, [Create("/a", b"ours")]) == Conflict("/a")
        assert (await store.view()).entries["/a"].value == b"theirs"

    on_a_store(scenario)


def test_an_entry_with_our_value_but_another_owner_is_not_ours() -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        mine, theirs = await store.open_session(60_000), await other.open_session(60_000)
        await other.commit([Create("/controller", b"1", owner=theirs.id)])
        store.faults = [Fault.UNKNOWN_NOT_APPLIED]
        outcome = await commit_resolving_unknown(store, [Create("/controller", b"1", owner=mine.id)])
        assert outcome == Conflict("/controller")

    on_a_store(scenario)


def test_a_store_that_stays_out_of_reach_leaves_it_unknown() -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        store.faults = [Fault.UNKNOWN_NOT_APPLIED] * 10
        with pytest.raises(OutcomeUnknown):
            await commit_resolving_unknown(store, [Create("/a", b"1")])

    on_a_store(scenario)


def test_a_refused_commit_is_not_retried() -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        store.faults = [Fault.UNAVAILABLE]
        with pytest.raises(CoordinationError):
            await commit_resolving_unknown(store, [Create("/a", b"1")])
        assert (await store.view()).entries == {}

    on_a_store(scenario)


@pytest.mark.parametrize("fault", UNKNOWN)
def test_unknown_outcomes_at_every_step_are_resolved(fault: Fault) -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        store.faults = [fault]
        cluster = await ClusterMetadata.open(store, RealWorld())
        store.faults = [fault]
        await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=60_000)
        store.faults = [fault]
        assert await cluster.become_controller(1) == 1
        state = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
        topics = [Topic(name=name, topic_id=uuid.uuid4(), partitions=(state,)) for name in "abc"]
        store.faults = [fault]
        assert await cluster.create_topics(topics) == [None] * 3
        store.faults = [fault]
        await cluster.alter_topic("a", configs={"retention.ms": "1"})
        store.faults = [fault]
        assert await cluster.delete_topics(["b"]) == [None]
        store.faults = [fault]
        ids = await cluster.allocate_producer_ids(1)
        assert set(cluster.view.topics) == {"a", "c"}
        assert cluster.view.topics["a"].configs == {"retention.ms": "1"}
        assert len(ids) == 1
        await cluster.close()

    on_a_store(scenario)


def test_a_store_that_fails_midway_leaves_each_topic_with_its_own_answer() -> None:
    async def scenario(store: MemoryStore, other: MemoryStore) -> None:
        cluster = await ClusterMetadata.open(store, RealWorld())
        await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=60_000)
        await cluster.become_controller(1)
        state = PartitionState(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
        names = [f"t{n}" for n in range(1100)]
        topics = [Topic(name=name, topic_id=uuid.uuid4(), partitions=(state,)) for name in names]

        def fail_second_commit() -> None:
            commits = iter([False, True])
            apply = MemoryStore.commit

            async def commit(operations: Any) -> Any:
                if operations and next(commits, False):
                    raise CoordinationError("database or disk is full")
                return await apply(store, operations)

            store.commit = commit  # type: ignore[method-assign]

        fail_second_commit()
        results = await cluster.create_topics(topics)
        assert results[:500] == [None] * 500
        assert {result.code for result in results[500:] if result} == {ErrorCode.request_timed_out}
        assert set(cluster.view.topics) == set(names[:500])
        assert "disk is full" in str(results[-1])
        fail_second_commit()
        results = await cluster.delete_topics([*names[:500], "missing", *names[:3]])
        assert results[:500] == [None] * 500
        fail_second_commit()
        await cluster.allocate_producer_ids(1)
        with pytest.raises(ApiError) as refused:
            await cluster.allocate_producer_ids(5000)
        assert refused.value.code is ErrorCode.request_timed_out
        await cluster.close()

    on_a_store(scenario)


def test_the_view_goes_on_when_the_store_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    class Flaky(MemoryStore):
        failures = 2

        async def changes(self, since_version: int, timeout_ms: int):  # type: ignore[no-untyped-def]
            if self.failures:
                self.failures -= 1
                raise CoordinationError("away")
            return await super().changes(since_version, timeout_ms)

    async def main() -> None:
        world = RealWorld()
        state = MemoryState(world)
        cluster = await ClusterMetadata.open(Flaky(state, world), world)
        settings = Create("/configs/nodes/1", b'{"format":1,"configs":{"a":"b"}}')
        await MemoryStore(state, world).commit([settings])
        await asyncio.wait_for(cluster.catch_up(), 5)
        assert cluster.view.node_configs == {"1": {"a": "b"}}
        await cluster.close()

    asyncio.run(main())
    assert "cannot read changes of the cluster" in caplog.text
