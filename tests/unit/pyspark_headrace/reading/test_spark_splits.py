# SPDX-License-Identifier: Apache-2.0
"""Ranges between two positions, and how they are cut into tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.reading.splits import Range, ranges_between, split


def at(offsets: dict[int, int], *, topic_id: str = "one") -> Offsets:
    partitions = {number: Position(offset=offset) for number, offset in offsets.items()}
    return Offsets(query="q", topics={"orders": TopicPositions(topic_id=topic_id, partitions=partitions)})


def spans(
    start: Offsets, end: Offsets, *, reread_truncated: bool = False
) -> list[tuple[int, int, int, bool]]:
    found = ranges_between(start, end, reread_truncated=reread_truncated)
    return [(each.partition, each.start, each.end, each.from_earliest) for each in found]


def test_partitions_without_new_records_are_not_read() -> None:
    assert spans(at({0: 5, 1: 7}), at({0: 5, 1: 9})) == [(1, 7, 9, False)]


def test_a_new_partition_is_read_from_its_beginning_wherever_that_is() -> None:
    assert spans(at({0: 5}), at({0: 5, 1: 3})) == [(1, 0, 3, True)]


def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    assert spans(at({0: 100}), at({0: 20}, topic_id="other")) == [(0, 0, 20, True)]


def test_after_a_cut_nothing_is_read_or_all_that_is_left() -> None:
    start, end = at({0: 100}), at({0: 80})
    assert spans(start, end) == []
    assert spans(start, end, reread_truncated=True) == [(0, 0, 80, True)]


def ranges(*sizes: int) -> list[Range]:
    return [
        Range(topic="orders", topic_id="one", partition=number, start=10, end=10 + size)
        for number, size in enumerate(sizes)
    ]


def test_the_largest_partition_is_cut_first() -> None:
    assert [piece.size for piece in split(ranges(1000, 10), least=4)] == [333, 333, 334, 10]


def test_no_piece_holds_more_than_is_allowed() -> None:
    assert [piece.size for piece in split(ranges(10, 3), most_rows=4)] == [3, 3, 4, 3]


def test_more_tasks_than_offsets_are_not_made() -> None:
    assert len(split(ranges(2, 1), least=10)) == 3
    assert split([], least=10) == []


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 60)),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_pieces_cover_every_offset_once_without_skew(
    sizes: list[int], least: int | None, most_rows: int | None
) -> None:
    whole = ranges(*sizes)
    pieces = split(whole, least=least, most_rows=most_rows)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(each.partition, offset) for each in whole for offset in range(each.start, each.end)]
    assert len(pieces) >= min(least or 1, sum(sizes))
    assert most_rows is None or max(piece.size for piece in pieces) <= most_rows
    if least is not None and len(pieces) == least:
        for number in range(len(sizes)):
            own = [piece.size for piece in pieces if piece.partition == number]
            assert max(own) - min(own) <= 1


@pytest.mark.parametrize("least", [2, 5, 9])
def test_one_huge_partition_does_not_leave_a_task_with_most_of_it(least: int) -> None:
    pieces = split(ranges(9000, 1, 1), least=least + 2)
    assert max(piece.size for piece in pieces) <= -(-9000 // least)
