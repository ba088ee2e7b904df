# SPDX-License-Identifier: Apache-2.0
"""Typed access to Spark options: resolves case and aliases, checks values, names the option in every error.

Pure; independent of what the options mean. Read next: options.py.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from headrace.client.errors import ClientError

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TRUTHS = {"true": True, "false": False}


class OptionValues:
    """The options of one read or write under their canonical names."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        names: Collection[str],
        aliases: Mapping[str, str],
        ignored: Collection[str] = (),
    ) -> None:
        """Spark passes names in lower case; `aliases` and `ignored` are in lower case too."""
        known = {name.lower(): name for name in names}
        self._values: dict[str, tuple[str, str]] = {}
        for written, value in options.items():
            lower = written.lower()
            if lower in ignored:
                continue
            name = known.get(aliases.get(lower, lower).lower())
            if name is None:
                raise _unknown(written, [*names, *aliases])
            if name in self._values and self._values[name][1] != value:
                raise ClientError(
                    f"options {self._values[name][0]!r} and {written!r} mean the same but differ",
                    next_step="set only one of them",
                )
            self._values[name] = (written, value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._values[name][1].strip() if name in self._values else default

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise self.wrong(name, f"use one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in _TRUTHS:
            raise self.wrong(name, "use true or false")
        return _TRUTHS[value.lower()]

    def integer(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if re.fullmatch(r"[+-]?\d+", value) is None or int(value) < least:
            raise self.wrong(name, f"use a whole number of at least {least}")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value)
        if match is None:
            raise self.wrong(name, "write it like 500ms, 30s or 15m")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]

    def names(self, name: str) -> tuple[str, ...] | None:
        """A comma-separated list."""
        value = self.text(name)
        if value is None:
            return None
        found = tuple(part.strip() for part in value.split(",") if part.strip())
        if not found:
            raise self.wrong(name, "name at least one")
        return found

    def numbers_by_partition(self, name: str) -> Mapping[str, Mapping[int, int]]:
        """`{"orders": {"0": 23, "1": -2}}`"""
        document = self._json(name)
        try:
            return {
                str(topic): {int(partition): _whole(number) for partition, number in entry.items()}
                for topic, entry in document.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise self.wrong(name, 'write it like {"orders": {"0": 23, "1": -2}}') from None

    def partitions(self, name: str) -> Mapping[str, tuple[int, ...]]:
        """`{"orders": [0, 1]}`"""
        document = self._json(name)
        try:
            return {
                str(topic): tuple(sorted({_whole(number) for number in entry}))
                for topic, entry in document.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise self.wrong(name, 'write it like {"orders": [0, 1]}') from None

    def texts_by_name(self, name: str) -> Mapping[str, str]:
        """`{"orders": "3fX…"}`; empty when it is not set."""
        document = self._json(name) if name in self._values else {}
        if not isinstance(document, dict) or not all(isinstance(text, str) for text in document.values()):
            raise self.wrong(name, 'write it like {"orders": "…"}')
        return document

    def wrong(self, name: str, next_step: str) -> ClientError:
        written, value = self._values[name]
        return ClientError(f"option {written!r} cannot be {value!r}", next_step=next_step)

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self._values[name][1])
        except json.JSONDecodeError as error:
            raise self.wrong(name, f"it is not valid JSON ({error})") from None


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise ValueError(number)
    return number


def _unknown(written: str, names: Collection[str]) -> ClientError:
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(written.lower(), by_lower, n=1)
    return ClientError(
        f"there is no option {written!r}",
        next_step=f"did you mean {by_lower[near[0]]!r}?" if near else "docs/pipelines.md lists the options",
    )
