# SPDX-License-Identifier: Apache-2.0
"""Thinned samples still tell the moment of every offset near enough, whatever the history."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.reporting.lag_series import MOST_SAMPLES, LagSeries, Sample, thinned
from headrace.client.tools import lag

LOOK_MS = 5_000

phases = st.lists(
    st.tuples(st.integers(min_value=1, max_value=400), st.sampled_from([0, 0, 1, 7, 100, 5_000])),
    min_size=1,
    max_size=12,
)
"""Looks and records per look: pauses, trickles, floods."""


@st.composite
def histories(draw: st.DrawFn) -> list[Sample]:
    end = now_ms = 0
    looks = [Sample(0, 0)]
    for count, growth in draw(phases):
        for _ in range(count):
            end, now_ms = end + growth, now_ms + LOOK_MS
            looks.append(Sample(end, now_ms))
    return looks


@given(histories())
def test_thinning_keeps_order_and_both_ends(looks: list[Sample]) -> None:
    kept = thinned(looks, looks[-1].wall_ms)
    assert set(kept) <= set(looks)
    assert len(kept) <= MOST_SAMPLES
    assert (kept[0], kept[-1]) == (looks[0], looks[-1])
    assert all(a.wall_ms < b.wall_ms and a.offset <= b.offset for a, b in pairwise(kept))


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(min_value=1, max_value=20))
def test_lag_in_seconds_is_accurate_at_every_offset(looks: list[Sample], tidy_every: int) -> None:
    """Within a fifth of it and two looks, though samples went little by little."""
    series = LagSeries()
    for number, (end, wall_ms) in enumerate(looks):
        series.observe(end, wall_ms)
        if number % tidy_every == 0:
            series.tidy(0, wall_ms)
    end, now_ms = looks[-1]
    samples = [lag.Sample(*each) for each in series.samples]
    for before, after in pairwise(looks):
        if after.offset > before.offset:
            told = lag.time_behind(samples, before.offset, end, now_ms)
            assert told is not None
            truth_ms = now_ms - after.wall_ms
            assert abs(told.behind_ms - truth_ms) <= 0.2 * truth_ms + 2 * LOOK_MS
