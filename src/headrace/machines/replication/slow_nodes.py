# SPDX-License-Identifier: Apache-2.0
"""Which nodes are persistently slow to acknowledge, as one node that leads partitions measures it (R16b).

Pure. Measured is what producers wait for: the time from an append until a follower's fetch shows that it has
the records, or until they count on the leader's own disk. A slow follower leaves the ISR of the partitions
that this node leads (leader.py, `propose`); a node that finds its own disk slow, or that two others find
slow, leads nothing while another in-sync replica can (election.py). Nothing that a client sends is used.

A node is compared with the other followers of the same leader, and the leader's disk with its followers:
where all are slow, none is. A node that answers nothing is not slow but lagging (replica.lag.time.max.ms), or
dead. Each move makes the next return wait twice as long, which bounds the number of moves per hour. Read
next: broker/replication/slow_replicas.py (the shell), ack_times.py (the measurement).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

TICK_MS = 1_000
"""How often `tick` is called."""
MOST_RETURN_MS = 3_600_000
MOVES_COUNT_FOR_MS = 6 * 3_600_000
_SAMPLES_PER_TICK = 256
_SLOW_SHARE = 0.8
"""Of the judged ticks: a single quick one does not end a slow time."""
_EXPIRES = 3
"""A verdict is forgotten after this many times `after_ms`: slow now and then is not persistently slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSettings:
    floor_ms: int
    """Faster is never slow; 0: no node is."""
    factor: int
    """How many times the fastest other a slow node takes."""
    after_ms: int
    return_ms: int

    @property
    def verdicts(self) -> int:
        return max(self.after_ms // TICK_MS, 1)


class Verdict(Enum):
    FAST = "fast"
    BETWEEN = "between"
    SLOW = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowChange:
    """A node has become slow, or is no longer."""

    node: int
    slow: bool
    typical_ms: float
    others_ms: float
    """The fastest other at that time."""
    return_ms: int
    """How long it must not be slow before it counts as fast again."""


@dataclass(slots=True, kw_only=True)
class _Known:
    epoch: int
    samples: list[int] = field(default_factory=list)
    verdicts: deque[tuple[int, Verdict]] = field(default_factory=deque)
    typical_ms: float = 0.0
    others_ms: float = 0.0
    slow: bool = False
    not_fast_ms: int = 0
    """When it was last not found fast, or became slow."""


class SlowNodes:
    """As found by `node_id`. `slow` holds the ids of the nodes that are slow now, perhaps its own."""

    def __init__(self, node_id: int, settings: SlowSettings) -> None:
        self._node_id = node_id
        self._settings = settings
        self._known: dict[int, _Known] = {}
        self._moves: dict[int, list[int]] = {}
        """By node, when it became slow; kept when it restarts."""
        self.slow: frozenset[int] = frozenset()

    # Events

    def update_nodes(self, epochs: Mapping[int, int]) -> None:
        """The live nodes. A restarted node is measured anew."""
        self._known = {
            node: known
            if (known := self._known.get(node)) is not None and known.epoch == epoch
            else _Known(epoch=epoch)
            for node, epoch in epochs.items()
        }
        self._update_slow()

    def acknowledged(self, node: int, took_ms: int) -> None:
        """A follower, or this node's own disk, took so long from an append in a partition that it leads."""
        known = self._known.get(node)
        if known is not None and len(known.samples) < _SAMPLES_PER_TICK:
            known.samples.append(took_ms)

    # Decisions

    def tick(self, now_ms: int, own_flush_ms: float | None = None) -> list[SlowChange]:
        """`own_flush_ms`: what a typical fsync of this node took its disk since the last tick; None when
        there was none. Without it an append that waits for a thread would make the disk look slow, and a node
        that leads nothing could not tell that its disk is fast again."""
        if not self._settings.floor_ms:
            return []
        typical = {node: median(known.samples) for node, known in self._known.items() if known.samples}
        for node, known in self._known.items():
            known.samples.clear()
            others = [ms for other, ms in typical.items() if other not in (node, self._node_id)]
            verdict = self._verdict(node, known, typical.get(node), min(others, default=None), own_flush_ms)
            if verdict is not None:
                self._note(known, verdict, now_ms)
        changes = list(self._changes(now_ms))
        self._update_slow()
        return changes

    def _verdict(
        self,
        node: int,
        known: _Known,
        typical_ms: float | None,
        others_ms: float | None,
        own_flush_ms: float | None,
    ) -> Verdict | None:
        """None: nothing was measured, or there was nothing to compare with."""
        if others_ms is not None and typical_ms is not None:
            known.others_ms = others_ms
        if node == self._node_id and own_flush_ms is not None:
            typical_ms = _of_own_disk(typical_ms, own_flush_ms, slow=known.slow)
        if typical_ms is None or (others_ms is None and not known.slow):
            return None
        known.typical_ms = typical_ms
        slow_from_ms = max(self._settings.floor_ms, self._settings.factor * known.others_ms)
        if typical_ms >= slow_from_ms:
            return Verdict.SLOW
        return Verdict.FAST if typical_ms < slow_from_ms / 2 else Verdict.BETWEEN

    def _note(self, known: _Known, verdict: Verdict, now_ms: int) -> None:
        known.verdicts.append((now_ms, verdict))
        if len(known.verdicts) > self._settings.verdicts:
            known.verdicts.popleft()
        if verdict is not Verdict.FAST:
            known.not_fast_ms = now_ms

    def _changes(self, now_ms: int) -> Iterator[SlowChange]:
        for node, known in self._known.items():
            if known.slow:
                ends = now_ms - known.not_fast_ms >= self._return_ms(node)
                if not ends:
                    continue
                known.slow = False
                known.verdicts.clear()
            elif self._is_persistent(known, now_ms):
                known.slow = True
                known.not_fast_ms = now_ms
                since_ms = now_ms - MOVES_COUNT_FOR_MS
                self._moves[node] = [at for at in self._moves.get(node, ()) if at > since_ms] + [now_ms]
            else:
                continue
            yield SlowChange(
                node=node,
                slow=known.slow,
                typical_ms=known.typical_ms,
                others_ms=known.others_ms,
                return_ms=self._return_ms(node),
            )

    def _is_persistent(self, known: _Known, now_ms: int) -> bool:
        settings = self._settings
        oldest_ms = now_ms - _EXPIRES * settings.after_ms
        while known.verdicts and known.verdicts[0][0] < oldest_ms:
            known.verdicts.popleft()
        if len(known.verdicts) < settings.verdicts or known.verdicts[-1][1] is not Verdict.SLOW:
            return False
        slow = sum(verdict is Verdict.SLOW for _, verdict in known.verdicts)
        return slow >= _SLOW_SHARE * settings.verdicts

    def _return_ms(self, node: int) -> int:
        moves = len(self._moves.get(node, ()))
        longer: int = self._settings.return_ms * 2 ** min(max(moves - 1, 0), 20)
        return min(longer, max(MOST_RETURN_MS, self._settings.return_ms))

    def _update_slow(self) -> None:
        self.slow = frozenset(node for node, known in self._known.items() if known.slow)

    # For metrics

    def typical(self) -> dict[int, float]:
        """By node, the milliseconds it last took."""
        return {node: known.typical_ms for node, known in self._known.items() if known.typical_ms}


def _of_own_disk(typical_ms: float | None, own_flush_ms: float, *, slow: bool) -> float | None:
    """It becomes slow only when appends wait that long for it; then it is the disk alone that matters."""
    if slow:
        return own_flush_ms
    return None if typical_ms is None else min(typical_ms, own_flush_ms)


def found_slow(findings: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """The nodes that lead nothing while others can. `findings`: of each live node, whom it finds slow.

    Its own finding counts alone, for it measures its own disk; of others two are needed, since one alone may
    have a bad link to the node.
    """
    counts: dict[int, int] = {}
    for by, slow in findings.items():
        for node in slow:
            counts[node] = counts.get(node, 0) + (2 if node == by else 1)
    return frozenset(node for node, count in counts.items() if count > 1 and node in findings)
