# SPDX-License-Identifier: Apache-2.0
"""What the group measures compute for themselves: gaps, first records, the coordinator's partition."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from bench.group_consumers import GroupConsumer, wait_until_shared
from bench.measures.groups import COORDINATOR_PROFILE, LONG_SESSION_PROFILE, coordinator_partition
from tests.harness.groups import wire as wire


@pytest.fixture
def consumer() -> GroupConsumer:
    return GroupConsumer("127.0.0.1:9", "t", "g", "classic")


def test_a_pause_is_the_longest_time_without_a_record(consumer: GroupConsumer) -> None:
    consumer.arrivals = [(0.0, 0), (9.0, 0), (10.0, 0), (10.5, 1), (12.0, 0), (12.25, 1)]
    assert consumer.longest_gap(since=9.5) == 1.5
    with pytest.raises(KafkaException, match="no records"):
        consumer.longest_gap(since=12.1)


def test_the_first_record_after_a_moment_counts_for_each_partition(consumer: GroupConsumer) -> None:
    consumer.arrivals = [(1.0, 0), (2.0, 1), (3.0, 0), (4.0, 1), (5.0, 2)]
    assert consumer.first_of({0, 1}, since=2.5) == {0: 3.0, 1: 4.0}
    assert consumer.first_of({0}, since=4.5) == {}


def test_missing_shares_are_named_after_the_timeout(consumer: GroupConsumer) -> None:
    consumer.owned = {0, 1}
    wait_until_shared([consumer], [2])
    with pytest.raises(TimeoutError, match=r"shared as \[3\]; owned are \[\[0, 1\]\]"):
        wait_until_shared([consumer], [3], timeout_s=0.01)


@pytest.mark.parametrize(
    ("group", "hash_code"), [("", 0), ("a", 97), ("group", 98629247), ("zzzzzz", -685785664)]
)
def test_a_group_is_looked_for_where_java_puts_it(group: str, hash_code: int) -> None:
    assert coordinator_partition(group) == (hash_code & 0x7FFFFFFF) % 50


def test_both_engines_get_the_same_settings_and_nothing_waits_on_purpose() -> None:
    for profile in (COORDINATOR_PROFILE, LONG_SESSION_PROFILE):
        assert profile.settings["group.initial.rebalance.delay.ms"] == "0"
        assert profile.settings["group.consumer.assignment.interval.ms"] == "0"
        assert not any(name.startswith("headrace.") for name in profile.settings)


def test_assignments_are_read_as_they_were_written() -> None:
    shares = {"topic": [0, 5, 7], "other": []}
    assert wire.read_assignment(wire.assignment(shares)) == shares
    assert wire.read_assignment(b"") == {}
