# SPDX-License-Identifier: Apache-2.0
"""Limits the memory for requests and their unsent replies, for all connections of a node together (S1).

A connection that finds none waits; the client address that holds least is served first, and a quarter is kept
for other addresses than the greediest. One frame at a time may exceed the limit, and one of each address its
share: frames that each have a part of the memory and wait for the rest would otherwise block each other.
While somebody waits, clients that neither send nor read are closed. Knows no sockets.
Read next: connection.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.broker.metrics import Metrics

K = TypeVar("K")

SLOWEST_BYTES_PER_TICK = 1024
"""A client that moves less in a tick (a second) makes no progress."""
STALLED_TICKS = 2
"""Without progress for so long, a client is closed when others wait for memory."""
_HANDED_OUT_AT_ONCE = 100
"""Connections that are asked in one turn of the event loop."""


class Holder(Protocol):
    """A connection, as far as its memory is concerned."""

    address: str
    """Of the client."""

    @property
    def has_memory_of_its_own(self) -> bool:
        """It is never kept waiting: another node of the cluster."""

    @property
    def awaited_bytes(self) -> int | None:
        """A count that changes as the client sends its frame or reads its reply; None: it is our turn."""

    def memory_returned(self) -> None:
        """Memory was returned: reserve again."""

    def refuse(self, reason: str) -> None:
        """Closes the connection."""


class FrameMemory:
    """`reserve` waits at `limit_bytes`, which one frame may exceed; `take` counts what is there already.

    `metrics.frames_bytes` is the sum of what is held.
    """

    def __init__(
        self,
        metrics: Metrics,
        limit_bytes: int,
        call_soon: Callable[[Callable[[], None]], None],
        drop_idle_buffers: Callable[[], None],
    ) -> None:
        self.used_up = False
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._share_bytes = limit_bytes - limit_bytes // 4
        self._call_soon = call_soon
        self._drop_idle_buffers = drop_idle_buffers
        self._held: Counter[Holder] = Counter()
        self._held_by_address: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[Holder, None]] = {}
        self._above_limit: Holder | None = None
        self._above_share: dict[str, Holder] = {}
        self._slow: dict[Holder, tuple[int, int]] = {}  # bytes at the last tick, ticks without progress
        self._handing_out = False

    @property
    def short(self) -> bool:
        """Buffers that are not needed now should be returned."""
        return self.used_up or bool(self._waiting)

    def reserve(self, holder: Holder, byte_count: int) -> bool:
        """False: `memory_returned` of the holder is called when it may try again."""
        if not self._fits(holder, byte_count) and not holder.has_memory_of_its_own:
            if not self._waiting:
                self._drop_idle_buffers()
            if not self._may_exceed(holder, byte_count):
                self._waiting.setdefault(holder.address, OrderedDict())[holder] = None
                return False
        self.take(holder, byte_count)
        return True

    def _within_limit(self, byte_count: int) -> bool:
        return self._metrics.frames_bytes + byte_count <= self._limit_bytes

    def _within_share(self, holder: Holder, byte_count: int) -> bool:
        return self._held_by_address[holder.address] + byte_count <= self._share_bytes

    def _fits(self, holder: Holder, byte_count: int) -> bool:
        return self._within_limit(byte_count) and self._within_share(holder, byte_count)

    def _may_exceed(self, holder: Holder, byte_count: int) -> bool:
        """Whether it fits, or may exceed what it does not fit into: from now on, it alone."""
        within_limit = self._within_limit(byte_count)
        within_share = self._within_share(holder, byte_count)
        if not within_limit and self._above_limit not in (None, holder):
            return False
        if not within_share and self._above_share.get(holder.address, holder) is not holder:
            return False
        if not within_limit:
            self._above_limit = holder
        if not within_share:
            self._above_share[holder.address] = holder
        return True

    def take(self, holder: Holder, byte_count: int) -> None:
        """Counts bytes that are in memory already, whatever the limit."""
        self._held[holder] += byte_count
        self._held_by_address[holder.address] += byte_count
        self._metrics.frames_bytes += byte_count
        self.used_up = self._metrics.frames_bytes >= self._limit_bytes

    def give_back(self, holder: Holder, byte_count: int) -> None:
        _subtract(self._held, holder, byte_count)
        _subtract(self._held_by_address, holder.address, byte_count)
        self._metrics.frames_bytes -= byte_count
        self.used_up = self._metrics.frames_bytes >= self._limit_bytes
        self._hand_out_soon()

    def frame_done(self, holder: Holder) -> None:
        """The holder needs no more memory for its frame."""
        self._forget_waiting(holder)
        was_above = self._above_limit is holder
        if was_above:
            self._above_limit = None
        if self._above_share.get(holder.address) is holder:
            del self._above_share[holder.address]
            was_above = True
        if was_above:
            self._hand_out_soon()

    def _forget_waiting(self, holder: Holder) -> None:
        waiting = self._waiting.get(holder.address)
        if waiting is not None:
            waiting.pop(holder, None)
            if not waiting:
                del self._waiting[holder.address]

    def _hand_out_soon(self) -> None:
        if self._waiting and not self._handing_out:
            self._handing_out = True
            self._call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Lets connections reserve again: of the address that holds least, the longest waiting one first."""
        self._handing_out = False
        passed_over: set[str] = set()
        for _ in range(_HANDED_OUT_AT_ONCE):
            addresses = self._waiting.keys() - passed_over
            if not addresses:
                return
            address = min(addresses, key=lambda each: (self._held_by_address[each], each))
            holder = next(iter(self._waiting[address]))
            self._forget_waiting(holder)
            holder.memory_returned()
            if holder in self._waiting.get(address, ()):
                self._waiting[address].move_to_end(holder, last=False)
                passed_over.add(address)
        self._hand_out_soon()

    # Once a second

    def next_tick(self) -> None:
        """Closes the clients that hold memory and make no progress, if others wait for it."""
        if not self._waiting:
            self._slow.clear()
            return
        slow: dict[Holder, tuple[int, int]] = {}
        for holder in self._held:
            moved = holder.awaited_bytes
            if moved is None:
                continue
            last, ticks = self._slow.get(holder, (moved, -1))
            slow[holder] = moved, 0 if abs(moved - last) >= SLOWEST_BYTES_PER_TICK else ticks + 1
        self._slow = slow
        for holder in [holder for holder, (_, ticks) in slow.items() if ticks >= STALLED_TICKS]:
            del slow[holder]
            holder.refuse(
                f"others wait for memory, and this client moved less than {SLOWEST_BYTES_PER_TICK} bytes "
                f"a second for {STALLED_TICKS} s"
            )


def _subtract(counter: Counter[K], key: K, count: int) -> None:
    counter[key] -= count
    if not counter[key]:
        del counter[key]
