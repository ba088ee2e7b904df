# SPDX-License-Identifier: Apache-2.0
"""Subscriptions and assignments of the classic consumer protocol: decoded as encoded; garbage is refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.coordinator.consumer_protocol import (
    NEWEST_VERSION,
    Subscription,
    assigned_partitions,
    assignment_version,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PARTITIONS = st.dictionaries(
    NAMES, st.lists(st.integers(0, 1000), unique=True, max_size=5).map(tuple), max_size=4
)
GENERATIONS = st.integers(-1, (1 << 31) - 1)

NAME = struct.pack(">h", 1) + b"t"
TOPICS = struct.pack(">i", 1) + NAME
OWNED = struct.pack(">i", 1) + NAME + struct.pack(">ii", 1, 7)
NO_USER_DATA, GENERATION_AS_USER_DATA = struct.pack(">i", -1), struct.pack(">ii", 4, 12)


@given(st.lists(NAMES, unique=True, max_size=5), PARTITIONS, GENERATIONS)
def test_subscriptions_are_read_back(
    topics: list[str], owned: dict[str, tuple[int, ...]], generation: int
) -> None:
    subscription = Subscription(tuple(topics), owned, generation)
    data = encode_subscription(subscription)
    assert decode_subscription(data) == subscription
    assert subscribed_topics(data) == frozenset(topics)


@given(PARTITIONS, st.integers(0, NEWEST_VERSION))
def test_assignments_are_read_back(partitions: dict[str, tuple[int, ...]], version: int) -> None:
    data = encode_assignment(partitions, version=version)
    assert decode_assignment(data) == (partitions, False)
    assert assigned_partitions(data) == partitions
    assert assignment_version(data) == version


@given(st.binary(max_size=60))
def test_garbage_raises_one_error(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(DecodeError):
            decode(data)
    assert isinstance(assigned_partitions(data), dict)
    subscribed_topics(data)


@given(NAMES, PARTITIONS, GENERATIONS, st.data())
def test_cut_subscriptions_raise_one_error(
    topic: str, owned: dict[str, tuple[int, ...]], generation: int, data: st.DataObject
) -> None:
    whole = encode_subscription(Subscription((topic,), owned, generation))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DecodeError):
        decode_subscription(whole[:cut])


def test_older_and_newer_versions_are_read() -> None:
    first = struct.pack(">h", 0) + TOPICS + NO_USER_DATA
    second = struct.pack(">h", 1) + TOPICS + GENERATION_AS_USER_DATA + OWNED
    rack = struct.pack(">h", 2) + b"r1"
    newer = struct.pack(">h", 9) + TOPICS + NO_USER_DATA + OWNED + struct.pack(">i", 5) + rack + b"and more"
    assert decode_subscription(first) == Subscription(("t",), {}, -1)
    assert decode_subscription(second) == Subscription(("t",), {"t": (7,)}, 12)
    assert decode_subscription(newer) == Subscription(("t",), {"t": (7,)}, 5, "r1")


def test_a_topic_that_comes_twice_has_the_partitions_of_both() -> None:
    twice = struct.pack(">hi", 0, 2) + NAME + struct.pack(">ii", 1, 7) + NAME + struct.pack(">ii", 1, 8)
    assert assigned_partitions(twice + NO_USER_DATA) == {"t": (7, 8)}


def test_an_empty_assignment_has_no_partitions() -> None:
    assert decode_assignment(b"") == ({}, False)
