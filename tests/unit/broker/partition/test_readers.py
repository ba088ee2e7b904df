# SPDX-License-Identifier: Apache-2.0
"""Clients that fetch from a partition, and where each of them is."""

from __future__ import annotations

import pytest

from headrace.broker.partition.readers import FULL_FOR_S, IDLE_S, MOST_READERS, ReaderPosition, Readers

pytestmark = pytest.mark.row("D14")


def test_the_offset_asked_for_last_the_latest_client_first() -> None:
    readers = Readers()
    readers.note("10.0.0.1:5000", "worker", 0, 1.0, sent=True)
    readers.note("::1:6000", None, 7, 2.0, sent=True)
    readers.note("10.0.0.1:5000", "worker", 40, 3.0, sent=True)
    assert readers.listed(3.5) == [
        ReaderPosition("worker", "10.0.0.1", 40, 500),
        ReaderPosition("", "::1", 7, 1500),
    ]
    readers.note("10.0.0.1:5000", "other", 1, 4.0, sent=True)
    assert readers.listed(4.0)[0] == ReaderPosition("other", "10.0.0.1", 1, 0), "the port was used again"


def test_clients_beyond_the_limit_wait_until_others_are_idle() -> None:
    readers = Readers()
    for number in range(MOST_READERS):
        readers.note(f"host:{number}", "worker", number, 0.0, sent=True)
    readers.note("late:1", "worker", 99, 1.0, sent=True)
    readers.note("host:0", "worker", 50, IDLE_S, sent=True)
    assert len(readers.listed(IDLE_S)) == MOST_READERS
    now = IDLE_S + FULL_FOR_S + 2
    readers.note("late:1", "worker", 99, now, sent=True)
    assert [reader.offset for reader in readers.listed(now)] == [99, 50]


def test_a_client_id_of_any_length_is_not_kept() -> None:
    readers = Readers()
    readers.note("host:1", "x" * 30_000, 0, 0.0, sent=True)
    assert readers.listed(0.0) == []


def test_what_a_client_reads_first_and_asks_for_again_is_checked_once_a_second() -> None:
    readers = Readers()
    checked = [
        readers.note("host:1", "worker", offset, at, sent=True)
        for at, offset in [(1.0, 0), (1.1, 0), (1.9, 0), (2.0, 0), (2.5, 7), (2.6, 7), (3.0, 7), (4.0, 9)]
    ]
    assert checked == [True, False, False, True, False, False, True, False]
    assert readers.note("host:2", "worker", 9, 4.0, sent=True), "another connection"
