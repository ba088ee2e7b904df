# SPDX-License-Identifier: Apache-2.0
"""Formats and parses durations and moments. Pure."""

from __future__ import annotations

import re
from datetime import datetime

import typer

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIMPLE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_ISO = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", flags=re.IGNORECASE
)


def human_ms(duration_ms: int) -> str:
    """At most two units, like `2 h 5 min`."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(duration_ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def seconds_text(duration_ms: int) -> str:
    """Seconds with three decimals, for programs."""
    return f"{duration_ms / 1000:.3f}"


def parse_duration_ms(text: str, option: str) -> int:
    """`15m`, `2.5s`, `300ms`, or ISO 8601 as in Kafka's tools: `PT1H30M`, `P2D`."""
    simple = _SIMPLE.fullmatch(text)
    if simple:
        return round(float(simple[1]) * _UNITS_MS[simple[2]])
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groupdict().values()):
        return round(sum(float(value) * _UNITS_MS[unit] for unit, value in iso.groupdict().items() if value))
    raise typer.BadParameter(f"{text!r} is not a duration: use 30s, 15m, 2h or PT1H30M", param_hint=option)


def parse_moment_ms(text: str, option: str) -> int:
    """Parse a date and time; without a time zone it is local time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a date and time: use 2026-01-31T12:00:00Z", param_hint=option
        ) from None
    return int(moment.astimezone().timestamp() * 1000)
