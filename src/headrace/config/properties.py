# SPDX-License-Identifier: Apache-2.0
"""Java's properties format, as Kafka's operators write server.properties, with line numbers for errors.

Knows no setting. Values are plain text: nothing in them is ever substituted or evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ConfigError

_FOUR_HEX_DIGITS = re.compile("[0-9a-fA-F]{4}")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    key: str
    value: str
    line: int


def read_properties(path: Path) -> list[Entry]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str) -> list[Entry]:
    """Entries in the order of the file. A repeated key is refused."""
    entries: list[Entry] = []
    seen: dict[str, int] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line, f"{source}:{number}")
        if key in seen:
            raise ConfigError(
                f"{source}:{number}: {key} is set a second time (first on line {seen[key]}); keep one"
            )
        seen[key] = number
        entries.append(Entry(key, value, number))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without blank lines and comments; a backslash at the end joins the next line."""
    pending, began = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            began = number
        pending += line
        if _continues(pending):
            pending = pending[:-1]
            continue
        if pending:
            yield began, pending
        pending = ""
    if pending:
        yield began, pending


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str, where: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    key = _unescape(line[:end], where)
    rest = line[end:].lstrip(_BLANKS)
    if not rest:
        raise ConfigError(f"{where}: {key!r} has no value; write {key}=value")
    if rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    if not key:
        raise ConfigError(f"{where}: a line that begins with '{line[0]}' has no key; write key=value")
    return key, _unescape(rest, where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        if _FOUR_HEX_DIGITS.fullmatch(digits) is None:
            raise ConfigError(f"{where}: \\u{digits} is not a character; four hexadecimal digits follow \\u")
        out.append(chr(int(digits, 16)))
        position += 4
    return "".join(out)
