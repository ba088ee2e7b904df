# SPDX-License-Identifier: Apache-2.0
"""The drawn rebalances: who gets what, what moves, and that nothing else does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.assignors import sticky
from headrace.assignors.subscriptions import Assignment, Subscriber


def group(
    *names: str, topics: tuple[str, ...] = ("orders",), owned: Assignment[str] | None = None
) -> list[Subscriber[str]]:
    return [Subscriber(member_id=name, topics=topics, owned=(owned or {}).get(name, {})) for name in names]


def moved(before: Assignment[str], after: Assignment[str]) -> set[tuple[str, int]]:
    """Partitions that had an owner and have another one now."""

    def owners(assignment: Assignment[str]) -> Mapping[tuple[str, int], str]:
        return {(t, p): m for m, topics in assignment.items() for t, ps in topics.items() for p in ps}

    now = owners(after)
    return {partition for partition, owner in owners(before).items() if now.get(partition) != owner}


@pytest.mark.row("D10")
def test_four_partitions_over_three_consumers_the_fourth_goes_to_the_first() -> None:
    assert sticky.assign(group("A", "B", "C"), {"orders": 4}) == {
        "A": {"orders": [0, 3]},
        "B": {"orders": [1]},
        "C": {"orders": [2]},
    }


@pytest.mark.row("D11")
def test_an_added_partition_goes_to_the_least_loaded() -> None:
    before = {"A": {"orders": [0, 3]}, "B": {"orders": [1, 4]}, "C": {"orders": [2]}}
    after = sticky.assign(group("A", "B", "C", owned=before), {"orders": 6})
    assert after["C"] == {"orders": [2, 5]}
    assert not moved(before, after)


@pytest.mark.row("D11")
def test_a_joining_consumer_takes_from_the_most_loaded() -> None:
    before = {"A": {"orders": [0, 3]}, "B": {"orders": [1]}, "C": {"orders": [2]}}
    after = sticky.assign(group("A", "B", "C", "D", owned=before), {"orders": 4})
    assert after["D"] == {"orders": [3]}
    assert moved(before, after) == {("orders", 3)}


@pytest.mark.row("D11")
def test_a_leaving_consumers_partitions_are_shared_out() -> None:
    before = {"A": {"orders": [0, 3]}, "B": {"orders": [1, 4]}, "C": {"orders": [2, 5]}}
    after = sticky.assign(group("A", "B", owned=before), {"orders": 6})
    assert after == {"A": {"orders": [0, 2, 3]}, "B": {"orders": [1, 4, 5]}}
    assert moved(before, after) == {("orders", 2), ("orders", 5)}


def test_the_extra_partition_stays_with_its_owner() -> None:
    before = {"A": {"orders": [1]}, "B": {"orders": [0, 2]}}
    assert sticky.assign(group("A", "B", owned=before), {"orders": 3}) == before


@pytest.mark.row("D13")
def test_topics_are_spread_over_all_members() -> None:
    after = sticky.assign(group("A", "B", topics=("one", "two")), {"one": 2, "two": 2})
    assert after == {"A": {"one": [0], "two": [0]}, "B": {"one": [1], "two": [1]}}


def test_a_member_with_more_topics_makes_room_along_a_chain() -> None:
    """C can only relieve B, and B then relieves A: one move would not even the loads out."""
    before = {"A": {"x": [0, 1, 2, 3]}, "B": {"y": [0, 1, 2]}, "C": {}}
    members = [
        Subscriber(member_id="A", topics={"x"}, owned=before["A"]),
        Subscriber(member_id="B", topics={"x", "y"}, owned=before["B"]),
        Subscriber(member_id="C", topics={"y"}, owned={}),
    ]
    after = sticky.assign(members, {"x": 4, "y": 3})
    loads = sorted(sum(map(len, topics.values())) for topics in after.values())
    assert loads == [2, 2, 3]
    assert len(moved(before, after)) == 3


def test_unsubscribed_partitions_are_dropped() -> None:
    before = {"A": {"old": [0, 1]}, "B": {"orders": [0]}}
    assert sticky.assign(group("A", "B", owned=before), {"orders": 2, "old": 2}) == {
        "A": {"orders": [1]},
        "B": {"orders": [0]},
    }


def test_a_partition_that_no_longer_exists_is_dropped() -> None:
    before = {"A": {"orders": [0, 7]}}
    assert sticky.assign(group("A", owned=before), {"orders": 2}) == {"A": {"orders": [0, 1]}}


def test_of_two_claims_the_newer_generation_wins() -> None:
    members = [
        Subscriber(member_id="A", topics=["t"], owned={"t": [0, 1]}, generation=4),
        Subscriber(member_id="B", topics=["t"], owned={"t": [0]}, generation=5),
    ]
    assert sticky.assign(members, {"t": 2}) == {"A": {"t": [1]}, "B": {"t": [0]}}
    assert sticky.assign(members[::-1], {"t": 2}) == {"A": {"t": [1]}, "B": {"t": [0]}}


def test_of_two_equal_claims_neither_counts() -> None:
    members = [
        Subscriber(member_id=name, topics=["t"], owned={"t": [0]}, generation=5) for name in ("A", "B", "C")
    ]
    assert sticky.assign(members, {"t": 1}) == {"A": {"t": [0]}, "B": {}, "C": {}}


def test_cooperative_withholds_what_another_still_holds() -> None:
    before = {"A": {"orders": [0, 1]}, "B": {}}
    first = sticky.assign_cooperatively(group("A", "B", owned=before), {"orders": 2})
    assert first == {"A": {"orders": [0]}, "B": {}}
    second = sticky.assign_cooperatively(group("A", "B", owned=first), {"orders": 2})
    assert second == {"A": {"orders": [0]}, "B": {"orders": [1]}}


def test_names_are_those_clients_send() -> None:
    assert (sticky.NAME, sticky.COOPERATIVE_NAME) == ("sticky", "cooperative-sticky")
