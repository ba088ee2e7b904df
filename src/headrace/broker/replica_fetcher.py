"""All partitions in which this node follows one leader, in two lanes: the busy ones and the others.

Those without records for a while share a poll of their own, so that whoever gets records is asked for without
a look at all the others each time. Read next: fetch_lane.py; replication.py (who follows whom).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from headrace.broker.fetch_lane import FetchLane
from headrace.broker.peers import FETCH, FETCH_IDLE, Peers
from headrace.broker.replica_role import Following
from headrace.world import World

FEW = 4
"""So many partitions are never sorted: looking at them costs less."""
BUSY_S = 2.0
HAND_OVER_S = 2.0
"""Between two times at which quiet partitions join the others, whose poll is ended for them."""
IDLE_WAITS = 8
"""So much longer the poll of quiet partitions lasts: a record in any of them ends it at once."""


class ReplicaFetcher:
    def __init__(
        self,
        world: World,
        peers: Peers,
        leader: int,
        *,
        max_wait_ms: int,
        persist_offsets: Callable[[], Awaitable[None]],
        on_moved: Callable[[Following], None],
    ) -> None:
        """`on_moved`: work on a partition ended that follows another leader by now."""
        self._clock = world.clock
        self._on_moved = on_moved
        self._next_hand_over = 0.0
        self._busy, self._idle = (
            FetchLane(
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

    def add(self, following: Following) -> None:
        self.remove(following)
        (self._busy if len(self._busy) < FEW else self._idle).add(following)

    def remove(self, following: Following) -> None:
        for lane in (self._busy, self._idle):
            lane.remove(following)

    def look_again(self) -> None:
        for lane in (self._busy, self._idle):
            if lane:
                lane.look_again()

    def retire(self) -> None:
        for lane in (self._busy, self._idle):
            lane.retire()

    async def stop(self) -> None:
        for lane in (self._busy, self._idle):
            await lane.stop()

    def _moved(self, following: Following) -> None:
        if following in self._busy or following in self._idle:
            self.look_again()
        else:
            self._on_moved(following)

    def _sort(self, lane: FetchLane, told: Sequence[tuple[Following, bool]]) -> None:
        now = self._clock.monotonic()
        hands_over = lane is self._busy and now >= self._next_hand_over
        for following, had_records in told:
            if had_records:
                following.busy_until = now + BUSY_S
            if following not in lane:
                continue
            if lane is self._idle and had_records:
                lane.remove(following)
                self._busy.add(following)
            elif hands_over and now >= following.busy_until and len(lane) > FEW:
                lane.remove(following)
                self._idle.add(following)  # at once: else nobody would ask for its next record meanwhile
                self._next_hand_over = now + HAND_OVER_S
