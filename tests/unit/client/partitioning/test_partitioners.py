# SPDX-License-Identifier: Apache-2.0
"""Which partition a record goes to (D4, D5)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.errors import ClientError
from headrace.client.partitioning.partitioners import (
    ExplicitPartitioner,
    RangePartitioner,
    StickyPartitioner,
    hash_partition,
    murmur2,
)
from headrace.key_ranges import parse_ranges

DRAWN = parse_ranges("AAAA..MZZZ,NAAA..ZZZZ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # what org.apache.kafka.common.utils.Utils.murmur2 answers; make compat asks it for 100,000 more
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
        ("", 275646681),
    ],
)
def test_murmur2_is_the_java_clients(text: str, expected: int) -> None:
    assert murmur2(text.encode()) == expected


@pytest.mark.row("D4")
@given(st.binary(max_size=40), st.integers(1, 100))
def test_same_key_same_partition(key: bytes, partitions: int) -> None:
    first = hash_partition(key, partitions)
    assert first == hash_partition(key, partitions)
    assert 0 <= first < partitions


@pytest.mark.row("D4")
def test_records_without_a_key_are_spread_a_batch_at_a_time() -> None:
    partitioner = StickyPartitioner(Random(7), sticky_bytes=1000)
    places = [partitioner.partition(None, 100, 4) for _ in range(4000)]
    runs = [places[start : start + 10] for start in range(0, 4000, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != other[0] for one, other in pairwise(runs))
    assert all(800 < count < 1200 for count in Counter(places).values())


def test_the_spread_ignores_keys_and_follows_a_shrinking_count() -> None:
    partitioner = StickyPartitioner(Random(3), sticky_bytes=1)
    assert {partitioner.partition(b"k", 5, 8) for _ in range(200)} == set(range(8))
    assert {partitioner.partition(b"k", 5, 1) for _ in range(5)} == {0}


@pytest.mark.row("D4")
def test_a_named_partition_is_used_or_refused() -> None:
    assert ExplicitPartitioner(2).partition(b"k", 0, 3) == 2
    with pytest.raises(ClientError, match="partition 3 does not exist: the topic has 3, numbered 0 to 2"):
        ExplicitPartitioner(3).partition(b"k", 0, 3)


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("YOLO", 1),
        ("AAAA", 0),
        ("HELLO", 0),
        ("MZZZ", 0),
        ("MZZZ-1", 0),
        ("MZZZZZZZ", 0),
        ("NAAA", 1),
        ("ZZZZ", 1),
        ("ZZZZ9", 1),
    ],
)
def test_the_drawn_ranges_place_keys(key: str, partition: int) -> None:
    assert RangePartitioner(DRAWN).partition(key.encode(), 0, 2) == partition


@pytest.mark.row("D5")
@pytest.mark.parametrize("key", ["AAA", "", "MZZa", "N", "ZZZa", "yolo", "éa"])
def test_a_key_outside_every_range_is_refused_with_the_ranges_named(key: str) -> None:
    with pytest.raises(ClientError, match=r"is outside every range \(AAAA..MZZZ, NAAA..ZZZZ\)") as caught:
        RangePartitioner(DRAWN).partition(key.encode(), 0, 2)
    assert "--outside nearest" in str(caught.value)


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    ("key", "partition"),
    [("A", 0), ("", 0), ("MZZa", 0), ("NA", 1), ("M~", 0), ("N", 1), ("zz", 1), ("YOLO", 1)],
)
def test_a_key_outside_can_go_to_the_nearest_range(key: str, partition: int) -> None:
    assert RangePartitioner(DRAWN, outside="nearest").partition(key.encode(), 0, 2) == partition


@pytest.mark.row("D5")
def test_a_record_without_a_key_is_refused_by_ranges() -> None:
    for outside in ("error", "nearest"):
        with pytest.raises(ClientError, match="without a key"):
            RangePartitioner(DRAWN, outside=outside).partition(None, 0, 2)  # type: ignore[arg-type]


@pytest.mark.row("D5")
def test_there_are_as_many_ranges_as_partitions() -> None:
    with pytest.raises(ClientError, match="the topic has 3 partitions but 2 key ranges"):
        RangePartitioner(DRAWN).partition(b"YOLO", 0, 3)


def test_ranges_may_be_given_in_any_order() -> None:
    partitioner = RangePartitioner(parse_ranges("NAAA..ZZZZ,AAAA..MZZZ"), outside="nearest")
    assert partitioner.partition(b"YOLO", 0, 2) == 0
    assert partitioner.partition(b"A", 0, 2) == 1
    assert partitioner.partition(b"zz", 0, 2) == 0
