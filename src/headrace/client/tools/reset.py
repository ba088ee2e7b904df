# SPDX-License-Identifier: Apache-2.0
"""New offsets for a group reset: every strategy of kafka-consumer-groups, as plain arithmetic.

Requests and commits: groups.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.client.errors import ClientError, NextStep
from headrace.types import TopicPartition

Kind = Literal["earliest", "latest", "last", "current", "offset", "time", "shift", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """`value`: the offset, the moment in milliseconds, how many last records, or by how much to shift."""

    kind: Kind
    value: int = 0
    from_file: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """What is known of the partitions to be reset; `at_time` only for a reset to a moment."""

    committed: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    at_time: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """A partition's committed offset before and after a reset."""

    partition: TopicPartition
    old: int | None
    new: int
    wanted: int
    """What the strategy said; `new` is the nearest offset that the log holds."""

    @property
    def moved_to_the_log(self) -> bool:
        return self.new != self.wanted


def plan_changes(
    strategy: Strategy, partitions: Iterable[TopicPartition], offsets: Offsets
) -> list[OffsetChange]:
    """Old and new offset of every partition. Partitions of deleted topics have no end and are left out."""
    changes = []
    for where in sorted(set(partitions) & offsets.ends.keys()):
        wanted = _wanted(strategy, where, offsets)
        inside = min(max(wanted, offsets.starts[where]), offsets.ends[where])
        old = offsets.committed.get(where)
        changes.append(OffsetChange(partition=where, old=old, new=inside, wanted=wanted))
    return changes


def read_offsets_file(lines: Iterable[str], group_id: str) -> dict[TopicPartition, int]:
    """`topic,partition,offset`, or `group,topic,partition,offset` of which only this group's lines count."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        fields = [field.strip() for field in row]
        if len(fields) == 4 and fields.pop(0) != group_id:
            continue
        try:
            topic, partition, offset = fields
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise ClientError(
                f"line {number} is not TOPIC,PARTITION,OFFSET: {','.join(row)}",
                next_step=f"see a sound file: headrace groups reset {group_id} --to-current --export",
            ) from None
    return found


def _wanted(strategy: Strategy, where: TopicPartition, offsets: Offsets) -> int:
    match strategy.kind:
        case "earliest":
            return offsets.starts[where]
        case "latest":
            return offsets.ends[where]
        case "last":
            return max(offsets.ends[where] - strategy.value, offsets.starts[where])
        case "current":
            return offsets.committed.get(where, offsets.ends[where])
        case "offset":
            return strategy.value
        case "time":
            return offsets.at_time[where]
        case "shift":
            return _shifted(strategy.value, where, offsets)
        case "file":
            return (strategy.from_file or {})[where]


def _shifted(by: int, where: TopicPartition, offsets: Offsets) -> int:
    if where not in offsets.committed:
        raise ClientError(
            f"nothing is committed for partition {where.partition} of topic {where.topic!r}, "
            "so it cannot be shifted",
            next_step=NextStep(
                'use to="earliest", to="latest" or an offset',
                "use --to-earliest, --to-latest or --to-offset",
            ),
        )
    return offsets.committed[where] + by
