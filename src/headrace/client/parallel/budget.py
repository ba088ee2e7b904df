"""So many records and no more, also when several consumers share the task."""

from __future__ import annotations

import threading


class Budget:
    """Records that may be begun. `spent` when that many were finished."""

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
        """One that was begun does not count: its partition has gone, and it will come again."""
        with self._lock:
            self._left_to_begin += 1

    @property
    def left(self) -> int:
        """That may still be begun."""
        return self._left_to_begin

    @property
    def spent(self) -> bool:
        return self._left_to_finish == 0
