# SPDX-License-Identifier: Apache-2.0
"""Bytes of keys, values and headers as something to read: JSON, Avro, text or hex.

Read next: avro.py, shown.py (documents), readable.py (filters).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headrace.console.views.view import ViewError

Form = Literal["auto", "json", "avro", "text", "hex"]
FORMS: tuple[Form, ...] = ("auto", "json", "avro", "text", "hex")
LONGEST_SHOWN = 64 << 10
_LONGEST_PARSED = 8 << 20
_LINE_SIGNS = frozenset("\t\r\n")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value with fields, its JSON text, and where it comes from."""

    value: Any
    text: str
    form: Literal["json", "avro"]


class AvroDecoder(Protocol):
    def decode(self, data: bytes) -> Parsed:
        """The value. ClientError when the bytes, the registry or the extra do not allow it."""
        ...

    def recognises(self, data: bytes) -> bool:
        """Whether a registry is configured and the bytes look like its format."""
        ...


def check_form(text: str, name: str) -> Form:
    for form in FORMS:
        if form == text:
            return form
    raise ViewError(f"{name}={text!r} is not a format", next_step=f"one of: {', '.join(FORMS)}", status=400)


def parse_json(data: bytes) -> Parsed | None:
    """None for what is not JSON, or too large or too deep to be looked into."""
    if len(data) > _LONGEST_PARSED:
        return None
    try:
        text = data.decode()
        return Parsed(json.loads(text), text, "json")
    except (ValueError, RecursionError):
        return None


def looks_like_json(data: bytes) -> bool:
    """An object or a list; a number or a word alone is shown as the text that it is."""
    start = data[:64].lstrip()[:1]
    return start in (b"{", b"[")


def readable_text(data: bytes) -> str | None:
    """Text that can be shown; None for bytes of other kinds."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in _LINE_SIGNS for sign in text) else None


def cut(data: bytes) -> bytes:
    """At most LONGEST_SHOWN bytes, not in the middle of a character of UTF-8."""
    if len(data) <= LONGEST_SHOWN:
        return data
    end = LONGEST_SHOWN
    while end > LONGEST_SHOWN - 3 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
