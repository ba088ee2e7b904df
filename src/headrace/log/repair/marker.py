# SPDX-License-Identifier: Apache-2.0
"""A file in the directory of a log that is being repaired: a start must not take the log for sound.

Earlier versions ignore it. Read next: replacement.py.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import CorruptLogError
from headrace.log.leftovers import unlink_if_there
from headrace.world import Files, read_file, replace_file

FILE_NAME = "headrace-damaged-segment"


def write(files: Files, directory: Path, base_offset: int) -> None:
    replace_file(files, directory / FILE_NAME, b"%d\n" % base_offset)


def clear(files: Files, directory: Path) -> None:
    unlink_if_there(files, directory / FILE_NAME)
    files.sync_directory(directory)


def check(files: Files, directory: Path) -> None:
    """Raises CorruptLogError while the log is not repaired, naming the segment where the file does."""
    path = directory / FILE_NAME
    if not files.exists(path):
        return
    text = read_file(files, path).strip()
    error = CorruptLogError(f"{directory}: a damaged segment was not repaired yet ({FILE_NAME})")
    error.base_offset = int(text) if text.isdigit() else None
    raise error
