# SPDX-License-Identifier: Apache-2.0
"""Durations as tests write them: "10m", 2.5, timedelta(days=7)."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(duration: str | float | timedelta) -> float:
    """A plain number counts seconds. Raises ValueError."""
    if isinstance(duration, timedelta):
        found = duration.total_seconds()
    elif isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        if match is None:
            raise ValueError(f"{duration!r} is not a duration: write 300ms, 30s, 15m, 2h or 7d")
        found = float(match[1]) * _UNITS_S[match[2]]
    else:
        found = float(duration)
    if found < 0:
        raise ValueError(f"time does not go backwards: {duration!r}")
    return found
