# SPDX-License-Identifier: Apache-2.0
"""`--cores`: a number, or `auto`, one for each processor that this process may use.

Read next: plan.py.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from headrace.errors import ArgumentError

AUTO = "auto"
MOST = 99
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def parse_cores(text: str) -> int:
    """Raises ArgumentError for anything but `auto` and a number from 1 on."""
    if text == AUTO:
        return min(usable_processors(), MOST)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST):
        raise ArgumentError(f"--cores {text}: give a number from 1 to {MOST}, or {AUTO} for one per core")
    return int(text)


def usable_processors(quota_file: Path = _QUOTA) -> int:
    """Those that the process may run on, and no more than the time that its container is given."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        processors = os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text().split()
        return max(1, min(processors, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup of version 2, or the quota `max`
        return processors
