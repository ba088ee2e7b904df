# SPDX-License-Identifier: Apache-2.0
"""Key ranges: text form, rules, nearest, learning from a sample (D5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.partitioning.partitioners import RangePartitioner
from headrace.errors import ConfigError
from headrace.key_ranges import (
    NO_KEYS,
    KeyRange,
    KeyRanges,
    Outside,
    boundaries_from_sample,
    check_ranges,
    format_ranges,
    parse_ranges,
)

DRAWN = "AAAA..MZZZ,NAAA..ZZZZ"
boundary = st.binary(max_size=6)


@pytest.mark.row("D5")
def test_the_drawn_ranges_are_read_and_written_back() -> None:
    ranges = parse_ranges(DRAWN)
    assert ranges == (KeyRange(low=b"AAAA", high=b"MZZZ"), KeyRange(low=b"NAAA", high=b"ZZZZ"))
    assert format_ranges(ranges) == DRAWN


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a key range"),
        ("AAAA", "'AAAA' is not a key range"),
        ("A..B..C", "is not a key range"),
        ("A..M,", "is not a key range"),
        ("A..M,,N..Z", "is not a key range"),
        ("Z..A", "upside down"),
        ("A..N,M..Z", "overlap"),
        ("A..M,M..Z", "overlap"),
        ("A..M,MA..Z", "overlap"),
        ("A..M,A..M", "overlap"),
        ("A..,B..C", "overlap"),
        ("A\\q..B", "is not understood"),
        ("A\\x1..B", "is not understood"),
        ("A..B\\", "is not understood"),
    ],
)
def test_wrong_ranges_are_refused_with_the_offender_named(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_ranges(text)


def test_signs_of_the_form_itself_can_be_escaped() -> None:
    assert parse_ranges(r"a\,b..c\.\.d,e\\..f\xff") == (
        KeyRange(low=b"a,b", high=b"c..d"),
        KeyRange(low=b"e\\", high=b"f\xff"),
    )


def test_a_lone_dot_needs_no_escape() -> None:
    assert parse_ranges("v1.0..v1.9") == (KeyRange(low=b"v1.0", high=b"v1.9"),)


@given(boundary, boundary)
def test_every_boundary_survives_its_text_form(low: bytes, high: bytes) -> None:
    low, high = sorted((low, high))
    key_range = KeyRange(low=low, high=high)
    text = format_ranges([key_range])
    assert parse_ranges(text) == (key_range,)
    assert text.isprintable()


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=60), st.integers(1, 6), st.binary(max_size=5))
def test_learned_ranges_leave_no_gap_and_use_every_partition(
    sample: list[bytes], partitions: int, other: bytes
) -> None:
    try:
        ranges = boundaries_from_sample(sample, partitions)
    except ConfigError:
        assert len(set(sample)) <= partitions or any(key.endswith(b"\x00") for key in sample)
        return
    partitioner = RangePartitioner(parse_ranges(format_ranges(ranges)))
    used = {partitioner.partition(key, 0, partitions) for key in sample}
    assert partitioner.partition(other, 0, partitions) in range(partitions)
    if not any(key.endswith(b"\x00") for key in sample):
        assert used == set(range(partitions))


def test_a_learned_cut_is_even() -> None:
    sample = [b"%04d" % number for number in range(1000)]
    partitioner = RangePartitioner(boundaries_from_sample(sample, 4))
    counts = [0] * 4
    for key in sample:
        counts[partitioner.partition(key, 0, 4)] += 1
    assert counts == [250] * 4


def test_a_heavy_key_does_not_starve_the_other_ranges() -> None:
    ranges = boundaries_from_sample([b"a", b"b", *[b"c"] * 50], 3)
    partitioner = RangePartitioner(ranges)
    assert [partitioner.partition(key, 0, 3) for key in (b"a", b"b", b"c")] == [0, 1, 2]


def test_a_sample_with_too_few_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="too few different keys for 3 ranges"):
        boundaries_from_sample([b"a", b"b", b"b"], 3)


def nearest_in_turn(key: bytes, lower: KeyRange, upper: KeyRange) -> bool:
    """Whether a key between two ranges is nearer to the lower one, all read as fractions in base 256."""
    width = max(len(key), len(lower.high), len(upper.low)) + 1
    place, high, low = (
        int.from_bytes(text.ljust(width, fill), "big")
        for text, fill in ((key, b"\0"), (lower.high, b"\xff"), (upper.low, b"\0"))
    )
    return low - place >= place - high


def partition_in_turn(key: bytes, ranges: tuple[KeyRange, ...], outside: Outside) -> int | None:
    for index, key_range in enumerate(ranges):
        if key_range.holds(key):
            return index
    if outside == "error":
        return None
    below = [index for index, each in enumerate(ranges) if each.low <= key]
    above = [index for index, each in enumerate(ranges) if each.low > key]
    lower = max(below, key=lambda index: ranges[index].low, default=None)
    upper = min(above, key=lambda index: ranges[index].low, default=None)
    if lower is None or upper is None:
        return upper if lower is None else lower
    return lower if nearest_in_turn(key, ranges[lower], ranges[upper]) else upper


short = st.lists(st.sampled_from(b"\x00\x01\x7fAB\xfe\xff"), max_size=3).map(bytes)


@given(
    st.lists(st.tuples(short, short), min_size=1, max_size=4),
    st.lists(short, min_size=1, max_size=12),
    st.sampled_from(("error", "nearest")),
)
def test_each_partition_holds_one_span_of_keys(
    ends: list[tuple[bytes, bytes]], keys: list[bytes], outside: Outside
) -> None:
    ranges = tuple(KeyRange(low=low, high=high) for low, high in ends)
    try:
        check_ranges(ranges)
    except ConfigError:
        return
    placed = KeyRanges(ranges=ranges, outside=outside)
    for key in keys:
        expected = partition_in_turn(key, ranges, outside)
        assert placed.partition_of(key) == expected
        assert [index for index in range(len(ranges)) if placed.span_of(index).holds(key)] == (
            [] if expected is None else [expected]
        )


def test_a_partition_without_a_range_holds_no_key() -> None:
    ranges = KeyRanges(ranges=parse_ranges("..M,N.."))
    assert ranges.span_of(2) == NO_KEYS
    assert not NO_KEYS.holds(b"")


def test_a_space_at_an_end_survives_as_a_config() -> None:
    text = format_ranges([KeyRange(low=b" a", high=b"b ")])
    assert text == r"\x20a..b\x20"
    assert parse_ranges(text.strip()) == (KeyRange(low=b" a", high=b"b "),)
