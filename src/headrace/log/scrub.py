# SPDX-License-Identifier: Apache-2.0
"""Looking for bit rot: every batch that is known to be on disk is read and checked (R27).

Pure functions of what they are given, for the worker process: a segment in steps, so that the disk is read
at a rate, or a whole log. They change nothing; what they find is reported.
Read next: broker/partition/scrubber.py (which paces them), segments/scan.py.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.log.epochs import UNDEFINED, EpochEntry, epoch_at
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.scan import NO_EPOCH, scan
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.world import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    base_offset: int
    """Of the segment."""
    path: Path
    position: int
    offset: int
    """Expected at that position."""
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} at position {self.position}, offset {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCheck:
    """The check of one segment, begun or not."""

    files: Files
    directory: Path
    base_offset: int
    size: int
    """Bytes to check."""
    gapless: bool
    """No compaction has been here: a missing offset is a fault too."""
    end_offset: int
    """Where the next segment begins, or the log ends."""
    flushed_end: int = 0
    """Batches below it were on disk."""
    epochs: tuple[EpochEntry, ...]
    """Which leader epoch began at which offset: the CRC of a batch does not cover its epoch."""
    position: int = 0
    offset: int
    """Expected at `position`."""
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    batches: int
    bytes_read: int
    fault: Fault | None
    """What follows a corrupt batch cannot be checked."""
    missing: bool = False
    """There is no such file: deleted or replaced, which the owner of the log knows."""
    unreadable: bool = False
    """The disk refused to read it."""
    rest: SegmentCheck | None = None
    """What is left to check."""
    sound_position: int
    """What was checked is sound up to here, and may be sound behind it."""
    sound_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubPlan:
    segments: tuple[SegmentCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubReport:
    batches: int
    bytes_read: int
    faults: tuple[Fault, ...]
    """At most one per segment."""


def plan_scrub(
    files: Files, directory: Path, segments: SegmentList, epochs: tuple[EpochEntry, ...], *, gapless: bool
) -> ScrubPlan:
    """All segments as long as they are now; batches are appended behind, never changed."""
    return ScrubPlan(
        segments=tuple(
            SegmentCheck(
                files=files,
                directory=directory,
                base_offset=segment.base_offset,
                size=segment.size,
                gapless=gapless,
                end_offset=segments.end_of(slot),
                epochs=epochs,
                offset=segment.base_offset,
            )
            for slot, segment in enumerate(segments)
        )
    )


def scrub(plan: ScrubPlan) -> ScrubReport:
    """A segment that was deleted or replaced meanwhile is passed over."""
    results = [check_segment(each, each.size) for each in plan.segments]
    return ScrubReport(
        batches=sum(each.batches for each in results),
        bytes_read=sum(each.bytes_read for each in results),
        faults=tuple(each.fault for each in results if each.fault is not None),
    )


def check_segment(check: SegmentCheck, most_bytes: int) -> CheckResult:
    """Checks whole batches until `most_bytes` were read, or a little more."""
    segment = Segment(check.files, DescriptorPool(check.files, 1), check.directory, check.base_offset, 0)
    path = segment.pooled.path
    try:
        return _check(check, segment, most_bytes)
    except FileNotFoundError:
        return _nothing_read(check, None, missing=True)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        fault = _fault(
            check, path, check.position, check.offset, f"cannot be read ({error.strerror or error})"
        )
        return _nothing_read(check, fault, unreadable=True)
    finally:
        segment.retire()


def _nothing_read(
    check: SegmentCheck, fault: Fault | None, *, missing: bool = False, unreadable: bool = False
) -> CheckResult:
    return CheckResult(
        batches=0,
        bytes_read=0,
        fault=fault,
        missing=missing,
        unreadable=unreadable,
        sound_position=check.position,
        sound_offset=check.offset,
    )


def _check(check: SegmentCheck, segment: Segment, most_bytes: int) -> CheckResult:
    file = segment.pooled.get()
    size = file.size()
    wrong_epochs: list[str] = []

    def visit(fields: tuple[int, ...], batch: memoryview) -> None:
        known = epoch_at(check.epochs, fields[0])
        if known not in (UNDEFINED, fields[2]):
            wrong_epochs.append(f"leader epoch {fields[2]} of the batch at offset {fields[0]} is not {known}")

    end = scan(
        file,
        size=min(check.size, size),
        position=check.position,
        expected_offset=check.offset,
        leader_epoch=check.leader_epoch,
        gapless=check.gapless,
        visit=visit,
        until=check.position + most_bytes,
        largest_offset=segment.largest_offset,
    )
    fault = end.fault or (wrong_epochs[0] if wrong_epochs else None)
    if fault is None and end.position == size < check.size:
        fault = f"the file ends after {size} of {check.size} bytes"
    if fault is None and end.position >= check.size:
        fault = _wrong_end(check, end.next_offset)
    found = rest = None
    if fault is not None:
        found = _fault(check, segment.pooled.path, end.position, end.next_offset, fault)
    elif end.position < check.size:
        rest = replace(check, position=end.position, offset=end.next_offset, leader_epoch=end.leader_epoch)
    return CheckResult(
        batches=end.batches,
        bytes_read=end.position - check.position,
        fault=found,
        rest=rest,
        # A batch with a wrong epoch lies anywhere in what was read.
        sound_position=check.position if wrong_epochs else end.position,
        sound_offset=check.offset if wrong_epochs else end.next_offset,
    )


def _wrong_end(check: SegmentCheck, offset: int) -> str | None:
    if offset > check.end_offset:
        return f"it ends at offset {offset}, beyond {check.end_offset}"
    if offset < check.flushed_end:
        return f"it ends at offset {offset}, before {check.flushed_end}"
    if check.gapless and offset < check.end_offset:
        return f"offsets {offset} to {check.end_offset - 1} are missing"
    return None


def _fault(check: SegmentCheck, path: Path, position: int, offset: int, what: str) -> Fault:
    return Fault(base_offset=check.base_offset, path=path, position=position, offset=offset, what=what)
