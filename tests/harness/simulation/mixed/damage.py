# SPDX-License-Identifier: Apache-2.0
"""Damages a file of a log on one simulated node, where no crash can be mistaken for the cause (R26, R27).

That is in sealed segments that the node has written down as synced. Bytes that no CRC covers, all other files
and nodes at rest: damaged_files.py. Read next: cluster.py.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from random import Random

from headrace.broker.partition.partition import Partition
from headrace.log.checkpoints import RECOVERY_POINT_FILE, read_offset_checkpoint
from headrace.log.segments.files import file_stem
from headrace.testing.simworld import DATA_DIRECTORY
from headrace.wire.batch import read_header
from headrace.world import Files, read_file
from tests.harness.simulation.damaged_files import KINDS
from tests.harness.simulation.node import SimNode

_NOT_COVERED = 21
"""Bytes of a batch before its attributes: the CRC begins there."""


def damage_a_file(node: SimNode, random: Random, topics: Collection[str]) -> str:
    """What was done to which file; empty when there is none that may be damaged."""
    if node.broker is None:
        return ""
    files = node.machine.files
    sealed = [
        (path, first)
        for partition in node.broker.partitions.all()
        if partition.topic_partition.topic in topics and partition.online
        for path, first in _synced_files(partition, files)
    ]
    if not sealed:
        return ""
    path, first = random.choice(sealed)
    size = len(read_file(files, path))
    kind = random.choice(("flip", "cut") if first else ("flip", "cut", "remove"))
    KINDS[kind](files, path, _covered_bit(files, path, random.randrange(8 * size)))
    return f"{kind} {path}"


def _synced_files(partition: Partition, files: Files) -> list[tuple[Path, bool]]:
    """Of sealed segments, and whether it is the first one."""
    name = partition.topic_partition
    saved = read_offset_checkpoint(files, DATA_DIRECTORY / RECOVERY_POINT_FILE).get(name, 0)
    bases = [base for base, _, _ in partition.log.segments_from_oldest(partition.log.segment_count)]
    found = []
    for number, (base, end) in enumerate(pairwise(bases)):
        path = DATA_DIRECTORY / str(name) / f"{file_stem(base)}.log"
        if end <= saved and files.exists(path) and read_file(files, path):
            found.append((path, number == 0))
    return found


def _covered_bit(files: Files, path: Path, bit: int) -> int:
    """The bit itself, or one behind it in the same batch that the CRC covers."""
    data, start = memoryview(read_file(files, path)), 0
    while start + read_header(data, start).size <= bit // 8:
        start += read_header(data, start).size
    return bit + 8 * _NOT_COVERED if bit // 8 - start < _NOT_COVERED else bit
