# SPDX-License-Identifier: Apache-2.0
"""What of a topic is asked for, parsed from the parameters of a request. Pure.

Read next: page.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.console.messages.filter_parser import parse_filter
from headrace.console.messages.filter_terms import Term, moment_ms
from headrace.console.messages.readable import Readable
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.values import AvroDecoder, Form, check_form
from headrace.console.views.view import Params, ViewError

Place = Literal["newest", "oldest", "offset", "time", "cursor"]
Way = Literal["newer", "older"]

DEFAULT_LIMIT = 50
_PLACES: tuple[Place, ...] = ("newest", "oldest", "offset", "time")
_CURSOR = re.compile(r"(\d{1,9}:\d{1,19})(,\d{1,9}:\d{1,19})*")
_PARTITIONS = re.compile(r"\d{1,9}(,\d{1,9})*")
_LONGEST_KEY = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    topic: str
    partitions: tuple[int, ...] | None
    place: Place
    value: int
    """The offset, or the moment in milliseconds."""
    cursor: Mapping[int, int]
    way: Way
    limit: int
    key: bytes | None
    filter_text: str
    term: Term | None
    key_form: Form
    value_form: Form
    uncommitted: bool

    def wanted(self, avro: AvroDecoder) -> Callable[[StoredRecord], bool]:
        key, term = self.key, self.term
        if term is None:
            return (lambda record: True) if key is None else (lambda record: record.key == key)
        return lambda record: (
            (key is None or record.key == key)
            and term.matches(Readable(record, self.key_form, self.value_form, avro))
        )

    @property
    def is_filtered(self) -> bool:
        return self.key is not None or self.term is not None


def parse_query(params: Params, *, most: int) -> Query:
    """ViewError (400) where a parameter makes no sense. `most`: the largest limit."""
    cursor = _cursor(params.get("cursor", ""))
    place: Place = "cursor" if cursor else _place(params.get("from") or "newest")
    filter_text = params.get("filter", "").strip()
    return Query(
        topic=_topic(params),
        partitions=_partitions(params.get("partitions", "")),
        place=place,
        value=_value(place, params),
        cursor=cursor,
        way=_way(params.get("direction", ""), place),
        limit=min(_number(params, "limit", DEFAULT_LIMIT, lowest=1), most),
        key=_key(params),
        filter_text=filter_text,
        term=parse_filter(filter_text) if filter_text else None,
        key_form=check_form(params.get("key_format") or "auto", "key_format"),
        value_form=check_form(params.get("value_format") or "auto", "value_format"),
        uncommitted=params.get("uncommitted") in ("1", "true"),
    )


def cursor_text(cursor: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(cursor.items()))


def _topic(params: Params) -> str:
    topic = params.get("topic", "")
    if not topic:
        raise ViewError("no topic was named", next_step="add topic=NAME", status=400)
    return topic


def _place(text: str) -> Place:
    for place in _PLACES:
        if place == text:
            return place
    raise _wrong("from", text, f"one of: {', '.join(_PLACES)}")


def _way(text: str, place: Place) -> Way:
    match text:
        case "newer":
            return "newer"
        case "older":
            return "older"
        case "":
            return "older" if place == "newest" else "newer"
    raise _wrong("direction", text, "newer or older")


def _value(place: Place, params: Params) -> int:
    if place == "offset":
        return _number(params, "offset", None, lowest=0)
    if place != "time":
        return 0
    text = params.get("time", "")
    if text.isdecimal() and len(text) < 16:
        return int(text)
    moment = moment_ms(text)
    if moment is None or moment < 0:
        raise _wrong("time", text, "write it like 2026-01-31T12:00:00Z, or in milliseconds since 1970")
    return moment


def _number(params: Params, name: str, default: int | None, *, lowest: int) -> int:
    text = params.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal() or len(text) > 18 or int(text) < lowest:
        raise _wrong(name, text, f"give a number of at least {lowest}")
    return int(text)


def _partitions(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    if not _PARTITIONS.fullmatch(text):
        raise _wrong("partitions", text, "write them like 0,2,5")
    return tuple(int(each) for each in text.split(","))


def _cursor(text: str) -> dict[int, int]:
    if not text:
        return {}
    if not _CURSOR.fullmatch(text):
        raise _wrong("cursor", text[:100], "load the first page again")
    pairs = (each.split(":") for each in text.split(","))
    return {int(partition): int(offset) for partition, offset in pairs}


def _key(params: Params) -> bytes | None:
    text = params.get("key", "")
    if not text:
        return None
    if len(text) > _LONGEST_KEY:
        raise _wrong("key", f"{text[:40]}…", f"give at most {_LONGEST_KEY:,} characters")
    if params.get("key_as") != "hex":
        return text.encode(errors="surrogatepass")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _wrong("key", text[:100], "write bytes as hex digits, such as 00ff12") from None


def _wrong(name: str, text: str, next_step: str) -> ViewError:
    return ViewError(f"{name}={text!r} makes no sense", next_step=next_step, status=400)
