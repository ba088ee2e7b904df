# SPDX-License-Identifier: Apache-2.0
"""Names that log directories get when they are deleted or set aside; long ones are shortened to fit.

Independent of files. Read next: broker/partition/log_removals.py, which finds them at the start.
"""

from __future__ import annotations

MAX_NAME_BYTES = 255
"""Of every file system that matters; topic names are ASCII."""
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
KEPT_SUFFIX = "-kept"
STRAY_MARK = "~"
"""In a stray's name that was shortened: its topic cannot be read from it any more."""


def deleted_name(name: str, unique: str) -> str:
    """`name` is TOPIC-PARTITION, `unique` what other topics of that name have not."""
    return _fitted(name, f".{unique}{DELETED_SUFFIX}", "")


def stray_name(name: str, stamp: int) -> str:
    return _fitted(name, f".{stamp}{STRAY_SUFFIX}", STRAY_MARK)


def kept_name(name: str, stamp: int) -> str:
    """Of a log that a restored coordination store does not have; no start removes it."""
    return _fitted(name, f".{stamp}{KEPT_SUFFIX}", STRAY_MARK)


def _fitted(name: str, suffix: str, mark: str) -> str:
    """The name and its suffix; where they are too long, with less of the topic."""
    if len(name) + len(suffix) <= MAX_NAME_BYTES:
        return name + suffix
    topic, dash, partition = name.rpartition("-")
    rest = mark + dash + partition + suffix
    return topic[: MAX_NAME_BYTES - len(rest)] + rest
