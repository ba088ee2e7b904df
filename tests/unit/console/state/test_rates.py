# SPDX-License-Identifier: Apache-2.0
"""Rates over the sightings of an offset, bounded in memory."""

from __future__ import annotations

from headrace.console.state.rates import Rates


def test_a_rate_needs_two_sightings() -> None:
    rates = Rates[str](15_000)
    rates.note({"a": 10}, 0)
    assert rates.rate("a") is None
    rates.note({"a": 30}, 2_000)
    assert rates.rate("a") == 10.0
    assert rates.rate("never seen") is None


def test_only_the_window_counts() -> None:
    rates = Rates[str](10_000)
    for second in range(60):
        rates.note({"a": 0 if second < 30 else (second - 30) * 100}, second * 1_000)
    assert rates.rate("a") == 100.0


def test_a_reset_to_an_earlier_offset_begins_anew() -> None:
    rates = Rates[str](15_000)
    rates.note({"a": 1_000}, 0)
    rates.note({"a": 10}, 1_000)
    assert rates.rate("a") is None


def test_an_answer_that_was_overtaken_is_ignored() -> None:
    rates = Rates[str](15_000)
    rates.note({"a": 0}, 0)
    rates.note({"a": 20}, 2_000)
    rates.note({"a": 10}, 1_000)
    assert rates.rate("a") == 10.0


def test_what_stands_still_or_is_asked_often_takes_little_memory() -> None:
    rates = Rates[str](60_000)
    for moment in range(10_000):
        rates.note({"still": 5, "often": moment}, moment)
    seen = rates._seen
    assert len(seen["still"]) == 2
    assert len(seen["often"]) <= 10_000 / 400 + 2
    rates.keep({"still"})
    assert set(seen) == {"still"}
