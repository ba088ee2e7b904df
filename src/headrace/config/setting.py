# SPDX-License-Identifier: Apache-2.0
"""One setting: its name, its type, what it allows, and how its text is read and written.

Knows no file, no environment and no setting: the tables are node_settings.py and topic_settings.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from headrace.errors import ConfigError
from headrace.secret import HIDDEN, Secret

Kind = Literal["int", "long", "short", "string", "list", "boolean", "double", "password"]
Scope = Literal["node", "topic", "group"]

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MIB = 1024 * 1024

_WHOLE_NUMBER_BITS: dict[str, int] = {"short": 16, "int": 32, "long": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A rule for values: `problem` gives the sentence that refuses a value, or None."""

    text: str
    problem: Callable[[Any], str | None]


def at_least(minimum: int) -> Allowed:
    return Allowed(
        text=f"at least {minimum}",
        problem=lambda value: None if value >= minimum else f"Value must be at least {minimum}",
    )


def between(minimum: float, maximum: float) -> Allowed:
    def problem(value: float) -> str | None:
        if value < minimum:
            return f"Value must be at least {minimum}"
        return f"Value must be no more than {maximum}" if value > maximum else None

    return Allowed(text=f"{minimum} to {maximum}", problem=problem)


def one_of(*values: str) -> Allowed:
    choice = ", ".join(values)
    return Allowed(
        text=choice,
        problem=lambda value: None if value in values else f"String must be one of: {choice}",
    )


def some_of(*values: str) -> Allowed:
    """A list without repetition, taken from these values."""
    choice = ", ".join(values)

    def problem(items: tuple[str, ...]) -> str | None:
        for item in items:
            if item not in values:
                return f"String must be one of: {choice}"
            if items.count(item) > 1:
                return f"{item} is named twice"
        return None

    return Allowed(text=f"list of {choice}", problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A node setting that gives a topic setting its default; `factor` turns its unit into milliseconds."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    doc: str
    scope: Scope
    validator: Allowed | None = None
    dynamic: bool = False
    """Whether it can be altered while the node runs."""
    aliases: tuple[str, ...] = ()
    """Other names under which a file or the environment may set it."""
    synonyms: tuple[Synonym, ...] = field(default=())
    """Topic settings only: the node settings behind it, the strongest first."""
    per_listener: bool = False
    """Node settings only: whether `listener.name.<listener>.<setting>` sets it for one listener."""
    default_alone: Any = None
    """Node settings only: the default of a node that runs alone, where it differs."""
    effective: bool = True
    """False: accepted because clients and tools set it, without effect here; the doc says why."""

    @property
    def node_name(self) -> str | None:
        """The node setting that an operator changes to change the default of every topic."""
        return self.synonyms[0].name if self.synonyms else None

    def parse(self, text: str) -> Any:
        """The typed value; of a password a Secret. ConfigError says what is wrong in Kafka's words."""
        value = self._typed(text.strip())
        problem = None if self.validator is None else self.validator.problem(value)
        if problem is not None:
            raise self._invalid(text, problem)
        return Secret(value) if self.kind == "password" else value

    def format(self, value: Any) -> str | None:
        """The text that Kafka's tools print, `***` for a secret; None: the setting is not set."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _typed(self, text: str) -> Any:
        match self.kind:
            case "boolean":
                return self._boolean(text)
            case "double":
                return self._double(text)
            case "list":
                return tuple(item.strip() for item in text.split(",")) if text else ()
            case "string" | "password":
                return text
            case _:
                return self._whole_number(text)

    def _boolean(self, text: str) -> bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise self._invalid(text, "Expected value to be either true or false")

    def _double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            raise self._invalid(text, "Not a number of type DOUBLE")
        return value

    def _whole_number(self, text: str) -> int:
        limit = 1 << (_WHOLE_NUMBER_BITS[self.kind] - 1)
        digits = text.removeprefix("-").removeprefix("+")
        # int() also takes 1_000, blanks and digits of other scripts, which no other Kafka tool does.
        if digits.isascii() and digits.isdigit() and len(digits) <= 20 and -limit <= int(text) < limit:
            return int(text)
        raise self._invalid(text, f"Not a number of type {self.kind.upper()}")

    def shown(self, text: str) -> str:
        """The text for messages: secrets are never printed (S8)."""
        return HIDDEN if self.kind == "password" else repr(text)

    def _invalid(self, text: str, problem: str) -> ConfigError:
        shown = HIDDEN if self.kind == "password" else text
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {problem}")


def node_setting(
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    validator: Allowed | None = None,
    *,
    dynamic: bool = False,
    aliases: tuple[str, ...] = (),
    per_listener: bool = False,
    default_alone: Any = None,
    effective: bool = True,
) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        scope="node",
        validator=validator,
        dynamic=dynamic,
        aliases=aliases,
        per_listener=per_listener,
        default_alone=default_alone,
        effective=effective,
    )


listener_setting = partial(node_setting, per_listener=True)
"""A node setting that may be set for one listener alone."""
