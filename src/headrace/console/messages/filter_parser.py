# SPDX-License-Identifier: Apache-2.0
"""Parses a filter of records: `value.user.id == 42 and key ~ "ab*"`. Pure; nothing is evaluated as code.

    filter     = and-term {"or" and-term}
    and-term   = not-term {"and" not-term}
    not-term   = "not" not-term | "(" filter ")" | comparison
    comparison = path (operator literal | "in" "(" literal {"," literal} ")" | "exists"
                       | "contains" literal | "starts with" text | "ends with" text)
    operator   = == != < <= > >= ~ !~          (~ takes * and ?, as file names do)
    path       = partition | offset | timestamp | size | key | value | header.NAME
                 key and value go on with .NAME, ["NAME"] and [NUMBER] into JSON or Avro
    literal    = "text" | 'text' | number | true | false | null

Read next: filter_terms.py (what the terms mean).
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from headrace.console.messages.filter_terms import (
    All,
    Any_,
    Compare,
    Exists,
    In,
    Literal,
    Matches,
    Not,
    Path,
    Term,
    Text,
    moment_ms,
)
from headrace.console.views.view import ViewError

LONGEST = 2_000
DEEPEST = 32
MOST_TERMS = 100
_LONGEST_PATTERN = 256

_ROOTS = ("partition", "offset", "timestamp", "size", "key", "value", "header")
_OPERATORS = ("==", "!=", "<=", ">=", "!~", "<", ">", "~", "=")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      |(?P<sign>==|!=|<=|>=|!~|[<>~=()\[\],.]))""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}


class FilterError(ViewError):
    """`position`: where it stopped to make sense, counted from 0."""

    def __init__(self, what: str, position: int) -> None:
        super().__init__(
            f"the filter is not understood at character {position + 1}: {what}",
            next_step='write it like value.user.id == 42 and key ~ "ab*"',
            status=400,
        )
        self.position = position


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_filter(text: str) -> Term:
    """FilterError where it makes no sense."""
    if len(text) > LONGEST:
        raise FilterError(f"it is longer than {LONGEST} characters", LONGEST)
    parser = _Parser(_tokens(text), len(text))
    term = parser.either(0)
    parser.expect_end()
    return term


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise FilterError(_unknown_sign(text[start]), start)
        kind = match.lastgroup
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        position = match.end()
    return tokens


def _unknown_sign(sign: str) -> str:
    return "the text has no closing quote" if sign in "\"'" else f"{sign!r} has no meaning here"


class _Parser:
    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens = tokens
        self._end = end
        self._at = 0
        self._terms = 0

    def either(self, depth: int) -> Term:
        terms = [self._both(depth)]
        while self._take_word("or"):
            terms.append(self._both(depth))
        return terms[0] if len(terms) == 1 else Any_(tuple(terms))

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._error("and, or, or the end is expected")

    def _both(self, depth: int) -> Term:
        terms = [self._negated(depth)]
        while self._take_word("and"):
            terms.append(self._negated(depth))
        return terms[0] if len(terms) == 1 else All(tuple(terms))

    def _negated(self, depth: int) -> Term:
        if depth > DEEPEST:
            raise self._error(f"it is nested deeper than {DEEPEST} levels")
        if self._take_word("not"):
            return Not(self._negated(depth + 1))
        if self._take_sign("("):
            term = self.either(depth + 1)
            self._expect_sign(")")
            return term
        return self._comparison()

    def _comparison(self) -> Term:
        self._terms += 1
        if self._terms > MOST_TERMS:
            raise self._error(f"it has more than {MOST_TERMS} comparisons")
        path = self._path()
        if self._take_word("exists"):
            return Exists(path)
        if self._take_word("in"):
            return In(path, self._list())
        if self._take_word("contains"):
            return Compare(path, "contains", self._literal())
        for word in ("starts", "ends"):
            if self._take_word(word):
                if not self._take_word("with"):
                    raise self._error(f"{word} is followed by with")
                return Text(path, word, self._text())
        for sign in _OPERATORS:
            if self._take_sign(sign):
                return self._compare(path, "==" if sign == "=" else sign)
        raise self._error(f'{path} is followed by a comparison, such as == 42, ~ "ab*" or exists')

    def _compare(self, path: Path, sign: str) -> Term:
        position = self._position()
        if sign not in ("~", "!~"):
            literal = self._literal()
            if path.root == "timestamp" and isinstance(literal, str) and moment_ms(literal) is None:
                raise FilterError('a moment is expected, such as "2026-01-31T12:00:00Z"', position)
            return Compare(path, sign, literal)
        pattern = self._text()
        if len(pattern) > _LONGEST_PATTERN:
            raise FilterError(f"a pattern has at most {_LONGEST_PATTERN} characters", position)
        matches = Matches(path, pattern)
        return Not(matches) if sign == "!~" else matches

    def _path(self) -> Path:
        token = self._next("a name such as value, key, header.NAME, timestamp, offset or partition")
        if token.kind != "name" or token.text not in _ROOTS:
            self._at -= 1
            raise self._error(f"one of {', '.join(_ROOTS)} is expected")
        steps: list[str | int] = []
        while True:
            if self._take_sign("."):
                steps.append(self._name())
            elif self._take_sign("["):
                steps.append(self._index())
                self._expect_sign("]")
            else:
                break
        path = Path(token.text, tuple(steps))
        self._check_steps(path, token)
        return path

    def _check_steps(self, path: Path, token: _Token) -> None:
        if path.root == "header" and (len(path.steps) != 1 or not isinstance(path.steps[0], str)):
            raise FilterError('a header has a name: header.trace or header["trace id"]', token.position)
        if path.steps and path.root not in ("key", "value", "header"):
            raise FilterError(f"{path.root} has no fields", token.position)

    def _name(self) -> str:
        token = self._next("a field's name")
        if token.kind not in ("name", "number") or (token.kind == "number" and not token.text.isdecimal()):
            self._at -= 1
            raise self._error('a field\'s name is expected; in quotes: value["its name"]')
        return token.text

    def _index(self) -> str | int:
        token = self._next("a field's name in quotes, or a number")
        if token.kind == "text":
            return _unquoted(token)
        if token.kind == "number" and token.text.isdecimal() and len(token.text) < 10:
            return int(token.text)
        raise FilterError("a field's name in quotes, or a number from 0 is expected", token.position)

    def _list(self) -> tuple[Literal, ...]:
        self._expect_sign("(")
        literals = [self._literal()]
        while self._take_sign(","):
            literals.append(self._literal())
        self._expect_sign(")")
        return tuple(literals)

    def _literal(self) -> Literal:
        token = self._next("a text in quotes, a number, true, false or null")
        if token.kind == "text":
            return _unquoted(token)
        if token.kind == "number":
            return _number(token)
        if token.kind == "name" and token.text in _WORDS:
            return _WORDS[token.text]
        raise FilterError(
            f"a text in quotes, a number, true, false or null is expected, not {token.text}", token.position
        )

    def _text(self) -> str:
        position = self._position()
        literal = self._literal()
        if not isinstance(literal, str):
            raise FilterError("a text in quotes is expected", position)
        return literal

    # -- tokens --------------------------------------------------------------------------------------------

    def _next(self, expected: str) -> _Token:
        if self._at >= len(self._tokens):
            raise self._error(f"{expected} is expected")
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take(self, kind: str, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at][:2] == (kind, text):
            self._at += 1
            return True
        return False

    def _take_word(self, word: str) -> bool:
        return self._take("name", word)

    def _take_sign(self, sign: str) -> bool:
        return self._take("sign", sign)

    def _expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._error(f"{sign!r} is expected")

    def _position(self) -> int:
        return self._tokens[self._at].position if self._at < len(self._tokens) else self._end

    def _error(self, what: str) -> FilterError:
        return FilterError(what, self._position())


def _number(token: _Token) -> int | float:
    if re.fullmatch(r"-?\d+", token.text):
        if len(token.text) > 40:
            raise FilterError("a number has at most 40 digits", token.position)
        return int(token.text)
    return float(token.text)


def _unquoted(token: _Token) -> str:
    """JSON's escapes, in either kind of quotes."""
    body = token.text[1:-1]
    if token.text[0] == "'":
        body = re.sub(r'\\(.)|(")', _in_double_quotes, body, flags=re.DOTALL)
    try:
        return str(json.loads(f'"{body}"', strict=False))
    except ValueError:
        raise FilterError("the text has an escape that JSON does not know", token.position) from None


def _in_double_quotes(found: re.Match[str]) -> str:
    if found[2]:
        return '\\"'
    return "'" if found[1] == "'" else found[0]
