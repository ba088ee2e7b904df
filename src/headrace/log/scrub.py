# SPDX-License-Identifier: Apache-2.0
"""Looking for bit rot: every batch that is known to be on disk is read and checked (R27).

`scrub` is a pure function of its plan for the worker process. It changes nothing; what it finds is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.scan import scan
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.world import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubPlan:
    files: Files
    directory: Path
    segments: tuple[tuple[int, int], ...]
    """(base offset, bytes to check)."""
    gapless: bool
    """No compaction has been here: a missing offset is a fault too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    base_offset: int
    """Of the segment."""
    path: Path
    position: int
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} at position {self.position}, offset {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubReport:
    batches: int
    bytes_read: int
    faults: tuple[Fault, ...]
    """At most one per segment: what follows a corrupt batch cannot be checked."""


def plan_scrub(files: Files, directory: Path, segments: SegmentList, *, gapless: bool) -> ScrubPlan:
    """All segments as long as they are now; batches are appended behind, never changed."""
    return ScrubPlan(
        files=files,
        directory=directory,
        segments=tuple((segment.base_offset, segment.size) for segment in segments),
        gapless=gapless,
    )


def scrub(plan: ScrubPlan) -> ScrubReport:
    """A segment that was deleted or replaced meanwhile is passed over."""
    pool = DescriptorPool(plan.files, 1)
    batches = bytes_read = 0
    faults = []
    for base_offset, size in plan.segments:
        segment = Segment(plan.files, pool, plan.directory, base_offset, 0)
        try:
            file = segment.pooled.get()
        except FileNotFoundError:
            continue
        size = min(size, file.size())
        end = scan(file, size=size, expected_offset=base_offset, gapless=plan.gapless)
        segment.retire()
        batches += end.batches
        bytes_read += end.position
        if end.fault is not None:
            path = segment.pooled.path
            faults.append(
                Fault(
                    base_offset=base_offset,
                    path=path,
                    position=end.position,
                    offset=end.next_offset,
                    what=end.fault,
                )
            )
    return ScrubReport(batches=batches, bytes_read=bytes_read, faults=tuple(faults))
