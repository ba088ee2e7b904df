# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from headrace.coordination.lease_watch import LeaseWatch

TTL_MS = 1000


def look(watch: LeaseWatch, now: float, *leases: tuple[int, int]) -> list[int]:
    """Sessions that ended; a lease is (session, renewals)."""
    ended = watch.observe([(session, TTL_MS, renewals) for session, renewals in leases], now)
    return [session for session, _ in ended]


def test_a_lease_ends_when_it_was_seen_unchanged_for_its_whole_time() -> None:
    watch = LeaseWatch()
    assert look(watch, 0.0, (1, 0)) == []
    for tick in range(1, 8):
        assert look(watch, tick * 0.125, (1, 0)) == []
    assert look(watch, 1.0, (1, 0)) == [1]


def test_a_renewal_restarts_the_count() -> None:
    watch = LeaseWatch()
    for tick in range(40):
        assert look(watch, tick * 0.125, (1, tick // 4)) == []


def test_the_pause_of_the_watcher_does_not_count_against_others() -> None:
    watch = LeaseWatch()
    look(watch, 0.0, (1, 0))
    look(watch, 0.125, (1, 0))
    assert look(watch, 3600.0, (1, 0)) == []
    assert look(watch, 3600.125, (1, 1)) == []


def test_a_watcher_that_is_always_late_still_finds_the_dead() -> None:
    watch = LeaseWatch()
    late = [look(watch, tick * 5.0, (1, 0)) for tick in range(12)]
    assert [1] in late


def test_only_the_silent_session_ends() -> None:
    watch = LeaseWatch()
    ended = [look(watch, tick * 0.125, (1, tick), (2, 0)) for tick in range(12)]
    assert [2] in ended
    assert all(1 not in each for each in ended)


def test_a_renewal_seen_in_between_keeps_the_session() -> None:
    watch = LeaseWatch()
    ended: list[tuple[int, int | None]] = []
    for tick in range(12):
        ended = watch.observe([(1, TTL_MS, 7)], tick * 0.125)
    assert ended == [(1, 7)]


def test_an_ended_lease_is_reported() -> None:
    watch = LeaseWatch()
    look(watch, 0.0, (1, 0), (2, 0))
    assert not watch.somebody_left
    look(watch, 0.1, (1, 0))
    assert watch.somebody_left
    look(watch, 0.2, (1, 0))
    assert not watch.somebody_left


def test_short_leases_are_checked_more_often() -> None:
    watch = LeaseWatch()
    watch.observe([(1, 60_000, 0)], 0.0)
    relaxed_s = watch.next_look_s
    watch.observe([(1, 60_000, 0), (2, 400, 0)], 0.1)
    assert watch.next_look_s == 0.025 < relaxed_s


def test_the_next_check_is_when_the_first_lease_may_have_expired() -> None:
    watch, now = LeaseWatch(), 0.0
    while not look(watch, now, (1, 0), (2, int(now * 4))):
        now += watch.next_look_s * 1.01  # a little late each time, as loops are
    assert now < TTL_MS / 1000 * 1.03
