# SPDX-License-Identifier: Apache-2.0
"""How far the wall clock of each simulated node may be ahead by its own rule (R34).

A jump counts after an hour, and for a process that starts under it in an empty data directory. Read next:
deletion.py, broker/partition/retention_clock.py.
"""

from __future__ import annotations

from headrace.broker.node import Broker
from headrace.broker.partition.retention_clock import ACCEPTED_AFTER_S
from headrace.testing.simloop import SimLoop
from tests.harness.simulation.node import SimNode

_SLACK_MS = 1_000
"""For rounding, and for time that passes within a step."""
_NEVER_SEEN = object()


class ClockWatch:
    """`look` is called after each step of a node: it sees when a clock jumped and when a process began."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._jumps: dict[SimNode, tuple[int, float]] = {}
        """By how much each node's clock is ahead, and since when."""
        self._brokers: dict[SimNode, Broker | None] = {}
        self._accepted_ms: dict[SimNode, int] = {}
        self._furthest_ms = 0

    def ahead_ms(self, node: SimNode) -> int:
        """How far ahead of the true time the node may take it to be."""
        self.look(node)
        return self._accepted_ms.get(node, 0) + _SLACK_MS

    @property
    def furthest_ahead_ms(self) -> int:
        """Of all nodes so far."""
        return self._furthest_ms + _SLACK_MS

    def look(self, node: SimNode) -> None:
        now, jump_ms = self._loop.time(), node.machine.wall_jump_ms
        known = self._jumps.get(node)
        if known is None or known[0] != jump_ms:
            known = self._jumps[node] = (jump_ms, now)
        begins = self._brokers.get(node, _NEVER_SEEN) is not node.broker and _is_new(node)
        self._brokers[node] = node.broker
        waited = now - known[1] >= ACCEPTED_AFTER_S - _SLACK_MS / 1000
        if begins or waited or jump_ms < self._accepted_ms.get(node, 0):
            self._accepted_ms[node] = jump_ms
            self._furthest_ms = max(self._furthest_ms, jump_ms)


def _is_new(node: SimNode) -> bool:
    """Whether its process has nothing of an earlier one, so that it takes the clock as it is."""
    return node.broker is not None and node.broker.checkpoints.new_disk
