# SPDX-License-Identifier: Apache-2.0
"""The files of a segment: their names, and reading and writing those that can be made again.

Independent of their content. Read next: segment.py.
"""

from __future__ import annotations

import errno
from pathlib import Path

from headrace.world import Files, read_file, write_all

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A full disk or an exhausted quota: no fault of the disk, and over when room returns."""


def file_stem(base_offset: int) -> str:
    """Kafka's file name: the offset in twenty digits, so that names sort like offsets."""
    return f"{base_offset:020d}"


def is_cached(files: Files, path: Path) -> bool:
    """Whether reading it would not wait for the disk; nor does it where there is no such file."""
    try:
        file = files.open(path, "read")
    except FileNotFoundError:
        return True
    try:
        return not (size := file.size()) or file.cached(size, 0)
    finally:
        file.close()


def read_or_none(files: Files, path: Path) -> bytes | None:
    try:
        return read_file(files, path)
    except FileNotFoundError:
        return None


def mark_unknown(files: Files, path: Path, size: int) -> None:
    """Gives the file a length that no sound one has, durably. Needs no room on the disk."""
    file = files.open(path, "create")
    try:
        file.truncate(size)
        file.fsync()
    finally:
        file.close()


def write_cache_file(files: Files, path: Path, data: bytes) -> None:
    """Without fsync, since it can be made again; the next flush makes it durable."""
    file = files.open(path, "create")
    try:
        file.truncate(0)
        write_all(file, data, 0)
    finally:
        file.close()
