# SPDX-License-Identifier: Apache-2.0
"""Durations in words, for sentences."""

from __future__ import annotations


def duration(milliseconds: float) -> str:
    """17 ms, 2.5 s, 3 min, 5 h."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
