"""File names in a partition's directory, and what an interrupted deletion or compaction leaves there.

    .cleaned   a compaction did not finish: delete
    .swap      a compaction finished, its rename did not: finish it
    .deleted   retention removed this segment, and with it every earlier one
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.log.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, file_stem
from headrace.world import Files

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
_TEMPORARY_SUFFIX = ".tmp"
_DIGITS = 20


def offset_in(name: str, suffix: str) -> int | None:
    """The offset in `00000000000000000042.log`, for suffix `.log`; None for any other name."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != _DIGITS or not stem.isdecimal():
        return None
    return int(stem)


def offsets_of(names: Sequence[str], suffix: str) -> list[int]:
    return sorted(offset for name in names if (offset := offset_in(name, suffix)) is not None)


def tidy(files: Files, directory: Path) -> list[str]:
    """Finishes or undoes what a crash interrupted; returns the names that are left."""
    names = files.listdir(directory)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, _TEMPORARY_SUFFIX)):
            files.unlink(directory / name)
    # The log file last: as long as it is a .swap, the next start does this again.
    swapped = sorted((name for name in names if name.endswith(SWAP_SUFFIX)), key=_log_file_last)
    for name in swapped:
        files.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    _finish_deletion(files, directory, names)
    return files.listdir(directory)


def _log_file_last(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _finish_deletion(files: Files, directory: Path, names: Sequence[str]) -> None:
    """Segments are deleted oldest first, but names may reach the disk in any order."""
    deleted = offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX)
    if deleted:
        for offset in offsets_of(names, LOG_SUFFIX):
            if offset <= deleted[-1]:
                unlink_segment(files, directory, offset)
        files.sync_directory(directory)
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            files.unlink(directory / name)


def unlink_segment(files: Files, directory: Path, base_offset: int, suffix: str = "") -> None:
    for kind in SEGMENT_SUFFIXES:
        unlink_if_there(files, directory / (file_stem(base_offset) + kind + suffix))


def unlink_if_there(files: Files, path: Path) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return
