# SPDX-License-Identifier: Apache-2.0
"""Draws a group as text: consumers beside the partitions they read (D10), positions in the logs (D14).

Pure. Also derives short names of members, since member ids are not readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from headrace.client.tools.groups import GroupMember
from headrace.types import TopicPartition

_FIGURE = (
    "    ,```_   ",
    "     c   -  ",
    "    ./|-`   ",
    "    /` \\    ",
    "   /_|  \\)  ",
    "    | .__|  ",
    "    |   |   ",
    "    |   |   ",
    "    |___\\   ",
)
_MARGIN, _GAP = 2, 3
_MAX_DRUMS = 6
"""Above this number of partitions, one drum per topic is drawn."""
_MAX_LABEL = 40
MAX_FIGURES = 12
"""Above this number of consumers, they are listed, not drawn."""
MAX_LOGS = 12
_BAR = 40
_LOG_LABEL = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    name: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a partition, and where its consumer is in it."""

    partition: TopicPartition
    start: int
    end: int
    committed: int | None
    position: int | None


def draw_logs(logs: Sequence[Log], width: int) -> list[str]:
    """One line for each log, from its start to its end: C committed, P position, * both at one place."""
    labels = [_shortened(f"{log.partition.topic}#{log.partition.partition}", _LOG_LABEL) for log in logs]
    starts, ends = ([f"{offset:,}" for offset in offsets] for offsets in zip(*map(_edges, logs), strict=True))
    label, start, end = (max(map(len, texts)) for texts in (labels, starts, ends))
    bar = max(10, min(_BAR, width - _MARGIN - label - start - end - 8))
    return [
        f"{'':{_MARGIN}}{name:<{label}}  {first:>{start}} |{_bar(log, bar)}| {last}".rstrip()
        for log, name, first, last in zip(logs, labels, starts, ends, strict=True)
    ]


def _edges(log: Log) -> tuple[int, int]:
    return log.start, log.end


def _bar(log: Log, width: int) -> str:
    """`====C----P....`: committed, fetched but not committed, not fetched."""
    committed = _cell(log, log.committed, width)
    position = _cell(log, log.position, width)
    reached = max(committed, position)
    cells = ["=" if cell < committed else "-" if cell < reached else "." for cell in range(width + 1)]
    if log.position is not None:
        cells[position] = "P"
    if log.committed is not None:
        cells[committed] = "*" if log.position is not None and position == committed else "C"
    return "".join(cells)


def _cell(log: Log, offset: int | None, width: int) -> int:
    """The place of an offset in the bar; the last one is the end of the log."""
    if offset is None:
        return 0
    length = log.end - log.start
    within = min(max(offset - log.start, 0), length)
    return width if length == 0 else within * width // length


def member_names(members: Sequence[GroupMember]) -> dict[str, str]:
    """By member id: the instance id or client id, numbered where several share it."""
    own = {member.member_id: member.instance_id or member.client_id or "consumer" for member in members}
    counts = Counter(own.values())
    used: Counter[str] = Counter()
    names = {}
    for member in members:
        name = own[member.member_id]
        names[member.member_id] = f"{name}#{used[name]}" if counts[name] > 1 else name
        used[name] += 1
    return names


def consumers_of(members: Sequence[GroupMember]) -> list[Consumer]:
    names = member_names(members)
    return [Consumer(name=names[member.member_id], partitions=member.assigned) for member in members]


def draw(consumers: Sequence[Consumer], width: int) -> list[str]:
    """Draw consumers side by side, in several rows when they do not fit into `width`."""
    blocks = [_block(consumer) for consumer in consumers]
    column = max((len(line) for block in blocks for line in block), default=0)
    per_row = max(1, (width - _MARGIN + _GAP) // (column + _GAP))
    lines: list[str] = []
    for start in range(0, len(blocks), per_row):
        if start:
            lines.append("")
        lines += _side_by_side(blocks[start : start + per_row], column)
    return lines


def compact(partitions: Sequence[TopicPartition]) -> str:
    """`orders#0-3,7 payments#1`: every partition in compact form."""
    return " ".join(
        f"{topic}#{_ranges([partition for _, partition in group])}"
        for topic, group in groupby(sorted(partitions), key=lambda partition: partition.topic)
    )


def _block(consumer: Consumer) -> list[str]:
    labels = [f"{topic}#{partition}" for topic, partition in sorted(consumer.partitions)]
    if len(labels) > _MAX_DRUMS:
        labels = compact(consumer.partitions).split(" ")
    drums = [line for label in labels for line in _drum(_shortened(label))] or ["", "(no partition)"]
    height = max(len(_FIGURE), len(drums))
    figure = (*_FIGURE, *([" " * len(_FIGURE[0])] * (height - len(_FIGURE))))
    drums += [""] * (height - len(drums))
    return [consumer.name, *(left + right for left, right in zip(figure, drums, strict=True))]


def _drum(label: str) -> list[str]:
    return ["    " + "_" * (len(label) + 1), f"()=({label}(@=()", "    '" + "-" * (len(label) - 1) + "'"]


def _shortened(label: str, most: int = _MAX_LABEL) -> str:
    return label if len(label) <= most else f"…{label[1 - most :]}"


def _side_by_side(blocks: Sequence[list[str]], column: int) -> list[str]:
    height = max(map(len, blocks))
    lines = []
    for row in range(height):
        cells = (block[row] if row < len(block) else "" for block in blocks)
        lines.append((" " * _MARGIN + (" " * _GAP).join(cell.ljust(column) for cell in cells)).rstrip())
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0-2,5`."""
    parts: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)
