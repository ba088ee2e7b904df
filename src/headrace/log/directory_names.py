# SPDX-License-Identifier: Apache-2.0
"""Names of log directories, and those they get when they are deleted or set aside; long ones are shortened.

Independent of files. Read next: broker/partition/log_removals.py, which finds them at the start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_NAME_BYTES = 255
"""Of every file system that matters; topic names are ASCII."""
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
KEPT_SUFFIX = "-kept"
STRAY_MARK = "~"
"""In a stray's name that was shortened: its topic cannot be read from it any more."""

_PARTITION = r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})"
_LIVE = re.compile(_PARTITION)
_KEPT = re.compile(rf".+-(0|[1-9][0-9]{{0,9}})(\.[0-9]+{STRAY_SUFFIX})?\.([0-9]+){KEPT_SUFFIX}")
_LIVE_OR_STRAY = re.compile(_PARTITION + rf"(?:\.[0-9]+{STRAY_SUFFIX})?")


def partition_in(name: str, *, strays: bool = False) -> tuple[str, int] | None:
    """Topic and partition of a log's directory; None for any other name. `strays`: also those set aside."""
    match = (_LIVE_OR_STRAY if strays else _LIVE).fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def deleted_name(name: str, unique: str) -> str:
    """`name` is TOPIC-PARTITION, `unique` what other topics of that name have not."""
    return _fitted(name, f".{unique}{DELETED_SUFFIX}", "")


def stray_name(name: str, stamp: int) -> str:
    return _fitted(name, f".{stamp}{STRAY_SUFFIX}", STRAY_MARK)


def kept_name(name: str, stamp: int) -> str:
    """Of a log that a restored coordination store does not have; no start removes it."""
    return _fitted(name, f".{stamp}{KEPT_SUFFIX}", STRAY_MARK)


class KeptLog(NamedTuple):
    """What its directory's name says. Its topic cannot be read from a shortened one."""

    partition: int
    was_stray: bool
    stamp: int


def kept_log(name: str) -> KeptLog | None:
    """None for any other name."""
    match = _KEPT.fullmatch(name)
    return None if match is None else KeptLog(int(match[1]), match[2] is not None, int(match[3]))


def _fitted(name: str, suffix: str, mark: str) -> str:
    """The name and its suffix; where they are too long, with less of the topic."""
    if len(name) + len(suffix) <= MAX_NAME_BYTES:
        return name + suffix
    topic, dash, partition = name.rpartition("-")
    rest = mark + dash + partition + suffix
    return topic[: MAX_NAME_BYTES - len(rest)] + rest
