"""Key ranges: text form, rules, nearest, learning from a sample (D5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.errors import ClientError
from headrace.client.partitioners import RangePartitioner
from headrace.client.ranges import KeyRange, boundaries_from_sample, format_ranges, parse_ranges

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
    with pytest.raises(ClientError, match=complaint):
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
    except ClientError:
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
    with pytest.raises(ClientError, match="too few different keys for 3 ranges"):
        boundaries_from_sample([b"a", b"b", b"b"], 3)
