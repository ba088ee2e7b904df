# SPDX-License-Identifier: Apache-2.0
"""Samples of how far a partition had grown: pauses, cuts, restarts, rates."""

from __future__ import annotations

from headrace.broker.reporting.lag_series import MOST_SAMPLES, LagSeries, Sample, rate_in, thinned
from headrace.client.tools import lag

S = 1_000
MINUTE = 60 * S


def series_of(*looks: tuple[int, int]) -> LagSeries:
    series = LagSeries()
    for end, now_ms in looks:
        series.observe(end, now_ms)
    return series


def behind_ms(series: LagSeries, committed: int, end: int, now_ms: int) -> int:
    samples = [lag.Sample(*each) for each in series.samples]
    found = lag.time_behind(samples, committed, end, now_ms)
    assert found is not None
    return found.behind_ms


def test_a_pause_does_not_look_like_slow_growth():
    series = series_of((100, 0), (100, 5 * S), (100, 10 * S), (100, 995 * S), (200, 1000 * S))
    assert series.samples == [(100, 0), (100, 995 * S), (200, 1000 * S)]
    assert behind_ms(series, committed=100, end=200, now_ms=1000 * S) <= 5 * S


def test_an_idle_partition_writes_one_sample_and_then_none():
    series = series_of((10, 0), (20, 5 * S))
    series.changed = False
    changes = []
    for now_ms in range(10 * S, 10 * MINUTE, 5 * S):
        series.observe(20, now_ms)
        if series.changed:
            changes.append(now_ms)
            assert series.rate_in(now_ms) == 0
        series.changed = False
    assert changes == [65 * S]
    assert series.samples == [(10, 0), (20, 5 * S), (20, 65 * S)]


def test_a_log_that_was_cut_takes_its_samples_along():
    series = series_of((10, 0), (20, 5 * S), (30, 10 * S), (15, 15 * S))
    assert series.samples == [(10, 0), (15, 15 * S)]


def test_samples_in_the_future_are_dropped_when_the_clock_was_set_back():
    series = series_of((10, 0), (20, 50 * S), (30, 20 * S))
    assert series.samples == [(10, 0), (30, 20 * S)]


def test_records_before_a_kill_are_not_dated_to_the_downtime():
    series = LagSeries([Sample(0, 0), Sample(100, 10 * S)])
    series.resume(150, 3_600 * S, within_ms=5 * S)
    series.observe(150, 3_605 * S)
    series.observe(160, 3_610 * S)
    assert series.samples[2:] == [(150, 15 * S), (150, 3_605 * S), (160, 3_610 * S)]


def test_samples_below_the_log_start_are_dropped():
    series = LagSeries([Sample(offset * 100, offset * MINUTE) for offset in range(5)])
    series.tidy(log_start=250, now_ms=4 * MINUTE)
    assert series.samples[0] == (200, 2 * MINUTE)


def test_the_rate_is_that_of_the_last_minute():
    steady = [Sample(n * 50, n * 5 * S) for n in range(100)]
    assert rate_in(steady, 495 * S) == 10
    stopped = [*steady, Sample(99 * 50, 525 * S)]
    assert rate_in(stopped, 525 * S) == 5
    assert rate_in([Sample(7, 0)], 0) is None
    assert rate_in([Sample(0, 0), Sample(30, 3 * S)], 3 * S) == 10


def test_a_steady_week_needs_few_samples():
    series = LagSeries()
    for now_ms in range(0, 7 * 24 * 60 * MINUTE, 60 * S):
        series.observe(now_ms // 100, now_ms)
        series.tidy(0, now_ms)
    assert len(series.samples) < 40


def test_there_are_never_too_many():
    now_ms = 10**12
    jumps = [Sample(n // 2 * 10, now_ms - int(1.1 ** (200 - n) * S)) for n in range(200)]
    kept = thinned(jumps, now_ms)
    assert len(kept) == MOST_SAMPLES
    assert (kept[0], kept[-1]) == (jumps[0], jumps[-1])
