# SPDX-License-Identifier: Apache-2.0
"""Values of the views as short texts for a terminal. Pure. Read next: tables.py."""

from __future__ import annotations

import math
from datetime import datetime

UNKNOWN = "-"
_TREND_WORDS = {"growing": "↑ growing", "shrinking": "↓ shrinking", "steady": "= steady", "none": "no lag"}


def printable(value: object) -> str:
    """Names come from strangers: characters that could control the terminal are escaped."""
    if value is None or value == "":
        return UNKNOWN
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def rate(per_second: float | None) -> str:
    if per_second is None:
        return UNKNOWN
    return f"{per_second:,.1f}" if 0 < per_second < 100 else f"{per_second:,.0f}"


def size(number: float | None) -> str:
    if number is None:
        return UNKNOWN
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(milliseconds: float | None) -> str:
    """At most two units, like `2 h 5 min`."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def moment(at_ms: float | None) -> str:
    """Local time, with the date only where it is another day."""
    if at_ms is None:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(at_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return UNKNOWN
    today = datetime.now().astimezone().date() == at.date()
    return at.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M")


def trend(word: str | None) -> str:
    return _TREND_WORDS.get(word or "", UNKNOWN)


def at_least(value: tuple[float, bool] | None) -> str:
    """A duration that may be longer: `>5.0 s`."""
    return UNKNOWN if value is None else f"{'>' if value[1] else ''}{duration(value[0])}"


def clear_in(milliseconds: float | None) -> str:
    """Infinite: the lag grows."""
    return "never" if milliseconds == math.inf else duration(milliseconds)


def leader(node: int | None) -> str:
    return "none" if node is None else str(node)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def partition_name(topic: object, partition: object) -> str:
    return f"{printable(topic)}-{partition}"
