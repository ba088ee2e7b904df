# SPDX-License-Identifier: Apache-2.0
"""Measures how long each replica of one partition takes to acknowledge what its leader appends.

Pure and cheap, since it is called for every append and every replica fetch: one append per replica is timed
at a time. What a replica that was behind acknowledges late is timed as it is: the time a producer waited for
it. Read next: slow_nodes.py (what is made of the times).
"""

from __future__ import annotations

from collections.abc import Callable, Collection


class AckTimes:
    """`on_time`: called with a replica's node id and its time in milliseconds."""

    __slots__ = ("_idle", "_now_ms", "_on_time", "_timed")

    def __init__(
        self, replicas: Collection[int], now_ms: Callable[[], int], on_time: Callable[[int, int], None]
    ) -> None:
        self._now_ms = now_ms
        self._on_time = on_time
        self._timed: dict[int, tuple[int, int]] = {}
        """By replica, the log end offset after the append that is timed, and when that was."""
        self._idle = set(replicas)

    def set_replicas(self, replicas: Collection[int]) -> None:
        self._timed = {node: timed for node, timed in self._timed.items() if node in replicas}
        self._idle = set(replicas) - self._timed.keys()

    def appended(self, log_end: int) -> None:
        if self._idle:
            timed = log_end, self._now_ms()
            for node in self._idle:
                self._timed[node] = timed
            self._idle.clear()

    def forget(self, node: int) -> None:
        """It catches up on what was appended while it was down: that says nothing of how fast it is."""
        if self._timed.pop(node, None) is not None:
            self._idle.add(node)

    def reached(self, node: int, offset: int) -> None:
        """The replica has everything below the offset."""
        timed = self._timed.get(node)
        if timed is not None and offset >= timed[0]:
            del self._timed[node]
            self._idle.add(node)
            self._on_time(node, self._now_ms() - timed[1])
