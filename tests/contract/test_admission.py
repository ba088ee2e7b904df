# SPDX-License-Identifier: Apache-2.0
"""Letting nodes in, giving them up, leaving, and replacing a dead controller: on every store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, ErrorCode
from headrace.realworld import RealWorld
from headrace.types import Move, PartitionState, Topic
from tests.contract.store_backends import Backend, Run


async def joined(backend: Backend, node_id: int, *, lossless: bool = True) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(await backend.open(), RealWorld())
    await cluster.register_node(
        node_id=node_id, host_id="h", hostname=f"host-{node_id}", endpoints=(), session_ttl_ms=30_000,
        waits_for_admission=True, lossless=lossless,
    )  # fmt: skip
    return cluster


async def until(cluster: ClusterMetadata, true: Callable[[], bool]) -> None:
    """Looks again at each change of the view."""
    changed = asyncio.Event()
    cluster.subscribe(lambda old, new: changed.set())
    while not true():
        changed.clear()
        await asyncio.wait_for(changed.wait(), 10)


def test_a_node_is_live_when_the_controller_lets_it_in(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2, lossless=False)
        await one.become_controller(1)
        await one.catch_up()
        assert one.view.nodes == {}
        assert set(one.view.joining) == {1, 2}
        assert not one.view.joining[2].lossless
        await one.set_admission(one.view.joining[2], fenced=False)
        await until(two, lambda: 2 in two.view.nodes)
        assert two.view.nodes[2].epoch == two.node_epoch
        assert set(two.view.joining) == {1}
        await one.close()
        await two.close()

    run(scenario)


def test_an_admission_holds_for_one_incarnation_only(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2)
        await one.become_controller(1)
        await one.catch_up()
        before = one.view.joining[2]
        await two.close()
        again = await joined(backend, 2)
        await one.catch_up()
        await one.set_admission(before, fenced=False)
        assert 2 not in one.view.nodes
        assert one.view.joining[2].epoch == again.node_epoch
        await one.set_admission(one.view.joining[2], fenced=False)
        assert 2 in one.view.nodes
        await again.close()
        await one.close()

    run(scenario)


def test_a_fenced_node_that_is_still_running_registers_again(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2)
        await one.become_controller(1)
        await one.catch_up()
        await one.set_admission(one.view.joining[2], fenced=False)
        epoch = one.view.nodes[2].epoch
        await one.set_admission(one.view.nodes[2], fenced=True)
        assert 2 not in one.view.nodes
        await until(one, lambda: 2 in one.view.joining)
        assert one.view.joining[2].epoch > epoch
        for _ in range(100):  # it hears of its own registration a moment later
            if two.node_epoch != epoch:
                break
            await asyncio.sleep(0.02)
        assert two.node_epoch == one.view.joining[2].epoch
        await two.close()
        await one.close()

    run(scenario)


def test_a_node_reports_possible_loss_until_it_was_admitted(run: Run) -> None:
    """R20: a registration that nobody acted on has told nobody. R21: who was let in holds what it has."""

    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2, lossless=False)
        await one.become_controller(1)
        await one.catch_up()
        await one.set_admission(one.view.joining[2], fenced=True)
        await until(one, lambda: 2 in one.view.joining)
        again = one.view.joining[2]
        assert not again.lossless
        await one.set_admission(again, fenced=False)
        await until(two, lambda: 2 in two.view.nodes)
        await one.set_admission(one.view.nodes[2], fenced=True)
        await until(one, lambda: 2 in one.view.joining)
        assert one.view.joining[2].epoch > again.epoch
        assert one.view.joining[2].lossless
        await two.close()
        await one.close()

    run(scenario)


def test_a_leaving_node_is_marked_and_does_not_register_again(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2)
        await one.become_controller(1)
        await one.catch_up()
        await one.set_admission(one.view.joining[2], fenced=False)
        await two.announce(leaving=True)
        await until(one, lambda: one.view.nodes[2].leaving)
        assert one.view.nodes[2].epoch == two.node_epoch
        await one.set_admission(one.view.nodes[2], fenced=True)
        await two.catch_up()
        await asyncio.sleep(0.05)
        await one.catch_up()
        assert set(one.view.fenced) == {2}
        await two.close()
        await until(one, lambda: not one.view.fenced)
        await one.close()

    run(scenario)


def test_a_dead_controller_is_replaced_before_its_session_ends_and_then_fenced(run: Run) -> None:
    """R2: entry and epoch in one commit; whoever was replaced writes nothing more."""

    async def scenario(backend: Backend) -> None:
        one, two = await joined(backend, 1), await joined(backend, 2)
        epoch = await one.become_controller(1)
        await two.catch_up()
        assert await two.become_controller(2) is None
        assert epoch is not None
        assert await two.become_controller(2, instead_of=epoch) == epoch + 1
        assert await two.become_controller(2, instead_of=epoch) == epoch + 1  # not a second time
        with pytest.raises(ApiError) as refused:
            await one.create_topic(Topic(name="t", topic_id=uuid.uuid4(), partitions=()))
        assert refused.value.code is ErrorCode.not_controller
        await one.close()
        await two.catch_up()
        assert two.view.controller_id == 2
        await two.close()

    run(scenario)


def test_states_are_written_together_and_only_on_what_was_seen(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        one = await joined(backend, 1)
        await one.become_controller(1)
        state = PartitionState(replicas=(1, 2), leader=1, leader_epoch=0, isr=(1, 2))
        for name in ("a", "b"):
            await one.create_topic(Topic(name=name, topic_id=uuid.uuid4(), partitions=(state,)))
        move = Move(original=(1, 2), target=(1, 3))
        changed = replace(state, leader=2, leader_epoch=1, isr=(2,), elr=(1,))
        wanted = [replace(one.view.topics[name], partitions=(changed,), moves={0: move}) for name in "ab"]
        assert await one.write_topics(wanted) == [None, None]
        assert one.view.topics["a"].partitions == (changed,)
        assert one.view.topics["a"].moves == {0: move}
        other = await joined(backend, 2)
        epoch = one.view.controller_epoch
        await other.become_controller(2, instead_of=epoch)
        refusals = await one.write_topics(wanted)
        assert {refusal.code for refusal in refusals if refusal} == {ErrorCode.not_controller}
        await other.close()
        await one.close()

    run(scenario)
