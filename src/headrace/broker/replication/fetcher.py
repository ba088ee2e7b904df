# SPDX-License-Identifier: Apache-2.0
"""Replica fetcher for one leader: two fetch loops, one for busy and one for idle partitions.

Partitions without new records for a while share a long poll of their own, so that fetches of busy partitions
do not name all the idle ones each time. Read next: fetch_loop.py, replicas.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headrace.broker.partition.follower_role import FollowerRole
from headrace.broker.partition.partition import Partition
from headrace.broker.replication.fetch_loop import FetchLoop
from headrace.broker.replication.peers import FETCH, FETCH_IDLE, Peers
from headrace.world import World

FEW = 4
"""Up to this many partitions stay in the busy loop: fetching them costs less than moving them."""
BUSY_S = 2.0
HAND_OVER_S = 2.0
"""Interval at which idle partitions move to the idle loop, whose long poll is ended for that."""
IDLE_WAITS = 8
"""The long poll of idle partitions lasts this many times longer: a record in any of them ends it."""


class ReplicaFetcher:
    def __init__(
        self,
        world: World,
        peers: Peers,
        leader: int,
        *,
        max_wait_ms: int,
        persist_offsets: Callable[[], Awaitable[None]],
        on_moved: Callable[[FollowerRole], None],
    ) -> None:
        """`on_moved`: called when work ended on a partition that follows another leader now."""
        self._clock = world.clock
        self._on_moved = on_moved
        self._next_hand_over = 0.0
        self._busy, self._idle = (
            FetchLoop(
                world,
                peers,
                leader,
                purpose=purpose,
                max_wait_ms=wait_ms,
                persist_offsets=persist_offsets,
                on_moved=self._moved,
                on_round=self._sort,
            )
            for purpose, wait_ms in ((FETCH, max_wait_ms), (FETCH_IDLE, IDLE_WAITS * max_wait_ms))
        )

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def add(self, following: FollowerRole) -> None:
        self.remove(following)
        (self._busy if len(self._busy) < FEW else self._idle).add(following)

    def remove(self, following: FollowerRole) -> None:
        for loop in (self._busy, self._idle):
            loop.remove(following)

    def forget(self, partition: Partition) -> None:
        for loop in (self._busy, self._idle):
            loop.forget(partition)

    def wake(self) -> None:
        for loop in (self._busy, self._idle):
            if loop:
                loop.wake()

    def retire(self) -> None:
        for loop in (self._busy, self._idle):
            loop.retire()

    async def stop(self) -> None:
        for loop in (self._busy, self._idle):
            await loop.stop()

    def _moved(self, following: FollowerRole) -> None:
        if following in self._busy or following in self._idle:
            self.wake()
        else:
            self._on_moved(following)

    def _sort(self, loop: FetchLoop, replied: Sequence[tuple[FollowerRole, bool]]) -> None:
        now = self._clock.monotonic()
        hands_over = loop is self._busy and now >= self._next_hand_over
        for following, had_records in replied:
            if had_records:
                following.busy_until = now + BUSY_S
            if following not in loop:
                continue
            if loop is self._idle and had_records:
                loop.remove(following)
                self._busy.add(following)
            elif hands_over and now >= following.busy_until and len(loop) > FEW:
                loop.remove(following)
                self._idle.add(following)  # at once: it must be in a fetch all the time
                self._next_hand_over = now + HAND_OVER_S
