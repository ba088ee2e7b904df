"""Calls walk.c: the records of one batch body checked, searched by time, or laid out.

Answers in codes and numbers; what a fault means to a caller is the caller's. Without a compiler there is no
Walk, and wire/record_layout.py goes record by record. Read next: walk.c, wire/record_layout.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headrace.kernels.library import FAULTS, function, load_library

Buffer = bytes | bytearray | memoryview
_AT_ONCE = 512
"""Records laid out by one call: enough to make the call cheap, and little memory."""
_FAULT_SPACE = 16  # as in walk.c
_LAYOUT = struct.Struct("=9q")


class TimeQuestion(ctypes.Structure):
    """Which record of a batch; `has_append_time`: all have the time `append_time`."""

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
        self._count_sound = function(library, "count_sound", pointer, number, pointer, number)
        self._find_time = function(library, "find_time", pointer, number, number, pointer, pointer)
        self._layouts = function(library, "layouts", pointer, number, pointer, number, pointer)

    def check(self, body: Buffer, count: int, base_timestamp: int, *, needs_key: bool) -> Fault | None:
        """None when the body is exactly `count` sound records, numbered from 0 on."""
        code = self._check(_place(body), len(body), count, base_timestamp, needs_key)
        return _fault(code) if code else None

    def check_batch(self, buffer: Buffer, start: int, size: int, *, needs_key: bool = False) -> Fault | None:
        """The same of the whole uncompressed batch in `buffer[start : start + size]`, told by its header.

        For every batch that is produced: a microsecond, and what its records take.
        """
        if not 0 <= start < start + size <= len(buffer):
            raise ValueError(f"no batch of {size} bytes at {start} of {len(buffer)}")
        try:
            place: Any = ctypes.byref(ctypes.c_char.from_buffer(buffer, start))
        except TypeError:  # read-only, which ctypes does not take
            place = bytes(buffer[start : start + size])
        code = self._check_batch(place, size, needs_key)
        return _fault(code) if code else None

    def count_sound(self, buffer: memoryview, places: Sequence[int]) -> int:
        """How many uncompressed batches are sound, up to the first that is not; start and size of each."""
        packed = struct.pack(f"={len(places)}q", *places)
        count: int = self._count_sound(_place(buffer), len(buffer), packed, len(places) // 2)
        return count

    def find_time(self, body: Buffer, count: int, question: TimeQuestion) -> tuple[int, int] | int:
        """(timestamp, offset); 0 when no record fits; a code below when one is malformed."""
        answer = (ctypes.c_int64 * 2)()
        code: int = self._find_time(_place(body), len(body), count, ctypes.byref(question), answer)
        return (answer[0], answer[1]) if code > 0 else code

    def layouts(self, body: Buffer, count: int) -> Iterator[tuple[int, ...] | Fault]:
        """Where the parts of each record lie, as in walk.c's `layout`; a Fault is the last."""
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
    """None when there is no library to use."""
    library = load_library()
    return None if library is None else Walk(library)


def _fault(code: int) -> Fault:
    return Fault(-code // _FAULT_SPACE, -(-code % _FAULT_SPACE))


def _place(body: Buffer) -> Any:
    """What ctypes passes as the address of the first byte; holds on to the buffer."""
    if isinstance(body, bytes) or not len(body):
        return bytes(body)
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(body))
    except TypeError:  # read-only, which ctypes does not take
        return bytes(body)
