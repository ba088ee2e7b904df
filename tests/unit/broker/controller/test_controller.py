# SPDX-License-Identifier: Apache-2.0
"""The controller beside its handlers: auto-creation, races, what a lost controllership answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.broker.controller.controller import Controller
from headrace.broker.controller.topic_rules import MorePartitions, NewTopic
from headrace.config import load_config
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.memory import Fault, MemoryState, MemoryStore
from headrace.coordination.store import Set
from headrace.errors import ApiError, ErrorCode
from headrace.realworld import RealWorld
from headrace.types import Topic


class Node:
    def __init__(self, cluster: ClusterMetadata, controller: Controller, store: MemoryStore) -> None:
        self.cluster = cluster
        self.controller = controller
        self.store = store


def on_a_controller(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        world = RealWorld()
        store = MemoryStore(MemoryState(world), world)
        cluster = await ClusterMetadata.open(store, world)
        await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=60_000)
        await cluster.become_controller(1)
        await scenario(Node(cluster, Controller(cluster, world, load_config(None, {}, {})), store))
        await cluster.close()

    asyncio.run(main())


def test_a_topic_is_made_on_first_use_and_found_afterwards() -> None:
    async def scenario(node: Node) -> None:
        made = await node.controller.ensure_topic("t")
        assert node.cluster.view.topics["t"] == made
        assert await node.controller.ensure_topic("t") is node.cluster.view.topics["t"]

    on_a_controller(scenario)


def test_many_first_uses_at_once_make_one_topic() -> None:
    async def scenario(node: Node) -> None:
        found = await asyncio.gather(*(node.controller.ensure_topic("t") for _ in range(20)))
        assert len({topic.topic_id for topic in found}) == 1

    on_a_controller(scenario)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a b", ErrorCode.invalid_topic_exception),
        ("__consumer_offsets", ErrorCode.unknown_topic_or_partition),
        ("__transaction_state", ErrorCode.unknown_topic_or_partition),
    ],
)
def test_names_that_may_not_be_made_on_first_use(name: str, code: ErrorCode) -> None:
    async def scenario(node: Node) -> None:
        with pytest.raises(ApiError) as refused:
            await node.controller.ensure_topic(name)
        assert refused.value.code is code
        assert node.cluster.view.topics == {}

    on_a_controller(scenario)


def test_one_of_two_concurrent_creations_gets_topic_already_exists() -> None:
    async def scenario(node: Node) -> None:
        answers = await asyncio.gather(
            *(node.controller.create_topics([NewTopic(name="t")]) for _ in range(2))
        )
        (first,), (second,) = answers
        assert isinstance(first, Topic)
        assert isinstance(second, ApiError)
        assert second.code is ErrorCode.topic_already_exists

    on_a_controller(scenario)


def test_partitions_added_at_the_same_time_are_judged_one_after_the_other() -> None:
    async def scenario(node: Node) -> None:
        await node.controller.create_topics([NewTopic(name="t")])
        wish = MorePartitions(name="t", count=3)
        outcomes = await asyncio.gather(*(node.controller.create_partitions([wish]) for _ in range(3)))
        codes = [outcome[0].code if outcome[0] else None for outcome in outcomes]
        assert sorted(codes, key=str) == sorted([None] + [ErrorCode.invalid_partitions] * 2, key=str)
        assert len(node.cluster.view.topics["t"].partitions) == 3

    on_a_controller(scenario)


def test_added_partitions_keep_settings_that_were_altered_meanwhile() -> None:
    async def scenario(node: Node) -> None:
        await node.controller.create_topics([NewTopic(name="t")])
        await asyncio.gather(
            node.controller.create_partitions([MorePartitions(name="t", count=4)]),
            node.controller.alter_topic_configs("t", {"retention.ms": "1"}),
        )
        topic = node.cluster.view.topics["t"]
        assert (len(topic.partitions), topic.configs) == (4, {"retention.ms": "1"})

    on_a_controller(scenario)


def test_a_controller_that_was_replaced_makes_nothing() -> None:
    async def scenario(node: Node) -> None:
        entry = (await node.store.view()).entries["/controller_epoch"]
        await node.store.commit([Set("/controller_epoch", b'{"format":1,"epoch":9}', entry.version)])
        (refusal,) = await node.controller.create_topics([NewTopic(name="t")])
        assert isinstance(refusal, ApiError)
        assert refusal.code is ErrorCode.not_controller
        with pytest.raises(ApiError) as refused:
            await node.controller.alter_node_configs("", {"log.retention.ms": "1"})
        assert refused.value.code is ErrorCode.not_controller

    on_a_controller(scenario)


def test_a_store_that_does_not_answer_is_a_refusal_that_clients_try_again() -> None:
    async def scenario(node: Node) -> None:
        await node.controller.create_topics([NewTopic(name="present")])

        def fails() -> None:
            node.store.faults = [Fault.UNAVAILABLE]

        fails()
        (created,) = await node.controller.create_topics([NewTopic(name="t")])
        fails()
        (deleted,) = await node.controller.delete_topics(["present"])
        fails()
        (added,) = await node.controller.create_partitions([MorePartitions(name="present", count=2)])
        outcomes = [created, deleted, added]
        for call in (
            node.controller.ensure_topic("u"),
            node.controller.alter_topic_configs("present", {"retention.ms": "1"}),
            node.controller.alter_node_configs("", {"log.retention.ms": "1"}),
        ):
            fails()
            with pytest.raises(ApiError) as refused:
                await call
            outcomes.append(refused.value)
        assert all(
            isinstance(each, ApiError) and each.code is ErrorCode.request_timed_out for each in outcomes
        )
        assert set(node.cluster.view.topics) == {"present"}

    on_a_controller(scenario)


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED])
def test_an_unknown_outcome_makes_the_topic_once(fault: Fault) -> None:
    async def scenario(node: Node) -> None:
        node.store.faults = [fault]
        (made,) = await node.controller.create_topics([NewTopic(name="t")])
        assert made == node.cluster.view.topics["t"]

    on_a_controller(scenario)
