# SPDX-License-Identifier: Apache-2.0
"""Output of `headrace groups describe`: drawing, members, partitions and lag of one group.

The figures come from client/tools/group_report.py. Durations have units on a terminal and are seconds in a
pipe.
"""

from __future__ import annotations

import io
import shutil
from typing import Any

from headrace.cli.durations import human_ms, seconds_text
from headrace.cli.groups.drawing import (
    MAX_FIGURES,
    MAX_LOGS,
    Log,
    compact,
    consumers_of,
    draw,
    draw_logs,
    member_names,
)
from headrace.cli.groups.event_text import short_member
from headrace.cli.output import Cell, Output
from headrace.client.tools.group_report import GroupReport, PartitionReport
from headrace.client.tools.lag import TimeBehind
from headrace.types import TopicPartition
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE

BY_TIMESTAMP = (
    "seconds behind are the age of the next record by its timestamp: "
    "there are no lag samples (in __headrace_lag)"
)
LEGEND = "each log from its start to its end: C committed, P current position, * both"
LEGEND_WITHOUT = "each log from its start to its end: C committed; the current position is not known"

_LIVE_FRAME_LINES = 6
"""Lines of the live view besides table rows: heading, column names, borders."""


class TerminalFrame(io.StringIO):
    """One frame of the live view; reports itself as a terminal so that rich adds colours."""

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
        output.table(*_member_table(report, terminal=output.terminal))
    if report.partitions:
        _gap(output)
        output.table(*_partition_table(report, terminal=output.terminal))
    if output.terminal:
        _draw_logs(report, output)


def show_live(report: GroupReport, output: Output, height: int) -> None:
    """Show the figures first, and the drawing if there is room."""
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
    """Notes on the figures and on missing data."""
    said = []
    lagging = [partition for partition in report.partitions if partition.lag]
    if any(partition.behind and partition.behind.by_timestamp for partition in lagging):
        said.append(BY_TIMESTAMP)
    if lagging and not report.group.active:
        said.append("the group has no members, so its lag does not shrink")
    elif lagging and not report.watched_ms:
        said.append("CLEAR IN needs rates: measure them with --over 5s or --watch")
    if report.uncommitted:
        said.append(f"partitions without a committed offset: {report.uncommitted}; their lag is unknown")
    if report.group.members and report.group.protocol_type != PROTOCOL_TYPE:
        said.append(
            f"the group's protocol type is {report.group.protocol_type!r}: its assignment is opaque "
            "to this tool"
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
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        fields["protocol type"] = group.protocol_type
    return fields


def _gap(output: Output) -> None:
    """Print an empty line in a pipe; terminal tables have their own."""
    if not output.terminal:
        output.line("")


def _draw(report: GroupReport, output: Output) -> None:
    width = shutil.get_terminal_size().columns
    for line in draw(consumers_of(report.group.members), width):
        output.styled((line, "cyan"))


def _draw_logs(report: GroupReport, output: Output) -> None:
    """Draw the logs with the committed and the current position, unless there are many."""
    logs = [
        Log(
            partition=each.partition,
            start=each.start,
            end=each.end,
            committed=each.committed,
            position=each.position,
        )
        for each in report.partitions
        if each.start is not None and each.end is not None and each.end > each.start
    ]
    if not logs or len(logs) > MAX_LOGS:
        return
    output.styled((LEGEND if any(log.position is not None for log in logs) else LEGEND_WITHOUT, "dim"))
    for line in draw_logs(logs, shutil.get_terminal_size().columns):
        output.styled((line, "cyan"))


def _member_table(report: GroupReport, *, terminal: bool) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    """On a terminal with short member ids; the client id is in the name, unless that is an instance id."""
    names = member_names(report.group.members)
    if terminal:
        return ("CONSUMER", "HOST", "PARTITIONS", "MEMBER ID"), [
            (
                names[member.member_id],
                member.host,
                compact(member.assigned) or None,
                short_member(member.member_id),
            )
            for member in report.group.members
        ]
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
    place = ("PARTITION",) if terminal else ("TOPIC", "PARTITION")
    columns = (*place, "CONSUMER", "POSITION", "COMMITTED", "END", "LAG", "BEHIND", "CLEAR IN")
    return columns, [
        (
            *_place(partition.partition, terminal=terminal),
            names[partition.member.member_id] if partition.member else None,
            partition.position,
            partition.committed,
            partition.end,
            partition.lag,
            _behind(partition, terminal=terminal),
            _clear_in(partition, terminal=terminal),
        )
        for partition in report.partitions
    ]


def _place(where: TopicPartition, *, terminal: bool) -> tuple[Cell, ...]:
    """One column on a terminal, where room is scarce."""
    return (f"{where.topic}#{where.partition}",) if terminal else (where.topic, str(where.partition))


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
        "position": partition.position,
        "committed": partition.committed,
        "start": partition.start,
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
