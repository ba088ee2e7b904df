# SPDX-License-Identifier: Apache-2.0
"""Typed access to values from a file or a command line; errors name the key.

Pure; independent of pipelines. Read next: definition.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.client.errors import ClientError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|(?:milli)?seconds?|minutes?|hours?|days?)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", flags=re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Keys:
    """`display_name` formats a key as the user wrote it: `--max-rows`, or `[store.orders] max_rows`."""

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        known: Collection[str],
        where: str,
        display_name: Callable[[str], str],
    ) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}
        self.where = where
        self._display_name = display_name
        for name in self._values:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                raise self.wrong(
                    name,
                    "there is no such key",
                    f"did you mean {close[0]}?" if close else f"choose from {', '.join(sorted(known))}",
                )

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def wrong(self, name: str, what: str, next_step: str | None = None) -> ClientError:
        return ClientError(f"{self.where}{self._display_name(name)}: {what}", next_step=next_step)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(name, f"{value!r} is no text")
        return value.strip()

    def needed(self, name: str, example: str) -> str:
        found = self.text(name)
        if found is None:
            raise self.wrong(name, "it is missing", f"for example {example}")
        return found

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        found = self.text(name) or default
        if found not in choices:
            raise self.wrong(name, f"{found!r} is not one of {', '.join(choices)}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, or one string; on a command line a repeated option."""
        value = self._values.get(name, ())
        found = (value,) if isinstance(value, str) else value
        if not isinstance(found, list | tuple) or not all(isinstance(each, str) and each for each in found):
            raise self.wrong(name, f"{value!r} is not a list of strings")
        return tuple(each.strip() for each in found)

    def names(self, name: str) -> tuple[str, ...]:
        """Like `texts`, also split at commas."""
        return tuple(part.strip() for text in self.texts(name) for part in text.split(",") if part.strip())

    def number(self, name: str, *, least: int = 1) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not int or value < least:
            raise self.wrong(name, f"{value!r} is not a whole number of at least {least}")
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        value = self._values.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "it is not a table of names and values")  # it may hold a password (S8)
        return value

    def duration_ms(self, name: str, *, least_ms: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = parse_ms(text)
        if found is None or found < least_ms:
            raise self.wrong(name, f"{text!r} is not a duration", "use 500ms, 30s, 15m, 2h or 1d")
        return found

    def size(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = parse_size(text)
        if found is None:
            raise self.wrong(name, f"{text!r} is not a size", "use 64m or 1g")
        return found


def parse_ms(text: str) -> int | None:
    """`30s`, `2.5m`, `10 minutes`; None if it is not a duration."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    unit = match[2] if match[2] in _UNITS_MS else match[2][0]
    unit = "ms" if match[2].startswith("milli") else unit
    return round(float(match[1]) * _UNITS_MS[unit])


def parse_size(text: str) -> int | None:
    """Parse `128m`, `64 MiB`, `1048576` to bytes; None if it is not a size or is 0."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _SIZE_UNITS[match[2].lower()] or None if match else None
