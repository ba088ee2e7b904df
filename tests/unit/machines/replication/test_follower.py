# SPDX-License-Identifier: Apache-2.0
"""The follower of a partition: what it fetches, where it truncates, what it shows (R12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headrace.log.epochs import UNDEFINED, EpochEntry, EpochHistory
from headrace.machines.replication.follower import FetchAnswer, FetchFrom, Follower, Work
from headrace.machines.replication.leader import Divergence
from headrace.types import NO_NODE, PartitionState
from headrace.wire.error_codes import ErrorCode


def state(leader: int = 0, leader_epoch: int = 5) -> PartitionState:
    return PartitionState(replicas=(0, 1), leader=leader, leader_epoch=leader_epoch, isr=(0, 1))


def following(
    *, log_end: int = 8, high_watermark: int = 2, epochs: tuple[tuple[int, int], ...] = ((1, 0), (4, 5))
) -> Follower:
    history = EpochHistory(cast(Any, None), Path("unused"), [EpochEntry(*entry) for entry in epochs])
    machine = Follower(1, 21, history, log_start=0, log_end=log_end, high_watermark=high_watermark)
    machine.update(state())
    return machine


def fetch(machine: Follower) -> FetchFrom:
    asked = machine.next_fetch()
    assert asked is not None
    return asked


def test_a_fetch_carries_the_log_end_and_its_epoch() -> None:
    assert fetch(following()) == FetchFrom(0, 5, 1, 21, 8, 4, 0)


def test_one_question_at_a_time_and_none_while_the_log_is_worked_on() -> None:
    machine = following()
    asked = fetch(machine)
    assert machine.next_fetch() is None
    assert machine.fetched(asked, FetchAnswer(high_watermark=9, has_records=True)) == Work(append=True)
    assert machine.next_fetch() is None
    machine.worked(log_start=0, log_end=10)
    assert (fetch(machine).offset, machine.high_watermark) == (10, 9)


def test_a_lost_question_is_asked_again() -> None:
    machine = following()
    machine.lost(fetch(machine))
    assert machine.next_fetch() is not None


@pytest.mark.parametrize(
    ("diverging", "point"),
    [
        (Divergence(4, 7), 7),
        (Divergence(1, 6), 5),
        (Divergence(1, 3), 3),
        (Divergence(2, 6), 5),
        (Divergence(0, 0), 0),
        (Divergence(UNDEFINED, UNDEFINED), 5),
    ],
)
def test_truncation_is_to_the_smaller_end_of_the_largest_common_epoch(
    diverging: Divergence, point: int
) -> None:
    """R12; never to the high watermark. An epoch that the leader cannot place goes as a whole."""
    machine = following()
    assert machine.fetched(fetch(machine), FetchAnswer(diverging=diverging)) == Work(truncate_to=point)
    assert not machine.reconciled


def test_the_high_watermark_stays_within_the_log_and_never_follows_a_leader_back() -> None:
    machine = following(high_watermark=6)
    machine.fetched(fetch(machine), FetchAnswer(high_watermark=4))
    assert machine.high_watermark == 6
    machine.fetched(fetch(machine), FetchAnswer(high_watermark=20))
    assert machine.high_watermark == 8
    machine.fetched(fetch(machine), FetchAnswer(diverging=Divergence(1, 3)))
    machine.worked(log_start=0, log_end=3)
    assert machine.high_watermark == 3


def test_an_answer_of_an_earlier_epoch_is_dropped() -> None:
    """R11, R12: even under the same leader."""
    machine = following()
    asked = fetch(machine)
    machine.update(state(leader_epoch=6))
    assert machine.fetched(asked, FetchAnswer(high_watermark=9, has_records=True)) is None
    assert (fetch(machine).leader_epoch, machine.reconciled) == (6, False)


def test_a_fenced_follower_waits_for_a_newer_view_and_a_hasty_one_asks_again() -> None:
    machine = following()
    machine.fetched(fetch(machine), FetchAnswer(error=ErrorCode.unknown_leader_epoch))
    machine.fetched(fetch(machine), FetchAnswer(error=ErrorCode.fenced_leader_epoch))
    assert machine.next_fetch() is None
    machine.update(state(leader_epoch=5))
    assert machine.next_fetch() is None
    machine.update(state(leader_epoch=6))
    assert machine.next_fetch() is not None


@pytest.mark.parametrize("leader", [NO_NODE, 1])
def test_nobody_to_follow(leader: int) -> None:
    machine = following()
    machine.update(state(leader=leader, leader_epoch=6))
    assert machine.next_fetch() is None


def test_the_leaders_log_start_is_followed() -> None:
    machine = following()
    answer = FetchAnswer(high_watermark=8, log_start=4)
    assert machine.fetched(fetch(machine), answer) == Work(delete_before=4)
    machine.worked(log_start=4, log_end=8)
    assert fetch(machine).log_start == 4


def test_a_log_that_ends_before_the_leaders_start_is_emptied() -> None:
    machine = following()
    answer = FetchAnswer(error=ErrorCode.offset_out_of_range, log_start=30)
    assert machine.fetched(fetch(machine), answer) == Work(restart_at=30)
    machine.worked(log_start=30, log_end=30)
    assert fetch(machine).offset == 30


def test_a_log_that_only_seems_out_of_range_is_kept() -> None:
    machine = following()
    answer = FetchAnswer(error=ErrorCode.offset_out_of_range, log_start=3)
    assert machine.fetched(fetch(machine), answer) is None
    assert fetch(machine).offset == 8


def test_an_epoch_in_which_this_node_led_and_wrote_nothing_ends() -> None:
    """R12: the truncation cuts no record, and the next fetch names the epoch before."""
    machine = following(log_end=5, epochs=((1, 0), (4, 5)))
    asked = fetch(machine)
    assert asked.last_fetched_epoch == 4
    assert machine.fetched(asked, FetchAnswer(diverging=Divergence(1, 9))) == Work(truncate_to=5)
