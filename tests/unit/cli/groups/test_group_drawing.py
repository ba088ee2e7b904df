# SPDX-License-Identifier: Apache-2.0
"""The assignment as the drawings show it."""

from __future__ import annotations

import pytest

from headrace.cli.groups.drawing import Consumer, Log, compact, draw, draw_logs, member_names
from headrace.client.tools.groups import GroupMember
from headrace.types import TopicPartition

FOUR_OVER_THREE = """\
  Consumer A#0                   Consumer A#1                   Consumer A#2
      ,```_       ________           ,```_       ________           ,```_       ________
       c   -  ()=(Topic#0(@=()        c   -  ()=(Topic#1(@=()        c   -  ()=(Topic#2(@=()
      ./|-`       '------'           ./|-`       '------'           ./|-`       '------'
      /` \\        ________           /` \\                           /` \\
     /_|  \\)  ()=(Topic#3(@=()      /_|  \\)                        /_|  \\)
      | .__|      '------'           | .__|                         | .__|
      |   |                          |   |                          |   |
      |   |                          |   |                          |   |
      |___\\                          |___\\                          |___\\"""
"""Line for line from the source drawings."""


def consumer(name: str, *partitions: int, topic: str = "Topic") -> Consumer:
    return Consumer(name=name, partitions=tuple(TopicPartition(topic, each) for each in partitions))


@pytest.mark.row("D10")
def test_four_partitions_over_three_consumers_look_as_drawn() -> None:
    group = [consumer("Consumer A#0", 0, 3), consumer("Consumer A#1", 1), consumer("Consumer A#2", 2)]
    assert "\n".join(draw(group, 100)) == FOUR_OVER_THREE


def test_what_does_not_fit_side_by_side_is_drawn_below() -> None:
    group = [consumer(f"app#{number}", number) for number in range(5)]
    lines = draw(group, 70)
    assert max(map(len, lines)) <= 70
    names = [line.split() for line in lines if "app#" in line]
    assert names == [["app#0", "app#1"], ["app#2", "app#3"], ["app#4"]]


def test_a_consumer_without_partitions_is_idle_and_many_partitions_are_one_drum() -> None:
    lines = "\n".join(draw([consumer("a", *range(20), 25), consumer("b")], 100))
    assert "()=(Topic#0-19,25(@=()" in lines
    assert "(no partition)" in lines


def test_a_tall_stack_of_drums_outgrows_the_figure() -> None:
    lines = draw([consumer("a", 0, 1, 2, 3)], 100)
    assert sum("()=(Topic#" in line for line in lines) == 4


def test_a_long_name_keeps_its_end() -> None:
    lines = draw([consumer("a", 7, topic="x" * 200)], 100)
    assert any("xxx#7(@=()" in line for line in lines)
    assert max(map(len, lines)) < 100


def test_partitions_in_few_letters() -> None:
    held = [TopicPartition("b", 1), *(TopicPartition("a", number) for number in (5, 0, 1, 2))]
    assert compact(held) == "a#0-2,5 b#1"
    assert compact([]) == ""


def member(member_id: str, client_id: str, instance_id: str | None = None) -> GroupMember:
    return GroupMember(
        member_id=member_id, instance_id=instance_id, client_id=client_id, host="h", assigned=()
    )


def test_members_are_numbered_only_where_they_share_a_name() -> None:
    members = [member("1", "app"), member("2", "app"), member("3", "other"), member("4", "app", "static")]
    assert member_names(members) == {"1": "app#0", "2": "app#1", "3": "other", "4": "static"}


def log(committed: int | None, position: int | None, *, start: int = 0, end: int = 10) -> Log:
    where = TopicPartition("orders", 0)
    return Log(partition=where, start=start, end=end, committed=committed, position=position)


@pytest.mark.row("D14")
@pytest.mark.parametrize(
    ("drawn", "bar"),
    [
        (log(4, 8), "========C-------P...."),
        (log(8, 4), "========P=======C...."),
        (log(10, 10), "====================*"),
        (log(0, None), "C...................."),
        (log(None, 10), "--------------------P"),
        (log(None, None), "....................."),
        (log(104, 108, start=100, end=110), "========C-------P...."),
        (log(2, 50, start=5, end=15), "C-------------------P"),
    ],
)
def test_committed_and_current_position_in_the_log(drawn: Log, bar: str) -> None:
    (line,) = draw_logs([drawn], 44 if drawn.start >= 100 else 41)
    assert line.strip() == f"orders#0  {drawn.start} |{bar}| {drawn.end}"


def test_drawn_logs_are_aligned_and_fit() -> None:
    long = Log(
        partition=TopicPartition("orders-of-all-customers-in-europe", 12),
        start=1_000,
        end=1_234_567,
        committed=5_000,
        position=1_000_000,
    )
    lines = draw_logs([log(4, 8), long], 60)
    assert max(map(len, lines)) <= 60
    assert lines[0].index("|") == lines[1].index("|")
    assert lines[1].strip().startswith("…")
