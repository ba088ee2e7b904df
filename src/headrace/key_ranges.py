# SPDX-License-Identifier: Apache-2.0
"""Key ranges: text form, rules, which partition a key belongs to, and ranges learned from a sample.

Pure. The same for producers (client/partitioning/partitioners.py) and for the broker, which refuses records
in the wrong partition of topics with headrace.partitioner=enforce
(broker/partition/validation/record_validation.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from headrace.errors import ConfigError

Outside = Literal["error", "nearest"]
"""What happens to a key that no range holds."""

_EXAMPLE = "write them as LOW..HIGH,LOW..HIGH, for example AAAA..MZZZ,NAAA..ZZZZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Both ends belong to it, and so does every key that starts with the upper one.

    An empty lower end means from the first key on. Every key starts with an empty upper end, so that
    one means up to the last.
    """

    low: bytes
    high: bytes

    def holds(self, key: bytes) -> bool:
        return self.low <= key and (key <= self.high or key.startswith(self.high))

    def __str__(self) -> str:
        return f"{escape(self.low)}..{escape(self.high)}"


def parse_ranges(text: str) -> tuple[KeyRange, ...]:
    """`AAAA..MZZZ,NAAA..ZZZZ`; a backslash makes a comma, dot or backslash literal, \\xNN is a byte."""
    ranges = []
    ends = [bytearray()]
    for token in [*_tokens(text.encode(errors="surrogateescape")), ","]:
        if isinstance(token, int):
            ends[-1].append(token)
        elif token == "..":
            ends.append(bytearray())
        elif len(ends) == 2:
            ranges.append(KeyRange(low=bytes(ends[0]), high=bytes(ends[1])))
            ends = [bytearray()]
        else:
            part = "..".join(escape(bytes(end)) for end in ends)
            raise ConfigError(f"{part!r} is not a key range; {_EXAMPLE}")
    check_ranges(ranges)
    return tuple(ranges)


def format_ranges(ranges: Sequence[KeyRange]) -> str:
    return ",".join(map(str, ranges))


def check_ranges(ranges: Sequence[KeyRange]) -> None:
    """Refuses none at all, ends in the wrong order, and overlaps; the message names the offender."""
    if not ranges:
        raise ConfigError(f"no key range was given; {_EXAMPLE}")
    for key_range in ranges:
        if key_range.low > key_range.high and not key_range.low.startswith(key_range.high):
            raise ConfigError(
                f"key range {key_range} is upside down: compared as bytes, "
                "its lower end comes after its upper one"
            )
    ordered = sorted(ranges, key=lambda key_range: key_range.low)
    for lower, upper in pairwise(ordered):
        if lower.holds(upper.low):
            raise ConfigError(
                f"key ranges {lower} and {upper} overlap: {shown(upper.low)} is in both "
                f"(a range holds every key up to its upper end and every key that starts with it)"
            )


class KeySpan(NamedTuple):
    """The keys of one partition: from `low` on, before `end`; None: to the last key."""

    low: bytes
    end: bytes | None

    def holds(self, key: bytes) -> bool:
        return self.low <= key and (self.end is None or key < self.end)


