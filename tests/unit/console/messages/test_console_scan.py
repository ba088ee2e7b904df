# SPDX-License-Identifier: Apache-2.0
"""Scans find every record once, in order, however they are stopped and continued."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.console.messages.directions import Backwards, Direction, Onwards
from headrace.console.messages.scan import Scan, ScanOptions
from tests.harness.console.records_in_memory import FakeReader, run_here

FOREVER = 1e12
PARTITIONS = st.dictionaries(
    st.integers(0, 4), st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=4
)


def options(limit: int = 10, wanted: Any = lambda record: True, deadline: float = FOREVER) -> ScanOptions:
    return ScanOptions(run=run_here, wanted=wanted, limit=limit, deadline=deadline)


async def page(scan: Scan, count: int) -> list[tuple[int, int, int]]:
    found = []
    while len(found) < count and (record := await scan.peek()) is not None:
        found.append((record.timestamp_ms or 0, record.partition, record.offset))
        scan.take()
    return found


def all_pages(
    reader: FakeReader, direction: Direction, limit: int, wanted: Any
) -> list[tuple[int, int, int]]:
    """Each page by a scan of its own, which goes on where the one before stopped."""

    async def read() -> list[tuple[int, int, int]]:
        found = []
        ranges = reader.ranges
        while True:
            scan = Scan(reader, direction, ranges, options(limit, wanted))
            part = await page(scan, limit)
            found += part
            if len(part) < limit:
                assert scan.finished
                return found
            cursor = scan.cursor()
            ranges = {
                each: (cursor[each], end) if isinstance(direction, Onwards) else (first, cursor[each])
                for each, (first, end) in reader.ranges.items()
            }

    return asyncio.run(read())


@pytest.mark.parametrize("direction", [Onwards(), Backwards()], ids=["onwards", "backwards"])
@settings(max_examples=150, deadline=None)
@given(partitions=PARTITIONS, limit=st.integers(1, 12), batch=st.integers(1, 7), modulus=st.integers(1, 4))
def test_pages_hold_every_matching_record_once(
    direction: Direction, partitions: dict[int, list[int]], limit: int, batch: int, modulus: int
) -> None:
    reader = FakeReader(partitions, batch=batch)
    found = all_pages(reader, direction, limit, lambda record: record.offset % modulus == 0)
    expected = {
        (moment, partition, offset)
        for partition, times in partitions.items()
        for offset, moment in enumerate(times)
        if offset % modulus == 0
    }
    assert sorted(found) == sorted(expected)
    for partition in partitions:
        offsets = [offset for _, each, offset in found if each == partition]
        assert offsets == sorted(offsets, reverse=isinstance(direction, Backwards))


@settings(max_examples=100, deadline=None)
@given(
    partitions=st.dictionaries(
        st.integers(0, 4), st.lists(st.integers(0, 50), max_size=30).map(sorted), min_size=1
    )
)
def test_records_of_ordered_partitions_come_in_order_of_time(partitions: dict[int, list[int]]) -> None:
    onwards = all_pages(FakeReader(partitions), Onwards(), 7, lambda record: True)
    assert [moment for moment, _, _ in onwards] == sorted(moment for moment, _, _ in onwards)
    backwards = all_pages(FakeReader(partitions), Backwards(), 7, lambda record: True)
    assert [moment for moment, _, _ in backwards] == sorted(
        (moment for moment, _, _ in backwards), reverse=True
    )


def test_a_scan_whose_time_is_over_says_that_it_is_not_finished() -> None:
    reader = FakeReader({0: list(range(20))})
    scan = Scan(reader, Onwards(), reader.ranges, options(deadline=time.monotonic() - 1))
    assert asyncio.run(page(scan, 5)) == []
    assert not scan.finished
    assert scan.cursor() == {0: 0}


def test_the_newest_records_of_a_long_partition_take_few_fetches() -> None:
    reader = FakeReader({0: list(range(100_000))}, batch=500)
    scan = Scan(reader, Backwards(), reader.ranges, options(limit=50))
    assert [offset for _, _, offset in asyncio.run(page(scan, 50))] == list(range(99_999, 99_949, -1))
    assert reader.fetches <= 6


class Silent(FakeReader):
    async def fetch(self, ranges: Any) -> Any:
        self.fetches += 1
        return []


def test_a_partition_that_sends_nothing_is_given_up_and_named() -> None:
    reader = Silent({0: [1, 2]})
    scan = Scan(reader, Onwards(), reader.ranges, options())
    assert asyncio.run(page(scan, 5)) == []
    assert "sends no more records" in reader.problems[0]
    assert reader.fetches < 10
