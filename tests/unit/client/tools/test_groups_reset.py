# SPDX-License-Identifier: Apache-2.0
"""Where a reset sends a group's offsets, by every strategy; files of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.errors import ClientError
from headrace.client.tools.reset import Offsets, Strategy, plan_changes, read_offsets_file
from headrace.types import TopicPartition

P0, P1, GONE = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("gone", 0)
KNOWN = Offsets(
    committed={P0: 50, GONE: 7}, starts={P0: 10, P1: 0}, ends={P0: 100, P1: 30}, at_time={P0: 60, P1: 30}
)


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [
        (Strategy(kind="earliest"), 10, 0),
        (Strategy(kind="latest"), 100, 30),
        (Strategy(kind="current"), 50, 30),
        (Strategy(kind="offset", value=20), 20, 20),
        (Strategy(kind="offset", value=5), 10, 5),
        (Strategy(kind="offset", value=70), 70, 30),
        (Strategy(kind="time", value=1), 60, 30),
        (Strategy(kind="file", from_file={P0: 11, P1: 999}), 11, 30),
    ],
)
def test_every_strategy(strategy: Strategy, first: int, second: int) -> None:
    changes = plan_changes(strategy, [P1, P0, GONE], KNOWN)
    assert [(change.partition, change.old, change.new) for change in changes] == [
        (P0, 50, first),
        (P1, None, second),
    ]


@pytest.mark.parametrize(
    ("by", "new", "outside"), [(5, 55, False), (-40, 10, False), (-41, 10, True), (51, 100, True)]
)
def test_shifting_stays_in_the_log(by: int, new: int, outside: bool) -> None:
    (change,) = plan_changes(Strategy(kind="shift", value=by), [P0], KNOWN)
    assert (change.new, change.moved_to_the_log) == (new, outside)


def test_nothing_committed_cannot_be_shifted() -> None:
    with pytest.raises(ClientError, match="nothing is committed for partition 1 of topic 'orders'"):
        plan_changes(Strategy(kind="shift", value=1), [P1], KNOWN)


@given(
    kind=st.sampled_from(["earliest", "latest", "current", "offset", "shift"]),
    value=st.integers(-(2**40), 2**40),
    start=st.integers(0, 1000),
    length=st.integers(0, 1000),
    committed=st.integers(0, 5000),
)
def test_a_reset_never_leaves_the_log(kind, value, start, length, committed) -> None:  # type: ignore[no-untyped-def]
    known = Offsets(committed={P0: committed}, starts={P0: start}, ends={P0: start + length}, at_time={})
    (change,) = plan_changes(Strategy(kind=kind, value=value), [P0], known)
    assert start <= change.new <= start + length


def test_a_file_of_offsets_in_both_of_kafkas_forms() -> None:
    lines = ["orders,0,5\n", "\n", "mine,orders,1,6\n", "other,orders,2,7\n"]
    assert read_offsets_file(lines, "mine") == {P0: 5, P1: 6}


@pytest.mark.parametrize("line", ["orders", "orders,x,1", "orders,0", "a,b,c,d,e"])
def test_a_bad_line_is_named_with_its_number(line: str) -> None:
    with pytest.raises(ClientError, match="line 2 is not TOPIC,PARTITION,OFFSET"):
        read_offsets_file(["orders,0,1", line], "g")
