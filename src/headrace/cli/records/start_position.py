"""Parses `consume --from` and resolves it to starting offsets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.tools.admin import Admin

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"(\d+)(ms|s|m|h|d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    kind: Literal["beginning", "end", "offset", "last", "time"]
    value: int = 0


def parse_start(text: str, now_ms: int) -> Start:
    """Parse beginning, end, an offset, -N (the last N per partition), a time, or a duration ago."""
    if text in ("beginning", "end"):
        return Start(kind="beginning" if text == "beginning" else "end")
    if re.fullmatch(r"\d+", text):
        return Start(kind="offset", value=int(text))
    if re.fullmatch(r"-\d+", text):
        return Start(kind="last", value=-int(text))
    ago = _AGO.fullmatch(text)
    if ago:
        return Start(kind="time", value=now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    if text.startswith("@") and text[1:].isdecimal():
        return Start(kind="time", value=int(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ClientError(
            f"--from {text!r} is not valid",
            next_step="use beginning, end, an offset, -10 (the last ten), 15m (ago), 2026-01-31T12:00:00Z "
            "or @MILLISECONDS",
        ) from None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return Start(kind="time", value=int(moment.astimezone(UTC).timestamp() * 1000))


def find_starts(admin: Admin, topic: str, partitions: Sequence[int], start: Start) -> dict[int, int]:
    """The starting offset by partition."""
    if start.kind == "time":
        return admin.offsets(topic, partitions, start.value)
    if start.kind == "beginning":
        return admin.offsets(topic, partitions, "earliest")
    ends = admin.offsets(topic, partitions, "latest")
    if start.kind == "end":
        return ends
    begins = admin.offsets(topic, partitions, "earliest")
    if start.kind == "last":
        return {index: max(begins[index], ends[index] - start.value) for index in partitions}
    if not any(begins[index] <= start.value <= ends[index] for index in partitions):
        held = ", ".join(f"{begins[index]} to {ends[index]} in partition {index}" for index in partitions)
        raise ClientError(
            f"topic {topic!r} has no offset {start.value}: its offsets are {held}",
            code="OFFSET_OUT_OF_RANGE",
        )
    return {index: min(max(start.value, begins[index]), ends[index]) for index in partitions}
