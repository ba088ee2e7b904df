# SPDX-License-Identifier: Apache-2.0
"""Merges the small files of a store pipeline's table from time to time, while the pipeline runs.

In a thread of low priority. What fails is logged and tried again at the next time: the pipeline must not end
because of it. Independent of Spark. Read next: delta/optimize.py; pipelines/runner.py starts it.
"""

from __future__ import annotations

import logging
import os
import threading

from headrace.pipelines.delta.optimize import OptimizeResult, optimize_table
from headrace.pipelines.delta.table import TablePlace, open_table, reason_of

_log = logging.getLogger(__name__)

_NICENESS = 10
_END_S = 30


class BackgroundOptimizer:
    def __init__(self, place: TablePlace, *, every_ms: int, target_size: int) -> None:
        self._place = place
        self._every_s = every_ms / 1000
        self._target_size = target_size
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"optimize {place}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Wait for a merge to end, but not forever: what it has written is removed later as unreferenced."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _run(self) -> None:
        _lower_priority()
        while not self._ended.wait(self._every_s):
            self.optimize()

    def optimize(self) -> OptimizeResult | None:
        """None: there is no table yet, or it failed."""
        try:
            if open_table(self._place) is None:
                return None
            result = optimize_table(self._place, target_size=self._target_size)
        except Exception as error:  # noqa: BLE001 - whatever it is, the pipeline goes on
            _log.warning("the table %s was not optimized: %s", self._place, reason_of(error, self._place))
            return None
        if result.small_files or result.orphans:
            _log.info(
                "optimized the table %s: %d files, %d now; removed %d unreferenced ones",
                *(self._place, result.files_before, result.files_after, result.orphans),
            )
        return result


def _lower_priority() -> None:
    """Of this thread, on Linux; elsewhere it keeps the process's."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    except (AttributeError, OSError):
        return
