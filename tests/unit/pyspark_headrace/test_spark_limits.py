# SPDX-License-Identifier: Apache-2.0
"""A limit shared over partitions: by lag, nobody starved, never more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_headrace.limits import share, share_bytes


def test_parts_follow_the_lag() -> None:
    assert share(100, {"a": 900, "b": 100}) == {"a": 90, "b": 10}


def test_a_quiet_partition_beside_a_busy_one_gets_something() -> None:
    assert share(10, {"a": 1_000_000, "b": 1}) == {"a": 9, "b": 1}


def test_a_limit_below_the_number_of_partitions_still_moves_all() -> None:
    assert share(2, {"a": 5, "b": 5, "c": 5}) == {"a": 1, "b": 1, "c": 1}


def test_partitions_without_lag_get_no_share() -> None:
    assert share(10, {"a": 0, "b": 3}) == {"b": 3}


@given(st.integers(1, 2000), st.dictionaries(st.integers(0, 20), st.integers(0, 1000), max_size=12))
def test_the_limit_is_used_up_and_kept(limit: int, lags: dict[int, int]) -> None:
    lagging = {place: lag for place, lag in lags.items() if lag}
    parts = share(limit, lags)
    assert parts.keys() == lagging.keys()
    assert all(1 <= part <= lagging[place] for place, part in parts.items())
    assert sum(parts.values()) == min(sum(lagging.values()), max(limit, len(lagging)))


@given(
    st.integers(1, 10_000),
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(1, 500), st.floats(0.5, 300)), min_size=1),
)
def test_bytes_are_shared_in_rows(limit: int, partitions: dict[int, tuple[int, float]]) -> None:
    lags = {place: lag for place, (lag, _) in partitions.items()}
    sizes = {place: size for place, (_, size) in partitions.items()}
    parts = share_bytes(limit, lags, sizes)
    assert all(1 <= part <= lags[place] for place, part in parts.items())
    beyond_one_each = sum(part * sizes[place] for place, part in parts.items() if part > 1)
    assert beyond_one_each <= max(limit, len(lags))
