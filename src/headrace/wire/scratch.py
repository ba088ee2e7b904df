# SPDX-License-Identifier: Apache-2.0
"""Memory into which batches are expanded one after the other, to be looked at and forgotten.

Each thread has its own. It is anonymous memory, of which only what is written takes room, so no batch has to
be expanded twice because a buffer was too short, and none costs the clearing of a new one.
Read next: compression.py, records.py.
"""

from __future__ import annotations

import threading
from mmap import mmap

from headrace.wire.compression import PRODUCER_CAPS, decompress_into

KEPT_BYTES = 4 << 20
"""Memory that held more is given back: one large batch must not make every thread large for good."""


class Scratch(threading.local):
    """Of the thread that uses it."""

    def __init__(self) -> None:
        self._memory: memoryview | None = None

    def expand(self, codec: int, data: memoryview, limit: int) -> memoryview:
        """The expanded bytes, until the next call. DecodeError: they are damaged, or more than `limit`.

        Never more than PRODUCER_CAPS allow.
        """
        memory = self._memory
        if memory is None:
            memory = self._memory = _reserve(PRODUCER_CAPS.max_bytes)
        self._memory = None  # given back unless it is known to be small
        size = decompress_into(codec, data, memory[:limit])
        if size <= KEPT_BYTES:
            self._memory = memory
        return memory[:size]


def _reserve(size: int) -> memoryview:
    try:
        return memoryview(mmap(-1, size))
    except OSError as error:
        raise MemoryError(str(error)) from None


SCRATCH = Scratch()
