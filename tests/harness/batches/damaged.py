# SPDX-License-Identifier: Apache-2.0
"""Record batches whose bodies are damaged in every way that counts, and memory that ends where a batch does.

For tests that nothing reads beyond a batch. Batches are uncompressed and carry the right CRC.
"""

from __future__ import annotations

import ctypes
import mmap
import random
from collections.abc import Iterator

from headrace.wire.batch import HEADER_SIZE, LOG_OVERHEAD, write_crc
from headrace.wire.records import Record, build_batch

_COUNT_AT = 57
_COUNTS = (0, 1, -1, 2**31 - 1, 6)
_TELLING_BYTES = (0x80, 0xFF, 0x7F, 1, 0)


class GuardedMemory:
    """What is put here ends where readable memory does: reading one byte further ends the process."""

    def __init__(self, size: int = 64 << 10) -> None:
        self._size = size
        self._memory = mmap.mmap(-1, size + mmap.PAGESIZE)
        self._view = memoryview(self._memory)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + size), mmap.PAGESIZE, 0):
            raise OSError("mprotect")

    def place(self, data: bytes | bytearray | memoryview) -> memoryview:
        self._view[self._size - len(data) : self._size] = data
        return self._view[self._size - len(data) : self._size]


def damaged_batches(source: random.Random, rounds: int) -> Iterator[bytearray]:
    """Some are sound after all."""
    for _ in range(rounds):
        batch = build_batch(_records(source))
        kind = source.randrange(4)
        if kind == 0:
            del batch[source.randrange(HEADER_SIZE, len(batch)) :]
        elif kind == 1:
            batch += source.randbytes(source.randrange(1, 40))
        elif kind == 2:
            batch[_COUNT_AT:HEADER_SIZE] = source.choice(_COUNTS).to_bytes(4, "big", signed=True)
        if len(batch) > HEADER_SIZE:
            for _ in range(source.randrange(4)):
                byte = source.choice((*_TELLING_BYTES, source.randrange(256)))
                batch[source.randrange(HEADER_SIZE, len(batch))] = byte
        batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
        write_crc(memoryview(batch), 0, len(batch))
        yield batch


def _records(source: random.Random) -> list[Record]:
    return [
        Record(
            number,
            source.randrange(1 << 42),
            source.choice((None, b"", source.randbytes(source.randrange(90)))),
            source.choice((None, b"", source.randbytes(source.randrange(200)))),
            tuple((f"h{n}", source.choice((None, b"x"))) for n in range(source.randrange(4))),
        )
        for number in range(source.randint(1, 5))
    ]