NO_KEYS = KeySpan(b"", b"")
"""Of a partition without a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRanges:
    """The ranges of a topic: partition n holds the keys of the n-th one."""

    ranges: tuple[KeyRange, ...]
    outside: Outside = "error"
    _spans: tuple[KeySpan, ...] = field(init=False, compare=False, repr=False)
    _order: list[int] = field(init=False, compare=False, repr=False)
    """Partitions by their lowest key."""
    _lows: list[bytes] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_ranges(self.ranges)
        spans = _nearest_spans(self.ranges) if self.outside == "nearest" else tuple(map(_span, self.ranges))
        order = sorted(range(len(spans)), key=lambda index: spans[index].low)
        object.__setattr__(self, "_spans", spans)
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_lows", [spans[index].low for index in order])

    def partition_of(self, key: bytes) -> int | None:
        """None when the key is outside every range and does not go to the nearest one."""
        below = bisect_right(self._lows, key) - 1
        if below >= 0 and self._spans[self._order[below]].holds(key):
            return self._order[below]
        return None

    def span_of(self, partition: int) -> KeySpan:
        return self._spans[partition] if partition < len(self._spans) else NO_KEYS

    def __str__(self) -> str:
        return format_ranges(self.ranges)


def boundaries_from_sample(keys: Iterable[bytes], partitions: int) -> tuple[KeyRange, ...]:
    """Ranges without gaps that cut the sample into `partitions` parts as even as its keys allow.

    Repeated keys count as often as they occur, since a frequent key is a heavy one.
    """
    ordered = sorted(keys)
    candidates = [
        (key, cut)
        for before, key in pairwise(sorted(set(ordered)))
        if (cut := _shortest_cut(before, key)) is not None
    ]
    if len(candidates) < partitions - 1:
        raise ConfigError(
            f"the sample has too few different keys for {partitions} ranges; "
            "take a larger sample or fewer partitions"
        )
    cuts = _even_cuts(ordered, candidates, partitions)
    lows = [b"", *cuts]
    highs = [*map(_last_before, cuts), b""]
    return tuple(KeyRange(low=low, high=high) for low, high in zip(lows, highs, strict=True))


def escape(boundary: bytes) -> str:
    """The boundary in the text form: its own signs and what a terminal would obey are escaped."""
    return "".join(map(_escape_one, boundary.decode("utf-8", errors="surrogateescape")))


def shown(key: bytes) -> str:
    """A key for a message: quoted, cut when long, control codes made visible."""
    text = key[:80].decode("utf-8", errors="backslashreplace")
    return repr(text) + ("…" if len(key) > 80 else "")


def _escape_one(letter: str) -> str:
    if letter in ",.\\":
        return "\\" + letter
    if letter.isprintable() and letter != " ":  # configs lose spaces at their ends
        return letter
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", errors="surrogateescape"))


def _tokens(text: bytes) -> Iterator[int | str]:
    """Bytes of a boundary as numbers; `..` and `,` as themselves."""
    position = 0
    while position < len(text):
        if text[position] == ord("\\"):
            byte, position = _unescape_one(text, position + 1)
            yield byte
        elif text.startswith(b"..", position):
            yield ".."
            position += 2
        else:
            yield "," if text[position] == ord(",") else text[position]
            position += 1


def _unescape_one(text: bytes, position: int) -> tuple[int, int]:
    """The byte that stands after a backslash, and where the text goes on."""
    if text[position : position + 1] in (b"\\", b",", b"."):
        return text[position], position + 1
    if re.fullmatch(rb"x[0-9a-fA-F]{2}", text[position : position + 3]):
        return int(text[position + 1 : position + 3], 16), position + 3
    raise ConfigError(
        f"'\\{text[position : position + 1].decode(errors='replace')}' in a key range is not understood; "
        "use \\\\, \\, or \\. for the sign itself and \\xNN for a byte"
    )


def _shortest_cut(before: bytes, key: bytes) -> bytes | None:
    """The shortest beginning of `key` that comes after `before`, so that boundaries stay readable.

    None when each ends in a zero byte: `_last_before` could not express it.
    """
    prefixes = (key[:length] for length in range(1, len(key) + 1))
    return next((cut for cut in prefixes if cut > before and cut[-1] > 0), None)


def _even_cuts(ordered: list[bytes], candidates: list[tuple[bytes, bytes]], partitions: int) -> list[bytes]:
    """The first key of each range but the first: near the quantiles, always leaving enough for the rest."""
    chosen: list[bytes] = []
    first = 0
    for index in range(1, partitions):
        quantile = ordered[index * len(ordered) // partitions]
        last = len(candidates) - (partitions - index)
        place = min(max(bisect_left(candidates, (quantile,)), first), last)
        chosen.append(candidates[place][1])
        first = place + 1
    return chosen


def _last_before(cut: bytes) -> bytes:
    """The upper end that leaves no gap below `cut`: all keys from it up to `cut` start with it."""
    return cut[:-1] + bytes([cut[-1] - 1])


def _span(key_range: KeyRange) -> KeySpan:
    return KeySpan(key_range.low, _after_prefix(key_range.high))


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first key after all that start with `prefix`; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _nearest_spans(ranges: Sequence[KeyRange]) -> tuple[KeySpan, ...]:
    """Without gaps: each gap between two ranges is cut in the middle."""
    order = sorted(range(len(ranges)), key=lambda index: ranges[index].low)
    spans = {order[0]: KeySpan(b"", None)}
    for lower, upper in pairwise(order):
        cut = _middle(ranges[lower].high, ranges[upper].low)
        spans[lower] = KeySpan(spans[lower].low, cut)
        spans[upper] = KeySpan(cut, None)
    return tuple(spans[index] for index in range(len(ranges)))


def _middle(high: bytes, low: bytes) -> bytes:
    """The first key of the upper half between the keys that start with `high` and the key `low`.

    Keys are read as fractions in base 256.
    """
    width = max(len(high), len(low)) + 1
    end = int.from_bytes(high, "big") + 1 << 8 * (width - len(high))
    middle = end + int.from_bytes(low.ljust(width, b"\0"), "big") >> 1
    return middle.to_bytes(width, "big").rstrip(b"\0")
