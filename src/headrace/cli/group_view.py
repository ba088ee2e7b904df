"""What `headrace groups describe` shows of one group: a drawing, its members, its partitions, its lag.

The figures are client/group_report.py's. On a terminal durations are for people, in a pipe they are seconds.
"""

from __future__ import annotations

import io
import shutil
from typing import Any

from headrace.cli.durations import human_ms, seconds_text
from headrace.cli.group_drawing import MAX_FIGURES, compact, consumers_of, draw, member_names
from headrace.cli.output import Cell, Output
from headrace.client.group_report import GroupReport, PartitionReport
from headrace.client.groups import CONSUMER_PROTOCOL
from headrace.client.lag import TimeBehind

BY_TIMESTAMP = (
    "seconds behind are the age of the next record by its own timestamp: "
    "there are no samples of when records came (in __headrace_lag)"
)


_LIVE_FRAME_LINES = 6
"""Of a live picture beside the rows of its table: heading, column names, lines around them."""


class TerminalFrame(io.StringIO):
    """One picture of a live view: rich colours it as it would the terminal that it is shown on."""

    def isatty(self) -> bool:
        return True


def show(report: GroupReport, output: Output) -> None:
    group = report.group
    output.fields(_fields(report))
    if output.terminal and group.assigned and len(group.members) <= MAX_FIGURES:
        output.line("")
        _draw(report, output)
    if group.members:
        _gap(output)
        output.table(*_member_table(report))
    if report.partitions:
        _gap(output)
        output.table(*_partition_table(report, terminal=output.terminal))


def show_live(report: GroupReport, output: Output, height: int) -> None:
    """The figures first, the drawing as far as there is room for it."""
    group = report.group
    count = len(group.members)
    members = f"{count} member{'' if count == 1 else 's'}"
    output.styled(
        (group.group_id, "bold"),
        (f"  {group.state}", "green" if group.state == "Stable" else "yellow"),
        (f"  {members}  lag {report.lag:,}", ""),
        ("  Ctrl-C ends", "dim"),
    )
    output.table(*_partition_table(report, terminal=True))
    drawn = draw(consumers_of(group.members), shutil.get_terminal_size().columns) if group.assigned else []
    if len(report.partitions) + _LIVE_FRAME_LINES + len(drawn) <= height:
        _draw(report, output)


def notes(report: GroupReport) -> list[str]:
    """What the reader should know about the figures, and what is missing."""
    said = []
    lagging = [partition for partition in report.partitions if partition.lag]
    if any(partition.behind and partition.behind.by_timestamp for partition in lagging):
        said.append(BY_TIMESTAMP)
    if lagging and not report.group.active:
        said.append("nobody is in the group, so nothing works its lag off")
    elif lagging and not report.watched_ms:
        said.append("when the lag is gone needs a rate: measure it with --over 5s, or look on with --watch")
    if report.uncommitted:
        said.append(f"partitions without a committed offset: {report.uncommitted}; their lag is not known")
    if report.group.members and report.group.protocol_type != CONSUMER_PROTOCOL:
        said.append(
            f"the group's protocol type is {report.group.protocol_type!r}: what its members work on is known "
            "to them alone"
        )
    return said


def document(report: GroupReport) -> dict[str, Any]:
    group = report.group
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.node_id,
        "lag": report.lag,
        "watched_seconds": report.watched_ms / 1000,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "assigned": [[where.topic, where.partition] for where in member.assigned],
            }
            for member in group.members
        ],
        "partitions": [_partition_document(partition) for partition in report.partitions],
        "notes": notes(report),
    }


def _fields(report: GroupReport) -> dict[str, Cell]:
    group = report.group
    count = len(group.members)
    fields: dict[str, Cell] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type + ("" if group.epoch is None else f", epoch {group.epoch}"),
        "assignor": group.assignor or None,
        "coordinator": f"node {group.node_id}",
        "members": count,
        "lag": report.lag,
    }
    if group.protocol_type not in ("", CONSUMER_PROTOCOL):
        fields["protocol type"] = group.protocol_type
    return fields


def _gap(output: Output) -> None:
    """A table on a terminal brings its own."""
    if not output.terminal:
        output.line("")


def _draw(report: GroupReport, output: Output) -> None:
    width = shutil.get_terminal_size().columns
    for line in draw(consumers_of(report.group.members), width):
        output.styled((line, "cyan"))


def _member_table(report: GroupReport) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    names = member_names(report.group.members)
    columns = ("CONSUMER", "HOST", "CLIENT ID", "PARTITIONS", "MEMBER ID")
    return columns, [
        (
            names[member.member_id],
            member.host,
            member.client_id,
            compact(member.assigned) or None,
            member.member_id,
        )
        for member in report.group.members
    ]


def _partition_table(
    report: GroupReport, *, terminal: bool
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    names = member_names(report.group.members)
    columns = ("TOPIC", "PARTITION", "CONSUMER", "COMMITTED", "END", "LAG", "BEHIND", "CLEAR IN")
    return columns, [
        (
            partition.partition.topic,
            str(partition.partition.partition),
            names[partition.member.member_id] if partition.member else None,
            partition.committed,
            partition.end,
            partition.lag,
            _behind(partition, terminal=terminal),
            _clear_in(partition, terminal=terminal),
        )
        for partition in report.partitions
    ]


def _behind(partition: PartitionReport, *, terminal: bool) -> str | None:
    behind = partition.behind
    if behind is None:
        return None
    text = human_ms(behind.behind_ms) if terminal else seconds_text(behind.behind_ms)
    return f">{text}" if behind.at_least else text


def _source(behind: TimeBehind) -> str:
    return "record timestamp" if behind.by_timestamp else "samples"


def _clear_in(partition: PartitionReport, *, terminal: bool) -> str | None:
    said = partition.forecast
    if said is None:
        return None
    if said.clear_ms is None:
        return f"never ({said.trend})" if terminal else "never"
    return human_ms(said.clear_ms) if terminal else seconds_text(said.clear_ms)


def _partition_document(partition: PartitionReport) -> dict[str, Any]:
    behind, said = partition.behind, partition.forecast
    return {
        "topic": partition.partition.topic,
        "partition": partition.partition.partition,
        "member_id": partition.member.member_id if partition.member else None,
        "committed": partition.committed,
        "end": partition.end,
        "lag": partition.lag,
        "lag_seconds": None if behind is None else behind.behind_ms / 1000,
        "lag_seconds_at_least": behind is not None and behind.at_least,
        "lag_seconds_from": None if behind is None else _source(behind),
        "rate_in": partition.rate_in,
        "rate_out": partition.rate_out,
        "clear_seconds": None if said is None or said.clear_ms is None else said.clear_ms / 1000,
        "trend": None if said is None else said.trend,
    }
