# SPDX-License-Identifier: Apache-2.0
"""What DescribeTransactions and ListTransactions are told."""

from __future__ import annotations

import pytest

from headrace.machines.transactions.events import MarkerOutcome
from headrace.machines.transactions.listing import (
    ListingFilter,
    TransactionDescription,
    TransactionListing,
    describe,
    listing,
)
from headrace.types import TopicPartition
from tests.harness.transactions.coordinator import FIRST_PRODUCER_ID, ID, START, TIMEOUT_MS, Coordinator


def ongoing() -> Coordinator:
    coordinator = Coordinator()
    coordinator.add(coordinator.producer(), "t-1", "t-0")
    return coordinator


def test_an_id_without_state_is_neither_described_nor_listed() -> None:
    machine = Coordinator().machine
    assert describe(machine) is None
    assert listing(machine, ListingFilter(), START.wall_ms) is None


def test_an_open_transaction_is_described_with_its_partitions() -> None:
    assert describe(ongoing().machine) == TransactionDescription(
        transactional_id=ID,
        state="Ongoing",
        producer_id=FIRST_PRODUCER_ID,
        producer_epoch=0,
        timeout_ms=TIMEOUT_MS,
        start_timestamp=START.wall_ms,
        partitions=(TopicPartition("t", 0), TopicPartition("t", 1)),
    )


def test_a_decided_one_with_those_that_have_no_marker_yet() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-1", "t-0")
    coordinator.end(producer, committed=True)
    coordinator.answer(coordinator.sent[0], MarkerOutcome.WRITTEN, "t-1")
    described = describe(coordinator.machine)
    assert described is not None
    assert (described.state, described.partitions) == ("PrepareCommit", (TopicPartition("t", 0),))
    coordinator.answer(coordinator.sent[0], MarkerOutcome.WRITTEN, "t-0")
    described = describe(coordinator.machine)
    assert described is not None
    assert (described.state, described.partitions) == ("CompleteCommit", ())


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (ListingFilter(), True),
        (ListingFilter(states=["Ongoing", "Empty"]), True),
        (ListingFilter(states=["Empty"]), False),
        (ListingFilter(states=["Gone"]), False),
        (ListingFilter(producer_ids=[FIRST_PRODUCER_ID]), True),
        (ListingFilter(producer_ids=[1]), False),
        (ListingFilter(longer_than_ms=99), True),
        (ListingFilter(longer_than_ms=100), False),
        (ListingFilter(matches_id=lambda name: name.startswith("t")), True),
        (ListingFilter(matches_id=lambda name: name.startswith("u")), False),
    ],
)
def test_what_a_filter_lets_pass(wanted: ListingFilter, passes: bool) -> None:
    found = listing(ongoing().machine, wanted, START.wall_ms + 100)
    assert found == (
        TransactionListing(transactional_id=ID, producer_id=FIRST_PRODUCER_ID, state="Ongoing")
        if passes
        else None
    )


def test_states_that_do_not_exist_are_named() -> None:
    assert ListingFilter(states=["Ongoing", "Gone"]).unknown_states == ["Gone"]
