# SPDX-License-Identifier: Apache-2.0
"""`headrace groups reset`: plans, shows and executes a reset of committed offsets.

The new offsets are computed in client/tools/reset.py. Nothing is changed without --execute.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from headrace.cli.durations import parse_duration_ms, parse_moment_ms
from headrace.cli.groups.reset_options import ResetTarget
from headrace.cli.output import Output, clean
from headrace.cli.start_position import parse_start
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.groups import GroupDescription, Groups
from headrace.client.tools.reset import Kind, OffsetChange, Strategy, plan_changes, read_offsets_file
from headrace.types import TopicPartition

_KINDS: dict[str, Kind] = {
    "beginning": "earliest",
    "end": "latest",
    "offset": "offset",
    "last": "last",
    "time": "time",
}
"""The strategy of each kind of `--from`."""


def strategy_of(target: ResetTarget, group_id: str, now_ms: int) -> Strategy:
    """The reset strategy selected by the options."""
    chosen: list[Strategy] = []
    if target.start is not None:
        start = parse_start(target.start, now_ms)
        chosen.append(Strategy(kind=_KINDS[start.kind], value=start.value))
    if target.to_earliest:
        chosen.append(Strategy(kind="earliest"))
    if target.to_latest:
        chosen.append(Strategy(kind="latest"))
    if target.to_current:
        chosen.append(Strategy(kind="current"))
    if target.to_offset is not None:
        chosen.append(Strategy(kind="offset", value=target.to_offset))
    if target.to_datetime is not None:
        chosen.append(Strategy(kind="time", value=parse_moment_ms(target.to_datetime, "--to-datetime")))
    if target.by_duration is not None:
        ago_ms = parse_duration_ms(target.by_duration, "--by-duration")
        chosen.append(Strategy(kind="time", value=now_ms - ago_ms))
    if target.shift_by is not None:
        chosen.append(Strategy(kind="shift", value=target.shift_by))
    if target.from_file is not None:
        chosen.append(_read_file(target.from_file, group_id))
    if len(chosen) != 1:
        raise typer.BadParameter(
            "exactly one is required of --from, --to-earliest, --to-latest, --to-current, --to-offset, "
            "--to-datetime, --by-duration, --shift-by, --from-file"
        )
    return chosen[0]


class Reset:
    """The reset of one group: plan, show and execute."""

    def __init__(self, bootstrap: str | Cluster, group_id: str) -> None:
        self._groups = Groups(bootstrap)
        self._group_id = group_id
        self._group: GroupDescription | None = self._groups.find_group(group_id)

    def plan(self, strategy: Strategy, topics: Sequence[str]) -> list[OffsetChange]:
        committed = self._groups.committed(self._group_id)
        partitions = self._scope(topics, committed.keys() | (strategy.from_file or {}).keys())
        if strategy.from_file is not None:
            partitions &= strategy.from_file.keys()
        if not partitions:
            raise self._nothing_to_reset()
        known = self._groups.offsets_for_reset(strategy, partitions, committed)
        changes = plan_changes(strategy, partitions, known)
        missing = sorted(partitions - {change.partition for change in changes})
        if missing and strategy.from_file is not None:
            gone = missing[0]
            raise ClientError(f"partition {gone.partition} of topic {gone.topic!r} does not exist")
        return changes

    def execute(self, changes: Sequence[OffsetChange]) -> None:
        group = self._group
        if group is not None and group.active:
            raise self._active(group)
        self._groups.alter_offsets(self._group_id, {change.partition: change.new for change in changes})

    def show(self, output: Output, changes: Sequence[OffsetChange], *, executed: bool) -> None:
        if output.as_json:
            output.document(
                {
                    "group": self._group_id,
                    "executed": executed,
                    "offsets": [change_document(change) for change in changes],
                }
            )
            return
        output.table(
            ("TOPIC", "PARTITION", "OLD", "NEW", "CHANGE"),
            [
                (
                    change.partition.topic,
                    str(change.partition.partition),
                    change.old,
                    change.new,
                    None if change.old is None else f"{change.new - change.old:+,}",
                )
                for change in changes
            ],
        )
        for change in changes:
            if change.moved_to_the_log:
                where, wanted = change.partition, change.wanted
                output.note(f"{where}: offset {wanted} is not in the log, using {change.new}")
        if executed:
            output.note(f"The offsets of group '{self._group_id}' were set.")
            return
        output.note("Nothing was changed: this was a dry run. Add --execute to apply it.")
        if self._group is not None and self._group.active:
            output.note(f"It would be rejected now: {self._active(self._group)}")

    def _scope(self, topics: Sequence[str], default: set[TopicPartition]) -> set[TopicPartition]:
        """Parse --topic: `orders` is all its partitions, `orders:0,2` some; default: all committed ones."""
        if not topics:
            return set(default)
        chosen: set[TopicPartition] = set()
        for text in topics:
            name, colon, numbers = text.partition(":")
            there = {partition.index for partition in self._groups.describe_topic(name).partitions}
            wanted = _numbers(numbers) if colon else there
            if wanted - there:
                raise ClientError(
                    f"topic {name!r} has no partition {min(wanted - there)}: it has {len(there)}",
                    next_step=f"see which: headrace topics describe {name}",
                )
            chosen |= {TopicPartition(name, number) for number in wanted}
        return chosen

    def _nothing_to_reset(self) -> ClientError:
        if self._group is None:
            return ClientError(
                f"group {self._group_id!r} does not exist",
                next_step="set --topic to create offsets for it, or list the groups: headrace groups list",
                code="GROUP_ID_NOT_FOUND",
            )
        return ClientError(
            f"group {self._group_id!r} has no committed offsets", next_step="set the --topic to reset"
        )

    def _active(self, group: GroupDescription) -> ClientError:
        count = len(group.members)
        return ClientError(
            f"group {self._group_id!r} is in use (state {group.state}, {count} "
            f"member{'' if count == 1 else 's'}): offsets can be set only while it has no members",
            next_step=f"stop its consumers first; list them: headrace groups describe {self._group_id}",
            code="NON_EMPTY_GROUP",
        )


def export_lines(changes: Sequence[OffsetChange]) -> list[str]:
    """Lines for --from-file, as in kafka-consumer-groups."""
    return [f"{clean(c.partition.topic)},{c.partition.partition},{c.new}" for c in changes]


def change_document(change: OffsetChange) -> dict[str, Any]:
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "old": change.old,
        "new": change.new,
        "wanted": change.wanted,
    }


def _numbers(text: str) -> set[int]:
    try:
        return {int(number) for number in text.split(",")}
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of partitions like 0,2", param_hint="--topic"
        ) from None


def _read_file(path: Path, group_id: str) -> Strategy:
    with path.open(encoding="utf-8") as lines:
        offsets = read_offsets_file(lines, group_id)
    if not offsets:
        raise ClientError(f"{path} has no offset of group {group_id!r}")
    return Strategy(kind="file", from_file=offsets)
