# SPDX-License-Identifier: Apache-2.0
"""A limit on the number of records, shared by several consumers."""

from __future__ import annotations

import threading


class Budget:
    """How many records may be started. `spent` when all of them are finished."""

    def __init__(self, records: int) -> None:
        self._lock = threading.Lock()
        self._left_to_begin = records
        self._left_to_finish = records

    def begin(self) -> bool:
        with self._lock:
            if self._left_to_begin == 0:
                return False
            self._left_to_begin -= 1
            return True

    def finish(self) -> None:
        with self._lock:
            self._left_to_finish -= 1

    def give_back(self) -> None:
        """A started record does not count: its partition was revoked, and another member handles it."""
        with self._lock:
            self._left_to_begin += 1

    @property
    def left(self) -> int:
        """Records that may still be started."""
        return self._left_to_begin

    @property
    def spent(self) -> bool:
        return self._left_to_finish == 0
