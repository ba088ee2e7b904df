# SPDX-License-Identifier: Apache-2.0
"""Lag in records, in seconds, and the time until it is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.tools.lag import (
    Forecast,
    Sample,
    Sighting,
    TimeBehind,
    forecast,
    rate_of,
    records_behind,
    time_behind,
    time_behind_by_timestamp,
)

NOW = 1_800_000_000_000


def ago(seconds: float) -> int:
    return NOW - round(seconds * 1000)


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (10, 10, 0), (11, 10, 0), (None, 10, None), (3, None, None)]
)
def test_records_behind(committed: int | None, end: int | None, lag: int | None) -> None:
    assert records_behind(committed, end) == lag


def test_a_steady_stream_is_behind_by_its_records_over_its_rate() -> None:
    samples = [Sample(100 * second, ago(10 - second)) for second in range(11)]
    assert time_behind(samples, 499, 1000, NOW) == TimeBehind(behind_ms=5000)
    assert time_behind(samples, 999, 1000, NOW) == TimeBehind(behind_ms=0)


def test_nothing_left_to_read_is_no_time_behind_even_without_samples() -> None:
    assert time_behind([], 10, 10, NOW) == TimeBehind(behind_ms=0)
    assert time_behind([], 9, 10, NOW) is None


def test_lag_beyond_the_oldest_sample_is_at_least_its_age() -> None:
    samples = [Sample(100, ago(60)), Sample(200, ago(30))]
    assert time_behind(samples, 20, 200, NOW) == TimeBehind(behind_ms=60_000, at_least=True)
    assert time_behind(samples, 99, 200, NOW) == TimeBehind(behind_ms=60_000)


def test_the_end_seen_now_is_a_sample_too() -> None:
    assert time_behind([Sample(100, ago(10))], 149, 200, NOW) == TimeBehind(behind_ms=5000)


def test_records_not_sampled_yet_count_as_recent() -> None:
    quiet = [Sample(100, ago(3600)), Sample(100, ago(1800))]
    behind = time_behind(quiet, 100, 102, NOW)
    assert behind == TimeBehind(behind_ms=5000)


def test_a_pause_between_samples_is_not_slow_growth() -> None:
    """The end stood at 100 until a minute ago, then a hundred records came in five seconds."""
    samples = [Sample(100, ago(3600)), Sample(100, ago(60)), Sample(200, ago(55))]
    assert time_behind(samples, 100, 200, NOW) == TimeBehind(behind_ms=59_950)


def test_samples_of_a_log_that_was_longer_once_do_not_count() -> None:
    """A topic that was deleted and made anew begins at 0 again."""
    assert time_behind([Sample(5000, ago(60))], 10, 20, NOW) is None


@given(
    steps=st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 60_000)), max_size=64),
    tail=st.integers(0, 1000),
    quiet_ms=st.integers(0, 60_000),
    data=st.data(),
)
def test_time_behind_is_never_negative_and_shrinks_with_every_commit(
    steps: list[tuple[int, int]], tail: int, quiet_ms: int, data: st.DataObject
) -> None:
    samples, offset, moment = [Sample(0, 0)], 0, 0
    for records, passed_ms in steps:
        offset, moment = offset + records, moment + passed_ms
        samples.append(Sample(offset, moment))
    end, now = offset + tail, moment + quiet_ms
    first = data.draw(st.integers(0, end))
    second = data.draw(st.integers(first, end))
    earlier, later = time_behind(samples, first, end, now), time_behind(samples, second, end, now)
    assert earlier is not None
    assert later is not None
    assert 0 <= later.behind_ms <= earlier.behind_ms <= now
    assert time_behind(samples, end, end, now) == TimeBehind(behind_ms=0)


def test_by_the_timestamp_of_the_next_record() -> None:
    assert time_behind_by_timestamp(ago(7), NOW) == TimeBehind(behind_ms=7000, by_timestamp=True)
    assert time_behind_by_timestamp(NOW + 500, NOW) == TimeBehind(behind_ms=0, by_timestamp=True)
    assert time_behind_by_timestamp(None, NOW) is None


def test_a_rate_needs_time() -> None:
    assert rate_of([]) is None
    assert rate_of([Sighting(5, 1)]) is None
    assert rate_of([Sighting(5, 1), Sighting(5, 9)]) is None
    assert rate_of([Sighting(0, 10), Sighting(2000, 110)]) == 50


def test_commits_in_steps_are_counted_from_step_to_step() -> None:
    """Ten a second, committed every two seconds, watched for seven: not 80 in 7 s but 60 in 6 s."""
    watched = [Sighting(second * 1000, 20 * ((second + 1) // 2)) for second in range(8)]
    assert rate_of(watched) == pytest.approx(10)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=2))
def test_counters_have_no_negative_rate(points: list[tuple[int, int]]) -> None:
    sightings = [
        Sighting(at, offset)
        for at, offset in zip(sorted(p[0] for p in points), sorted(p[1] for p in points), strict=True)
    ]
    rate = rate_of(sightings)
    assert rate is None or rate >= 0


@pytest.mark.parametrize(
    ("lag", "rate_in", "rate_out", "expected"),
    [
        (0, 10, 0, Forecast(trend="caught up", clear_ms=0)),
        (100, 10, 30, Forecast(trend="shrinking", clear_ms=5000)),
        (100, 30, 10, Forecast(trend="growing", clear_ms=None)),
        (100, 10, 10, Forecast(trend="standing still", clear_ms=None)),
    ],
)
def test_time_to_clear(lag: int, rate_in: float, rate_out: float, expected: Forecast) -> None:
    assert forecast(lag, rate_in, rate_out) == expected


@given(st.integers(1, 10**9), st.floats(0, 1e6), st.floats(0.001, 1e6))
def test_a_lag_clears_exactly_when_more_goes_out_than_comes_in(lag: int, rate_in: float, gain: float) -> None:
    said = forecast(lag, rate_in, rate_in + gain)
    if rate_in + gain > rate_in:
        assert said.clear_ms is not None
        assert said.clear_ms / 1000 * gain == pytest.approx(lag, rel=0.01, abs=gain)
    assert forecast(lag, rate_in + gain, rate_in).clear_ms is None
