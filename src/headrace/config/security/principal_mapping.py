# SPDX-License-Identifier: Apache-2.0
"""Kafka's `ssl.principal.mapping.rules`: from the distinguished name of a certificate to a user name.

Pure. Rules are tried in order; the first that matches the whole name decides. Read next: tls_settings.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import ConfigError

_TEXT = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_TEXT})/(?P<text>{_TEXT})/(?P<case>[LU]?))[^\S\n]*"
)
_SEPARATOR = re.compile(r"[,\n]\s*")
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingRule:
    """Java's `replaceAll` on names that match as a whole; `pattern` None: the name as it is (DEFAULT)."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._expand, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expand(self, match: re.Match[str]) -> str:
        """`$1` is a group, `\\x` is x; a `$` and a number that no group has are literal, as in Kafka."""

        def insert(reference: re.Match[str]) -> str:
            literal, number = reference.groups()
            if literal is not None:
                return str(literal)
            if int(number) > match.re.groups:
                return reference[0]
            return match[int(number)] or ""

        return _REFERENCE.sub(insert, self.replacement)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Raises ConfigError."""
    return tuple(_rules(text.strip() or "DEFAULT"))


def map_name(rules: tuple[MappingRule, ...], name: str) -> str | None:
    """The user name; None when no rule matches."""
    for rule in rules:
        if (found := rule.apply(name)) is not None:
            return found
    return None


def rules_problem(text: str) -> str | None:
    try:
        parse_rules(text)
    except ConfigError as error:
        return str(error)
    return None


def _rules(text: str) -> Iterator[MappingRule]:
    position = 0
    while True:
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"{text[position:]!r} is not a rule; write RULE:pattern/replacement/, perhaps with L or U "
                "behind it, or DEFAULT, and a comma between two"
            )
        yield _rule(match)
        if match.end() == len(text):
            return
        separator = _SEPARATOR.match(text, match.end())
        if separator is None:
            raise ConfigError(f"a comma is missing before {text[match.end() :]!r}")
        position = separator.end()


def _rule(match: re.Match[str]) -> MappingRule:
    if match["default"] is not None:
        return MappingRule(pattern=None)
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise ConfigError(f"{match['pattern']!r} is not a regular expression: {error}") from None
    return MappingRule(pattern=pattern, replacement=match["text"], case=match["case"])
