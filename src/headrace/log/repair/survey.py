# SPDX-License-Identifier: Apache-2.0
"""What of a damaged segment is sound, and which offsets have to come from another replica (R27).

In steps for the worker process, as the scrub. Where sound batches begin again is told by the segment's index
and by nothing else: what looks like a batch in the middle of a damaged one may be what a client put there.
Read next: replacement.py, broker/replication/log_repairs.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.log.damage import header_at
from headrace.log.epochs import UNDEFINED, epoch_at
from headrace.log.scrub import CheckResult, SegmentCheck, check_segment
from headrace.log.segments.files import INDEX_SUFFIX, LOG_SUFFIX, file_stem, read_or_none
from headrace.log.segments.index import OffsetIndex
from headrace.log.segments.scan import CHUNK_BYTES, NO_EPOCH
from headrace.world import File


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Sound batches one behind the other."""

    position: int
    size: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets whose batches are damaged or missing."""

    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Of one segment, begun or done."""

    left: SegmentCheck | None
    """What has not been looked at; None: all has."""
    is_last: bool
    """The end of the log: what follows a damaged batch is left out, and fetched as new records are."""
    parts: tuple[Run | Gap, ...] = ()
    confined: bool = True
    """False: offsets contradict those of the neighbours, so that no range can be named."""

    @property
    def gaps(self) -> list[Gap]:
        return [part for part in self.parts if isinstance(part, Gap)]

    @property
    def runs(self) -> list[Run]:
        return [part for part in self.parts if isinstance(part, Run)]


def survey_step(survey: Survey, most_bytes: int) -> Survey:
    """Looks at `most_bytes` more, or up to the next fault and where sound batches begin again."""
    check = survey.left
    assert check is not None
    found = check_segment(check, most_bytes)
    parts = _with_run(survey.parts, check, found)
    if found.fault is None and not found.missing:
        return replace(survey, parts=parts, left=found.rest)
    if survey.is_last:
        return replace(survey, parts=parts, left=None)
    resumed = None if found.missing else _resume(check, found)
    end = check.end_offset if resumed is None else resumed.offset
    if end <= found.sound_offset:
        return replace(survey, parts=parts, left=None, confined=False)
    return replace(survey, parts=_with_gap(parts, found.sound_offset, end), left=resumed)


def _with_run(parts: tuple[Run | Gap, ...], check: SegmentCheck, found: CheckResult) -> tuple[Run | Gap, ...]:
    size = found.sound_position - check.position
    if not size:
        return parts
    last = parts[-1] if parts else None
    if isinstance(last, Run):
        return (*parts[:-1], replace(last, size=last.size + size, end_offset=found.sound_offset))
    run = Run(position=check.position, size=size, first_offset=check.offset, end_offset=found.sound_offset)
    return (*parts, run)


def _with_gap(parts: tuple[Run | Gap, ...], first_offset: int, end_offset: int) -> tuple[Run | Gap, ...]:
    last = parts[-1] if parts else None
    if isinstance(last, Gap):
        return (*parts[:-1], replace(last, end_offset=end_offset))
    return (*parts, Gap(first_offset=first_offset, end_offset=end_offset))


def _resume(check: SegmentCheck, found: CheckResult) -> SegmentCheck | None:
    """The rest of the segment, from the first sound batch that its index names."""
    stem = file_stem(check.base_offset)
    data = read_or_none(check.files, check.directory / (stem + INDEX_SUFFIX))
    index = None if data is None else OffsetIndex.decode(data, check.size)
    if index is None:
        return None
    # A disk that refuses to read a sector refuses its neighbours too.
    beyond = found.sound_position + (CHUNK_BYTES if found.unreadable else 0)
    file = check.files.open(check.directory / (stem + LOG_SUFFIX), "read")
    try:
        for slot in range(len(index)):
            entry = index.entry(slot)
            if entry.position > beyond:
                offset = _sound_at(file, check, entry.position, check.base_offset + entry.relative_offset)
                if offset is not None and offset > found.sound_offset:
                    return replace(check, position=entry.position, offset=offset, leader_epoch=NO_EPOCH)
    finally:
        file.close()
    return None


def _sound_at(file: File, check: SegmentCheck, position: int, last_offset: int) -> int | None:
    """The base offset of the batch there, if it is sound and ends with `last_offset`."""
    try:
        header = header_at(file, position, check.size)
    except OSError:
        return None
    if header is None or header.last_offset != last_offset or last_offset >= check.end_offset:
        return None
    known = epoch_at(check.epochs, header.base_offset)
    return header.base_offset if known in (UNDEFINED, header.leader_epoch) else None
