"""The memory that requests hold while they arrive, for all connections of a node together (S1).

Whoever finds none waits. One holder at a time may go beyond the limit: frames that each have a part of the
memory and wait for the rest would otherwise wait for each other for ever. Read next: connection.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.broker.metrics import Metrics


class Holder(Protocol):
    def memory_returned(self) -> None:
        """Try again: others gave memory back."""


class FrameMemory:
    """At most `limit_bytes`, and one frame more. `metrics.frames_bytes` is the sum of what is held."""

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
        self._call_soon = call_soon
        self._drop_idle_buffers = drop_idle_buffers
        self._waiting: dict[Holder, None] = {}
        self._favoured: Holder | None = None
        self._handing_out = False

    @property
    def short(self) -> bool:
        """Nobody should hold on to what it does not need now."""
        return self.used_up or bool(self._waiting)

    def reserve(self, holder: Holder, byte_count: int) -> bool:
        """False: the holder is told when it may ask again."""
        if self._metrics.frames_bytes + byte_count > self._limit_bytes and not self._waiting:
            self._drop_idle_buffers()
        if self._metrics.frames_bytes + byte_count > self._limit_bytes:
            if self._favoured not in (None, holder):
                self._waiting[holder] = None
                return False
            self._favoured = holder
        self.take(byte_count)
        return True

    def take(self, byte_count: int) -> None:
        """For bytes that have arrived already: they are there, whatever the limit says."""
        self._metrics.frames_bytes += byte_count
        self.used_up = self._metrics.frames_bytes >= self._limit_bytes

    def give_back(self, byte_count: int) -> None:
        self._metrics.frames_bytes -= byte_count
        self.used_up = self._metrics.frames_bytes >= self._limit_bytes
        self._hand_out_soon()

    def frame_done(self, holder: Holder) -> None:
        """The holder needs no more, for this frame or for ever."""
        self._waiting.pop(holder, None)
        if self._favoured is holder:
            self._favoured = None
            self._hand_out_soon()

    def _hand_out_soon(self) -> None:
        if self._waiting and not self._handing_out:
            self._handing_out = True
            self._call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """To those who wait longest, until one is refused again."""
        self._handing_out = False
        for holder in list(self._waiting):
            del self._waiting[holder]
            holder.memory_returned()
            if holder in self._waiting:
                return
