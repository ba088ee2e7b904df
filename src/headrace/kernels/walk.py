# SPDX-License-Identifier: Apache-2.0
"""Calls walk.c to check the records of a batch, search them by time, or list where their fields lie.

Returns error codes; the caller decides what an error means. Without the compiled library
wire/record_layout.py reads record by record. Read next: walk.c, wire/record_layout.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headrace.kernels.library import FAULTS, function, load_library

Buffer = bytes | bytearray | memoryview
_AT_ONCE = 512
"""Records per call: enough to amortize the call, with little memory."""
_FAULT_SPACE = 16  # as in walk.c
_LAYOUT = struct.Struct("=9q")


class TimeQuestion(ctypes.Structure):
    """Search parameters; `has_append_time`: all records have the timestamp `append_time`."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("base_offset", "base_timestamp", "append_time", "has_append_time"),
            *("start_offset", "timestamp", "wants_latest"),
        )
    ]


class _State(ctypes.Structure):
    _fields_ = [("position", ctypes.c_int64), ("fault", ctypes.c_int64)]


class Fault(NamedTuple):
    """Which record of a batch is malformed, and how."""

    record: int
    code: int

    def __str__(self) -> str:
        return f"record {self.record}: {FAULTS[self.code]}"


class Walk:
    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._check = function(library, "check", pointer, number, number, number, number)
        self._check_batch = function(library, "check_batch", pointer, number, number)
        self._count_outside = function(
            library, "count_outside", pointer, number, number, pointer, number, pointer, number
        )
        self._count_sound = function(library, "count_sound", pointer, number, pointer, number)
        self._find_time = function(library, "find_time", pointer, number, number, pointer, pointer)
        self._layouts = function(library, "layouts", pointer, number, pointer, number, pointer)

    def check(self, body: Buffer, count: int, base_timestamp: int, *, needs_key: bool) -> Fault | None:
        """None if the body is exactly `count` valid records with offset deltas from 0 on."""
        code = self._check(_place(body), len(body), count, base_timestamp, needs_key)
        return _fault(code) if code else None

    def check_batch(self, buffer: Buffer, start: int, size: int, *, needs_key: bool = False) -> Fault | None:
        """Checks the whole uncompressed batch in `buffer[start : start + size]` against its header.

        Runs for every produced batch; its overhead is about a microsecond.
        """
        if not 0 <= start < start + size <= len(buffer):
            raise ValueError(f"no batch of {size} bytes at {start} of {len(buffer)}")
        try:
            place: Any = ctypes.byref(ctypes.c_char.from_buffer(buffer, start))
        except TypeError:  # read-only, which ctypes does not take
            place = bytes(buffer[start : start + size])
        code = self._check_batch(place, size, needs_key)
        return _fault(code) if code else None

    def count_outside(self, body: Buffer, count: int, low: bytes, end: bytes | None) -> int:
        """Number of valid records that have no key, or one that is not in [low, end); None: no end."""
        bounds = (low, len(low), end or b"", -1 if end is None else len(end))
        outside: int = self._count_outside(_place(body), len(body), count, *bounds)
        return outside

    def count_sound(self, buffer: memoryview, places: Sequence[int]) -> int:
        """Number of valid uncompressed batches before the first invalid one; `places`: starts and sizes.

        `buffer` is writable.
        """
        packed = struct.pack(f"={len(places)}q", *places)
        first_byte = ctypes.byref(ctypes.c_char.from_buffer(buffer))
        count: int = self._count_sound(first_byte, len(buffer), packed, len(places) // 2)
        return count

    def find_time(self, body: Buffer, count: int, question: TimeQuestion) -> tuple[int, int] | int:
        """(timestamp, offset); 0 if no record matches; a negative code if one is malformed."""
        answer = (ctypes.c_int64 * 2)()
        code: int = self._find_time(_place(body), len(body), count, ctypes.byref(question), answer)
        return (answer[0], answer[1]) if code > 0 else code

    def layouts(self, body: Buffer, count: int) -> Iterator[tuple[int, ...] | Fault]:
        """Positions of the fields of each record, as `layout` in walk.c; ends after a Fault."""
        out = bytearray(_LAYOUT.size * min(count, _AT_ONCE))
        place, places, state = _place(body), _place(out), _State()
        done = 0
        while done < count:
            wanted = min(count - done, _AT_ONCE)
            found = self._layouts(place, len(body), ctypes.byref(state), wanted, places)
            yield from _LAYOUT.iter_unpack(memoryview(out)[: found * _LAYOUT.size])
            done += found
            if found < wanted:
                yield Fault(done, state.fault)
                return


def load_walk() -> Walk | None:
    """None if there is no compiled library."""
    library = load_library()
    return None if library is None else Walk(library)


def _fault(code: int) -> Fault:
    return Fault(-code // _FAULT_SPACE, -(-code % _FAULT_SPACE))


def _place(body: Buffer) -> Any:
    """The address of the first byte for ctypes; keeps a reference to the buffer."""
    if isinstance(body, bytes) or not len(body):
        return bytes(body)
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(body))
    except TypeError:  # read-only, which ctypes does not take
        return bytes(body)
