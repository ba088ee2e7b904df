"""A group's assignment as the drawings show it: each consumer stands beside the partitions it reads (D10).

Pure: names and partitions in, lines out. Names for members are made here too, since a member id is no name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from headrace.client.groups import GroupMember
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
"""More partitions than this are drawn as one drum per topic."""
_MAX_LABEL = 40
MAX_FIGURES = 12
"""A larger crowd is listed, not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    name: str
    partitions: tuple[TopicPartition, ...]


def member_names(members: Sequence[GroupMember]) -> dict[str, str]:
    """By member id: the instance id or client id, numbered where several share it, as in the drawings."""
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
    """Lines no wider than `width` wherever a single consumer fits; several rows when not all do."""
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
    """`orders#0-3,7 payments#1`: every partition, in few letters."""
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


def _shortened(label: str) -> str:
    return label if len(label) <= _MAX_LABEL else f"…{label[1 - _MAX_LABEL :]}"


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
