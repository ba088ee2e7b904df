"""Key ranges: their text form, their rules, and how to learn them from a sample. Pure.

Read next: partitioners.py (RangePartitioner uses them), partitioner_store.py (where they are kept).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headrace.client.errors import ClientError

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
            raise ClientError(f"{part!r} is not a key range", next_step=_EXAMPLE)
    check_ranges(ranges)
    return tuple(ranges)


def format_ranges(ranges: Sequence[KeyRange]) -> str:
    return ",".join(map(str, ranges))


def check_ranges(ranges: Sequence[KeyRange]) -> None:
    """Refuses none at all, ends in the wrong order, and overlaps; the message names the offender."""
    if not ranges:
        raise ClientError("no key range was given", next_step=_EXAMPLE)
    for key_range in ranges:
        if key_range.low > key_range.high and not key_range.low.startswith(key_range.high):
            raise ClientError(
                f"key range {key_range} is upside down: compared as bytes, "
                "its lower end comes after its upper one"
            )
    ordered = sorted(ranges, key=lambda key_range: key_range.low)
    for lower, upper in pairwise(ordered):
        if lower.holds(upper.low):
            raise ClientError(
                f"key ranges {lower} and {upper} overlap: {shown(upper.low)} is in both "
                f"(a range holds every key up to its upper end and every key that starts with it)"
            )


def nearest_range(key: bytes, lower: KeyRange, upper: KeyRange) -> int:
    """0 when the key, which lies between the two, is nearer to the lower one (or just as near), else 1.

    Keys are read as fractions in base 256, so the answer is the same in every producer.
    """
    width = max(len(key), len(lower.high), len(upper.low)) + 1
    position = _as_number(key, width, b"\x00")
    return int(
        _as_number(upper.low, width, b"\x00") - position < position - _as_number(lower.high, width, b"\xff")
    )


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
        raise ClientError(
            f"the sample has too few different keys for {partitions} ranges",
            next_step="take a larger sample or fewer partitions",
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
    if letter.isprintable():
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
    raise ClientError(
        f"'\\{text[position : position + 1].decode(errors='replace')}' in a key range is not understood",
        next_step="use \\\\, \\, or \\. for the sign itself and \\xNN for a byte",
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


def _as_number(key: bytes, width: int, fill: bytes) -> int:
    return int.from_bytes(key.ljust(width, fill), "big")
