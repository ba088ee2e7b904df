# SPDX-License-Identifier: Apache-2.0
"""Putting cleaned segments in place, so that a crash at any moment leaves one whole version of every record.

    compaction.py                writes X.cleaned and the swap journal, both durable
    X.cleaned -> X.swap -> X     renames, nothing to wait for; the first segment of a group is replaced
    `swap_done` on a thread      fsync of the directory; then journal and replaced segments are removed

A start in between drops the indexes that the journal names (leftovers.py) and the segments that the new one
overlaps (recovery.py).
"""

from __future__ import annotations

from pathlib import Path

from headrace.log.compaction.plan import CleanedGroup, CleanerState
from headrace.log.leftovers import (
    CLEANED_SUFFIX,
    SWAP_JOURNAL,
    SWAP_SUFFIX,
    unlink_if_there,
    unlink_segment,
)
from headrace.log.segments.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from headrace.world import Files, read_file, replace_file

STATE_FILE = "cleaner-offset-checkpoint"
_STATE_VERSION = 0
_SWAPPED_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
"""The log file last: until it has its name, a start repeats the renames."""


def swap_in(files: Files, directory: Path, group: CleanedGroup) -> list[Path]:
    """Renames the cleaned segment into place; returns the replaced files of its group."""
    stem = file_stem(group.source_base_offsets[0])
    for source, target in ((CLEANED_SUFFIX, SWAP_SUFFIX), (SWAP_SUFFIX, "")):
        for suffix in _SWAPPED_SUFFIXES:
            name = stem + suffix
            files.rename(directory / (name + source), directory / (name + target))
    return [
        directory / (file_stem(base_offset) + suffix)
        for base_offset in group.source_base_offsets[1:]
        for suffix in SEGMENT_SUFFIXES
    ]


def discard(files: Files, directory: Path, group: CleanedGroup) -> None:
    """The log changed meanwhile: the work was for nothing."""
    unlink_segment(files, directory, group.source_base_offsets[0], CLEANED_SUFFIX)


def load_state(files: Files, directory: Path) -> CleanerState:
    """Losing it costs one compaction of everything."""
    try:
        lines = read_file(files, directory / STATE_FILE).decode("ascii").split()
        version, first_dirty_offset, next_horizon_ms = (int(line) for line in lines)
    except (FileNotFoundError, ValueError):
        return CleanerState()
    if version != _STATE_VERSION or first_dirty_offset < 0:
        return CleanerState()
    return CleanerState(first_dirty_offset, next_horizon_ms)


def swap_done(files: Files, directory: Path, state: CleanerState) -> None:
    """The swap is durable. Not before: a power cut would leave uncleaned records counted as clean."""
    lines = (_STATE_VERSION, state.first_dirty_offset, state.next_horizon_ms)
    replace_file(files, directory / STATE_FILE, "".join(f"{line}\n" for line in lines).encode())
    unlink_if_there(files, directory / SWAP_JOURNAL)
