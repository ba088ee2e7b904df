# SPDX-License-Identifier: Apache-2.0
"""Consumers = all producers / one consumer; partitions ≥ consumers; what a failure costs (D16)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.planning.capacity import (
    Figure,
    Situation,
    consumers_needed,
    consumers_with_spare,
    make_plan,
)
from headrace.client.planning.measurement import consumer_rates, is_busy
from headrace.client.tools.groups import GroupDescription, GroupMember
from headrace.client.tools.lag import Sighting
from headrace.types import TopicPartition

RATES = st.floats(0.01, 1e6)


def figure(value: float) -> Figure:
    return Figure(value=value, source="measured", how="")


def situation(produce: float, consume: float, **other: Any) -> Situation:
    base = Situation(
        topic="orders",
        produce_rate=figure(produce),
        consume_rate=figure(consume),
        consume_rate_is_floor=False,
        busiest_partition_rate=None,
        partitions=1,
        consumers=None,
        headroom=figure(1.5),
        session_timeout_ms=figure(10_000),
        rebalance_ms=figure(1_000),
        node_down_ms=figure(5_000),
        node_share=1.0,
    )
    return dataclasses.replace(base, **other)


@pytest.mark.row("D16")
@pytest.mark.parametrize(
    ("produce", "consume", "needed", "with_spare"),
    [(1000, 300, 4, 5), (900, 300, 3, 5), (10, 300, 1, 2), (300, 100 - 1e-13, 3, 5), (5000, 900, 6, 7)],
)
def test_consumers_are_all_producers_over_one_consumer(
    produce: float, consume: float, needed: int, with_spare: int
) -> None:
    assert consumers_needed(produce, consume) == needed
    assert consumers_with_spare(produce, consume) == with_spare


@pytest.mark.row("D16")
@given(RATES, st.floats(0.01, 200), st.integers(1, 300), st.floats(1, 4))
def test_a_plan_is_enough_and_not_more(
    consume: float, times: float, partitions: int, headroom: float
) -> None:
    produce = consume * times
    asked = situation(produce, consume, partitions=partitions, headroom=figure(headroom))
    plan = make_plan(asked)
    assert plan.consumers * consume >= produce * (1 - 1e-6)
    assert (plan.consumers - 1) * consume <= produce or plan.consumers == 1
    assert (plan.consumers_with_spare - 1) * consume > produce * (1 - 1e-6)
    assert plan.partitions >= max(plan.consumers, plan.consumers_with_spare, partitions)
    busiest = math.ceil(plan.partitions / plan.consumers_with_spare) / plan.partitions * produce
    assert busiest <= consume * (1 + 1e-6), "the consumer with most partitions can bear them"
    spare = next(choice for choice in plan.choices if choice.consumers == plan.consumers_with_spare)
    assert spare.load < 1 + 1e-6


def test_partitions_are_shared_out_evenly_enough() -> None:
    """7 over 5 consumers would give one of them two sevenths, more than the fifth it can do."""
    plan = make_plan(situation(490, 100, headroom=figure(1.2), partitions=1))
    assert (plan.consumers, plan.consumers_with_spare) == (5, 6)
    assert plan.partitions == 10


def test_the_death_of_a_consumer() -> None:
    """Its quarter of 900/s waits 10 s, then all of it for 1 s: 3,150 records; three are left, but with a
    fifth there are 1,200/s for 900/s: 1,800 + 900 records are worked off at 300/s."""
    plan = make_plan(situation(900, 300, consumers=4))
    four, five = plan.choices[1:]
    assert [choice.consumers for choice in plan.choices] == [3, 4, 5]
    assert (four.consumer_dies.lag, four.consumer_dies.caught_up_ms) == (3150, None)
    assert (five.consumer_dies.lag, five.consumer_dies.caught_up_ms) == (2700, 11_000 + 9_000)


def test_the_death_of_a_node() -> None:
    half = make_plan(situation(900, 300, node_share=0.5)).choices[1].node_dies
    assert half is not None
    assert (half.lag, half.caught_up_ms) == (2250, 5_000 + 3_750)
    assert make_plan(situation(900, 300, node_down_ms=None)).choices[0].node_dies is None


@given(RATES, RATES)
def test_more_consumers_lose_less(produce: float, consume: float) -> None:
    lags = [choice.consumer_dies.lag for choice in make_plan(situation(produce, consume)).choices]
    assert lags == sorted(lags, reverse=True)


def test_the_limiting_resource_is_named() -> None:
    few = make_plan(situation(1000, 300, partitions=2, consumers=1))
    assert "headrace topics alter orders --partitions" in few.limits[0]
    assert few.limits[1] == "the group has 1 consumer, and the producers need 4"
    skewed = make_plan(situation(1000, 300, partitions=8, busiest_partition_rate=700))
    assert "one partition alone gets 700 of 1,000 records/s" in skewed.limits[0]
    even = make_plan(situation(1000, 300, partitions=3, busiest_partition_rate=334))
    assert not any("alone" in limit for limit in even.limits)
    assert make_plan(situation(10, 300)).limits == (
        "one consumer's own speed: the faster it is, the fewer are needed",
    )


def test_missing_measurements_are_named() -> None:
    assert make_plan(situation(1, 1)).unknown == ()
    asked = situation(1, 1, rebalance_ms=None, node_down_ms=None, consume_rate_is_floor=True)
    speed, rebalance, node = make_plan(asked).unknown
    assert "--handler" in speed
    assert "--rebalance-time" in rebalance
    assert "--node-down" in node


def seen(*offsets: int) -> list[Sighting]:
    return [Sighting(second * 1000, offset) for second, offset in enumerate(offsets)]


def test_a_consumer_that_keeps_up_is_not_at_its_limit() -> None:
    p0, p1, p2 = (TopicPartition("orders", index) for index in range(3))
    members = tuple(
        GroupMember(member_id=name, instance_id=None, client_id="", host="", assigned=held)
        for name, held in (("slow", (p0, p1)), ("quick", (p2,)), ("idle", ()))
    )
    group = GroupDescription(
        group_id="g",
        protocol_type="consumer",
        group_type="classic",
        state="Stable",
        assignor="",
        epoch=None,
        node_id=1,
        members=members,
    )
    ends = {where: seen(1000, 1100, 1200, 1300) for where in (p0, p1, p2)}
    commits = {p0: seen(10, 40, 70, 100), p1: seen(0, 20, 40, 60), p2: seen(950, 1050, 1150, 1250)}
    slow, quick = consumer_rates(group, ends, commits)
    assert (slow.member_id, slow.rate, slow.busy) == ("slow", pytest.approx(50), True)
    assert (quick.member_id, quick.rate, quick.busy) == ("quick", pytest.approx(100), False)


@given(st.integers(0, 10**9), st.floats(0, 1e9))
def test_nobody_without_a_lag_is_busy(lag: int, rate_in: float) -> None:
    assert not is_busy(0, rate_in)
    assert is_busy(lag + 1, 0)
