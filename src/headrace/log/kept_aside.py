# SPDX-License-Identifier: Apache-2.0
"""What is kept aside of damage, by its names: for metrics, and for `headrace log kept`. No node reads it.

NAME.damaged-N      a damaged file, beside the one in its place or in the data directory
….TIME-stray        a log that was damaged, or belonged to no known topic
….TIME-kept         a log that a restored coordination store does not have
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from headrace.log.directory_names import KEPT_SUFFIX, STRAY_SUFFIX, partition_in
from headrace.world import Files

_DAMAGED = re.compile(r"(?:[0-9]{20}\.log|[a-z-]+-checkpoint)\.damaged-[1-9][0-9]*")
_ASIDE = re.compile(rf".+\.[0-9]+(?:{STRAY_SUFFIX}|{KEPT_SUFFIX})")


class KeptAside(NamedTuple):
    path: Path
    size_bytes: int
    is_log: bool
    """A whole directory."""


def places(files: Files, directory: Path) -> list[Path]:
    """Where to look: a data directory, and the logs in it. Blocking."""
    logs = [directory / name for name in files.listdir(directory) if partition_in(name)]
    return [directory, *logs]


def kept_in(files: Files, directories: Iterable[Path]) -> list[KeptAside]:
    """Of directories that are there, without what is deeper in them. Blocking."""
    found = []
    for directory in directories:
        try:
            names = files.listdir(directory)
        except OSError:
            continue  # its topic was deleted
        for name in names:
            path = directory / name
            if _DAMAGED.fullmatch(name):
                found.append(KeptAside(path, _size(files, path), is_log=False))
            elif _ASIDE.fullmatch(name):
                found.append(KeptAside(path, _size_of_log(files, path), is_log=True))
    return found


def _size_of_log(files: Files, path: Path) -> int:
    try:
        return sum(_size(files, path / name) for name in files.listdir(path))
    except OSError:
        return 0


def _size(files: Files, path: Path) -> int:
    """0 for what was removed meanwhile, or is no file."""
    try:
        file = files.open(path, "read")
    except OSError:
        return 0
    try:
        return file.size()
    finally:
        file.close()
