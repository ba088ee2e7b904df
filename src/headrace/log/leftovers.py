# SPDX-License-Identifier: Apache-2.0
"""File names in a partition's directory, and what an interrupted deletion or compaction leaves there.

.cleaned            a compaction did not finish: delete
.swap               a compaction finished, its rename did not: finish it
swap-in-progress    names the segments whose log and index files may come from different versions
.deleted            retention removed this segment, and with it every earlier one
.log.repaired       takes the place of a damaged segment, which is kept: finish it (repair/replacement.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.log.checkpoints import keep_damaged
from headrace.log.segments.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
    mark_unknown,
)
from headrace.log.segments.scan import scan
from headrace.log.segments.transaction_index import UNKNOWN_BYTES
from headrace.world import Files, read_file, replace_file

SWAP_JOURNAL = "swap-in-progress"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
REPAIRED_SUFFIX = ".repaired"
_TEMPORARY_SUFFIX = ".tmp"
_INTERRUPTED = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX, REPAIRED_SUFFIX, _TEMPORARY_SUFFIX)
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
    if SWAP_JOURNAL not in names and not any(name.endswith(_INTERRUPTED) for name in names):
        return names
    for name in names:
        if name.endswith((CLEANED_SUFFIX, _TEMPORARY_SUFFIX)):
            files.unlink(directory / name)
    _finish_repairs(files, directory, names)
    # The log file last: as long as it is a .swap, the next start does this again.
    swapped = sorted((name for name in names if name.endswith(SWAP_SUFFIX)), key=_log_file_last)
    for name in swapped:
        files.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    if SWAP_JOURNAL in names:
        _drop_indexes(files, directory)
    _finish_deletion(files, directory, names)
    return files.listdir(directory)


def _finish_repairs(files: Files, directory: Path, names: Sequence[str]) -> None:
    repaired = offsets_of(names, LOG_SUFFIX + REPAIRED_SUFFIX)
    for base_offset in repaired:
        finish_repair(files, directory, base_offset)
    finished = {file_stem(base_offset) for base_offset in repaired}
    for name in names:
        if name.endswith(REPAIRED_SUFFIX) and name.partition(".")[0] not in finished:
            files.unlink(directory / name)


def finish_repair(files: Files, directory: Path, base_offset: int) -> Path | None:
    """Gives `.log.repaired` its name; where the damaged file is kept, if there was one.

    Every rename is durable before the next: the damaged file must have its new name first.
    """
    stem = file_stem(base_offset)
    kept = keep_damaged(files, directory / (stem + LOG_SUFFIX))
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if files.exists(source := directory / (stem + suffix + REPAIRED_SUFFIX)):
            files.rename(source, directory / (stem + suffix))
    # The transaction index speaks of offsets, which are the same.
    if not files.exists(transactions := directory / (stem + TRANSACTION_INDEX_SUFFIX)):
        mark_unknown(files, transactions, UNKNOWN_BYTES)
    files.sync_directory(directory)
    files.rename(directory / (stem + LOG_SUFFIX + REPAIRED_SUFFIX), directory / (stem + LOG_SUFFIX))
    files.sync_directory(directory)
    return kept


def write_swap_journal(files: Files, directory: Path, base_offsets: Iterable[int]) -> None:
    """Durable before the first rename of a swap; removed when the last one is durable."""
    text = "".join(f"{base_offset}\n" for base_offset in base_offsets)
    replace_file(files, directory / SWAP_JOURNAL, text.encode())


def _drop_indexes(files: Files, directory: Path) -> None:
    for line in read_file(files, directory / SWAP_JOURNAL).split():
        stem = file_stem(int(line))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            unlink_if_there(files, directory / (stem + suffix))
        mark_unknown(files, directory / (stem + TRANSACTION_INDEX_SUFFIX), UNKNOWN_BYTES)
    files.sync_directory(directory)
    files.unlink(directory / SWAP_JOURNAL)


def _log_file_last(name: str) -> bool:
    return name.endswith(LOG_SUFFIX + SWAP_SUFFIX)


def _finish_deletion(files: Files, directory: Path, names: Sequence[str]) -> None:
    """Segments are deleted oldest first, but names may reach the disk in any order."""
    deleted = offsets_of(names, LOG_SUFFIX + DELETED_SUFFIX)
    if deleted:
        offsets = offsets_of(names, LOG_SUFFIX)
        if not offsets or offsets[-1] <= deleted[-1]:
            _begin_behind(files, directory, deleted[-1])
        for offset in offsets:
            if offset <= deleted[-1]:
                unlink_segment(files, directory, offset)
        files.sync_directory(directory)
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            files.unlink(directory / name)


def _begin_behind(files: Files, directory: Path, base_offset: int) -> None:
    """The segment that followed the deleted ones was lost; its offsets must not be assigned again."""
    stem = file_stem(base_offset)
    file = files.open(directory / (stem + LOG_SUFFIX + DELETED_SUFFIX), "read")
    try:
        end = scan(file, size=file.size(), expected_offset=base_offset)
    finally:
        file.close()
    if end.next_offset > base_offset:
        files.open(directory / (file_stem(end.next_offset) + LOG_SUFFIX), "create").close()


def unlink_segment(files: Files, directory: Path, base_offset: int, suffix: str = "") -> None:
    for kind in SEGMENT_SUFFIXES:
        unlink_if_there(files, directory / (file_stem(base_offset) + kind + suffix))


def unlink_if_there(files: Files, path: Path) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return
