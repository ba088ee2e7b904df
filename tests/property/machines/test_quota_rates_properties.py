# SPDX-License-Identifier: Apache-2.0
"""The windowed rate against a naive model of Kafka's, which keeps every event; the bucket against tokens."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headrace.machines.quotas.rates import TokenBucket, Window, WindowedRate

TICKS = 1024
"""In a second: a power of two, so that seconds as floats are exact."""
STEPS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 10_000)), min_size=1, max_size=60)
"""Ticks since the last event, and its value."""


class NaiveRate:
    """Events in groups that begin with the first event a window after the last group began."""

    def __init__(self, samples: int, size_ms: int) -> None:
        self.samples = samples
        self.size_ms = size_ms
        self.groups: list[list[tuple[int, int]]] = []

    def record(self, value: int, now: int) -> None:
        if not self.groups or now - self.groups[-1][0][0] >= self.size_ms:
            self.groups.append([])
        self.groups[-1].append((now, value))

    def measure(self, now: int) -> Fraction:
        recent = [
            group
            for group in self.groups[-self.samples - 1 :]
            if now - group[-1][0] < self.samples * self.size_ms
        ]
        elapsed = now - recent[0][0][0] if recent else 0
        elapsed += max(0, self.samples - 1 - elapsed // self.size_ms) * self.size_ms
        total = sum(value for group in recent for _, value in group)
        return total * TICKS / max(Fraction(elapsed), Fraction(TICKS, 1000))


@given(steps=STEPS, samples=st.integers(1, 12), size_s=st.integers(1, 3))
def test_the_rate_is_that_of_the_naive_model(steps: list[tuple[int, int]], samples: int, size_s: int) -> None:
    window = Window(samples=samples, size_s=size_s)
    rate, naive, now = WindowedRate(window), NaiveRate(samples, size_s * TICKS), 0
    for wait, value in steps:
        now += wait
        rate.record(value, now / TICKS)
        naive.record(value, now)
        measured, _ = rate.measure(now / TICKS)
        assert abs(measured - float(naive.measure(now))) <= 1e-6 * (1 + measured)


@given(steps=STEPS, limit=st.integers(1, 5_000))
def test_a_client_that_waits_as_told_stays_within_its_quota(steps: list[tuple[int, int]], limit: int) -> None:
    """Over the whole time, but for the burst at the beginning and its last request."""
    window, now, total = Window(), 0.0, 0
    rate = WindowedRate(window)
    for wait, value in steps:
        now += wait / TICKS
        rate.record(value, now)
        total += value
        now += rate.throttle_s(limit, now)
    largest = max(value for _, value in steps)
    assert total <= limit * (now + window.full_s) * 2 + largest


@given(steps=STEPS, limit=st.integers(1, 5_000))
def test_the_bucket_never_holds_more_than_a_span_and_counts_every_token(
    steps: list[tuple[int, int]], limit: int
) -> None:
    bucket, now = TokenBucket(Window(), limit, 0.0), 0.0
    expected = Fraction(limit * 11)
    for wait, value in steps:
        now += wait / TICKS
        expected = min(Fraction(limit * 11), expected + limit * Fraction(wait, TICKS)) - value
        bucket.take(value, limit, now)
        assert abs(bucket.tokens(limit, now) - float(expected)) <= 1e-6 * (1 + abs(float(expected)))
        assert bucket.throttle_s(limit, now) >= 0
