# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of `headrace top`, from documents."""

from __future__ import annotations

from headrace.console.top import summaries, tables, values
from tests.unit.console.top import documents


def names(table: tables.Table) -> list[str]:
    return [table.texts(row)[0] for row in table.rows]


def column(table: tables.Table, name: str) -> int:
    return [each.name for each in table.columns].index(name)


def test_nodes_say_who_is_controller_and_who_is_down() -> None:
    table = tables.nodes_table(documents.cluster())
    state = column(table, "STATE")
    assert [table.texts(row)[state] for row in table.rows] == ["up, controller", "down"]


def test_what_is_not_known_is_a_dash_and_not_zero() -> None:
    table = tables.groups_table(documents.groups())
    lag = column(table, "LAG")
    assert [table.texts(row)[lag] for row in table.rows] == ["70,000", "-", "7"]


def test_the_largest_lag_comes_first_and_unknown_lags_last_either_way() -> None:
    table = tables.groups_table(documents.groups())
    lag = column(table, "LAG")
    assert names(table.sorted_by(lag)) == ["billing", "audit", "mail"]
    assert names(table.sorted_by(lag, reverse=True)) == ["audit", "billing", "mail"]


def test_names_sort_from_a_to_z() -> None:
    table = tables.groups_table(documents.groups())
    assert names(table.sorted_by(0)) == ["audit", "billing", "mail"]


def test_internal_topics_come_last() -> None:
    internal = documents.topic_entry("__headrace_events", rate_in=1000.0, internal=True)
    document = documents.topics() | {"topics": [internal, documents.topic_entry("orders")]}
    table = tables.topics_table(document)
    assert names(table.sorted_by(column(table, "IN/S"))) == ["orders", "__headrace_events"]
    assert names(table.sorted_by(0)) == ["orders", "__headrace_events"]


def test_every_column_can_be_sorted() -> None:
    found = [
        tables.nodes_table(documents.cluster()),
        tables.topics_table(documents.topics()),
        tables.groups_table(documents.groups()),
        tables.topic_partitions_table(documents.topic()),
        tables.topic_groups_table(documents.topic()),
        tables.members_table(documents.group()),
        tables.group_partitions_table(documents.group()),
    ]
    for table in found:
        for index in range(len(table.columns)):
            assert len(table.sorted_by(index).rows) == len(table.rows)


def test_a_filter_keeps_rows_with_the_text_in_their_name() -> None:
    assert names(tables.topics_table(documents.topics()).filtered("ORD")) == ["orders"]


def test_control_characters_of_names_are_escaped() -> None:
    shown = names(tables.topics_table(documents.topics()))[2]
    assert shown == "evil\\x1b[2J[bold]name[/]"


def test_a_list_says_how_many_it_leaves_out() -> None:
    document = documents.topics() | {"total": 900}
    assert tables.topics_table(document).note == "3 of 900 topics are shown"


def test_the_slowest_consumer_is_named_with_since_when() -> None:
    table = tables.members_table(documents.group())
    slow = table.texts(table.rows[1])[column(table, "SLOWEST")]
    assert slow == f"slowest since {values.moment(documents.AT_MS)}"
    assert summaries.slowest(documents.group()).startswith("Slowest: b, 6,000 records behind, since ")


def test_growing_lag_is_never_cleared_and_a_least_time_is_marked() -> None:
    table = tables.group_partitions_table(documents.group())
    assert table.texts(table.rows[1])[-3:] == (">1 min 30 s", "↑ growing", "never")


def test_consumers_with_one_client_id_are_told_apart() -> None:
    shared = [documents.member("a") | {"member_id": number} for number in ("1", "2")]
    assert tables.member_names(shared) == {"1": "a", "2": "a (2)"}


def test_a_partition_without_leader_says_so() -> None:
    table = tables.topic_partitions_table(documents.topic())
    assert [table.texts(row)[1] for row in table.rows] == ["0", "none"]


def test_a_group_at_a_glance() -> None:
    lines = summaries.group_lines(documents.group())
    assert lines[1].startswith("lag 6,003 records · 1 min 30 s behind")
    assert lines[3].endswith("because b joined; orders-2 moved from a to b (took 250 ms)")
    assert lines[4] == "One consumer more: orders-1 would move to it"


def test_durations_have_at_most_two_units() -> None:
    shown = [values.duration(number) for number in (None, 0, 999, 1_500, 61_000, 3_700_000, 90_000_000)]
    assert shown == ["-", "0 ms", "999 ms", "1.5 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]
