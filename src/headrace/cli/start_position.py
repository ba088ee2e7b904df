# SPDX-License-Identifier: Apache-2.0
"""Parses `--from`, the same for all commands, and resolves it to starting offsets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from headrace.cli.durations import parse_duration_ms, parse_moment_ms
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.tools.admin import Admin

FORMS = (
    "beginning, end, an offset, -10 (the last ten of each partition), 15m (ago), 2026-01-31T12:00:00Z, "
    "or @MILLISECONDS"
)
_KAFKAS_WORDS = {"earliest": "beginning", "latest": "end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    kind: Literal["beginning", "end", "offset", "last", "time"]
    value: int = 0


def parse_start(text: str, now_ms: int) -> Start:
    """Parse beginning, end, an offset, -N (the last N per partition), a time, or a duration ago."""
    if plain_word(text) == "beginning":
        return Start(kind="beginning")
    if plain_word(text) == "end":
        return Start(kind="end")
    if re.fullmatch(r"\d+", text):
        return Start(kind="offset", value=int(text))
    if re.fullmatch(r"-\d+", text):
        return Start(kind="last", value=-int(text))
    if text.startswith("@") and text[1:].isdecimal():
        return Start(kind="time", value=int(text[1:]))
    moment_ms = _moment_ms(text, now_ms)
    if moment_ms is None:
        raise typer.BadParameter(f"{text!r} is not valid; use {FORMS}", param_hint="--from")
    return Start(kind="time", value=moment_ms)


def _moment_ms(text: str, now_ms: int) -> int | None:
    """A duration ago, or a date and time; None when it is neither."""
    with contextlib.suppress(typer.BadParameter):
        return now_ms - parse_duration_ms(text, "--from")
    with contextlib.suppress(typer.BadParameter):
        return parse_moment_ms(text, "--from")
    return None


def plain_word(text: str) -> str:
    """beginning and end for Kafka's earliest and latest; other texts as they are."""
    return _KAFKAS_WORDS.get(text, text)


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
