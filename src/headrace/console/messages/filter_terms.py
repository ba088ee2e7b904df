# SPDX-License-Identifier: Apache-2.0
"""What the terms of a filter mean: each says whether it matches a record. Pure, without regular expressions
that can take long: a pattern knows `*` and `?` only, and runs in linear time.

A field that is not there is equal to nothing: only `!=`, `!~` and `not` match. Text of keys, headers and
plain values is compared with a number as a number where it is one. Read next: filter_parser.py, readable.py.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

Literal = str | int | float | bool | None


class _Missing:
    """No such field."""


MISSING = _Missing()


class Fields(Protocol):
    """A record as filters see it: `readable.py`."""

    def find(self, path: Path) -> Any:
        """The value there; a `PlainText` for bytes that are text only; MISSING."""
        ...


class PlainText(str):
    """Text without a type: `"42"` of a header may be meant as a number."""


class Term(Protocol):
    def matches(self, fields: Fields) -> bool: ...


@dataclass(frozen=True, slots=True)
class Path:
    root: str
    steps: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        return self.root + "".join(
            f"[{step}]" if isinstance(step, int) else f"[{json.dumps(step)}]" for step in self.steps
        )


@dataclass(frozen=True, slots=True)
class All:
    terms: tuple[Term, ...]

    def matches(self, fields: Fields) -> bool:
        return all(term.matches(fields) for term in self.terms)

    def __str__(self) -> str:
        return "(" + " and ".join(map(str, self.terms)) + ")"


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801  # `Any` is taken
    terms: tuple[Term, ...]

    def matches(self, fields: Fields) -> bool:
        return any(term.matches(fields) for term in self.terms)

    def __str__(self) -> str:
        return "(" + " or ".join(map(str, self.terms)) + ")"


@dataclass(frozen=True, slots=True)
class Not:
    term: Term

    def matches(self, fields: Fields) -> bool:
        return not self.term.matches(fields)

    def __str__(self) -> str:
        return f"not {self.term}"


@dataclass(frozen=True, slots=True)
class Exists:
    path: Path

    def matches(self, fields: Fields) -> bool:
        return fields.find(self.path) is not MISSING

    def __str__(self) -> str:
        return f"{self.path} exists"


@dataclass(frozen=True, slots=True)
class In:
    path: Path
    literals: tuple[Literal, ...]

    def matches(self, fields: Fields) -> bool:
        found = fields.find(self.path)
        return any(_equal(self.path, found, literal) for literal in self.literals)

    def __str__(self) -> str:
        return f"{self.path} in ({', '.join(map(json.dumps, self.literals))})"


@dataclass(frozen=True, slots=True)
class Compare:
    path: Path
    sign: str
    literal: Literal

    def matches(self, fields: Fields) -> bool:
        found = fields.find(self.path)
        if self.sign == "==":
            return _equal(self.path, found, self.literal)
        if self.sign == "!=":
            return not _equal(self.path, found, self.literal)
        if self.sign == "contains":
            return _contains(found, self.literal)
        return _ordered(self.path, self.sign, found, self.literal)

    def __str__(self) -> str:
        return f"{self.path} {self.sign} {json.dumps(self.literal)}"


@dataclass(frozen=True, slots=True)
class Text:
    """`starts with` and `ends with`."""

    path: Path
    word: str
    text: str

    def matches(self, fields: Fields) -> bool:
        found = fields.find(self.path)
        if not isinstance(found, str):
            return False
        return found.startswith(self.text) if self.word == "starts" else found.endswith(self.text)

    def __str__(self) -> str:
        return f"{self.path} {self.word} with {json.dumps(self.text)}"


@dataclass(frozen=True, slots=True)
class Matches:
    path: Path
    pattern: str
    expression: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _compiled(self.pattern))

    def matches(self, fields: Fields) -> bool:
        text = as_text(fields.find(self.path))
        if text is None:
            return False
        data = text.encode(errors="replace")
        return self.expression.fullmatch(data) is not None

    def __str__(self) -> str:
        return f"{self.path} ~ {json.dumps(self.pattern)}"


def as_text(found: Any) -> str | None:
    """How a value is compared with a pattern; None: it has no text."""
    if isinstance(found, str):
        return found
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int | float):
        return str(found) if not isinstance(found, int) or abs(found) < 1 << 256 else None
    return None


def _compiled(pattern: str) -> Any:
    import re2  # linear time for every text

    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    parts = {"*": ".*", "?": "."}
    text = "".join(parts.get(letter) or re2.escape(letter) for letter in pattern)
    return re2.compile(text.encode(errors="replace"), options=options)


def _equal(path: Path, found: Any, literal: Literal) -> bool:
    if found is MISSING:
        return False
    if found is None or literal is None:
        return found is literal
    if isinstance(literal, bool):
        return found is literal or (
            isinstance(found, PlainText) and found == ("true" if literal else "false")
        )
    pair = _comparable(path, found, literal)
    return pair is not None and bool(pair[0] == pair[1])


_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _ordered(path: Path, sign: str, found: Any, literal: Literal) -> bool:
    pair = _comparable(path, found, literal)
    return pair is not None and _SIGNS[sign](*pair)


def _comparable(path: Path, found: Any, literal: Literal) -> tuple[Any, Any] | None:
    """Both as numbers or both as texts; None where they are of different kinds."""
    if path.root == "timestamp" and isinstance(literal, str):
        moment = moment_ms(literal)
        return None if moment is None or found is None else (found, moment)
    if _is_number(literal):
        number = _as_number(found)
        return None if number is None else (number, literal)
    return (found, literal) if isinstance(found, str) and isinstance(literal, str) else None


def _contains(found: Any, literal: Literal) -> bool:
    if isinstance(found, str):
        return (literal if isinstance(literal, str) else json.dumps(literal)) in found
    if isinstance(found, list):
        return any(_same(each, literal) for each in found)
    return isinstance(found, dict) and isinstance(literal, str) and literal in found


def _same(one: Any, other: Any) -> bool:
    kinds_fit = type(one) is type(other) or (_is_number(one) and _is_number(other))
    return kinds_fit and bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_number(found: Any) -> int | float | None:
    if _is_number(found):
        return None if isinstance(found, float) and math.isnan(found) else found
    if not isinstance(found, PlainText) or not 0 < len(found) <= 40:
        return None
    try:
        return int(found) if found.lstrip("-").isdecimal() else float(found)
    except ValueError:
        return None


def moment_ms(text: str) -> int | None:
    """Milliseconds of a date and time in ISO 8601; without a time zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
