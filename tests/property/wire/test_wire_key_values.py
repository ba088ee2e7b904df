# SPDX-License-Identifier: Apache-2.0
"""Keys and values read the short way are those of the long way; bytes that lie are refused, never misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DecodeError
from headrace.wire.batch import HEADER_SIZE
from headrace.wire.key_values import iter_key_values
from headrace.wire.record_keys import read_keys
from headrace.wire.records import Record, build_batch, iter_records, read_records

some_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
times = st.integers(min_value=0, max_value=2**42)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    rows = draw(st.lists(st.tuples(times, some_bytes, some_bytes, headers), min_size=1, max_size=20))
    gaps = draw(st.lists(st.integers(1, 200), min_size=len(rows), max_size=len(rows)))
    offset, records = 0, []
    for (time, key, value, given_headers), gap in zip(rows, gaps, strict=True):
        records.append(Record(offset, time, key, value, tuple(given_headers)))
        offset += gap
    return bytearray(build_batch(records, codec=draw(st.sampled_from((0, 0, 1, 2, 3, 4)))))


def long_way(batch: memoryview) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in iter_records(batch)]


@given(batches())
def test_the_short_way_reads_the_same(batch: bytearray) -> None:
    assert list(iter_key_values(memoryview(batch))) == long_way(memoryview(batch))


@given(batches(), st.data())
def test_damaged_bytes_are_refused_or_read_alike(batch: bytearray, data: st.DataObject) -> None:
    """What the long way still takes, the short way takes alike, except that it looks into no headers."""
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = list(iter_key_values(memoryview(batch)))
    except DecodeError:
        found = None
    try:
        expected = long_way(memoryview(batch))
    except DecodeError:
        return
    assert found == expected


@given(batches(), st.data())
def test_keys_alone_are_those_of_the_long_way_and_the_same_bytes_are_refused(
    batch: bytearray, data: st.DataObject
) -> None:
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(batch)
    try:
        expected = [(offset, key, value is None) for offset, key, value in long_way(view)]
    except DecodeError:
        with pytest.raises(DecodeError):
            read_keys(view)
    else:
        assert read_keys(view) == expected


@pytest.mark.parametrize("time", [-(2**63), 2**63 - 1])
def test_keys_of_records_with_an_impossible_time_are_refused_as_the_records_are(time: int) -> None:
    batch = build_batch([Record(0, 0, b"k", b"v"), Record(1, time, b"k", b"v")], max_timestamp=0)
    batch[27:35] = (2 if time > 0 else -1).to_bytes(8, "big", signed=True)
    for read in (read_keys, read_records):
        with pytest.raises(DecodeError, match="64 bits"):
            read(memoryview(batch))
