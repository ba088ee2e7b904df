# SPDX-License-Identifier: Apache-2.0
"""The cluster as it was, from `__headrace_events`: one moment, or played from there on.

Reads from before the moment, so that a snapshot record is among what is read; what that makes of it is
state/replay.py's. Memory is bounded by the chunk that is read at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.current import Current
from headrace.console.observing.event_log import EARLIEST, EventLog
from headrace.console.state.model import Event, Snapshot
from headrace.console.state.recorded import read_recorded
from headrace.console.state.replay import Replay
from headrace.console.views.view import ViewError
from headrace.types import EVENTS_TOPIC

_BACK_MS = (20 * 60_000, 2 * 3_600_000, 24 * 3_600_000)
"""Two intervals between snapshot records; further back where those are written less often."""
_CHUNK_BYTES = 1 << 20
_PER_TURN = 50
_LATE_MS = 1_000
"""Events of several nodes may be out of order, by less than this."""
_FASTEST = 10_000.0
_PRESENT_MS = 1_000
_LANE = "the past"


class Past:
    def __init__(self, calls: BrokerCalls, current: Current) -> None:
        self._log = EventLog(calls, EVENTS_TOPIC)
        self._current = current

    async def at(self, at_ms: int) -> Snapshot:
        return (await self._tape(at_ms)).snapshot(at_ms)

    async def play(self, at_ms: int, speed: float, frame_s: float) -> AsyncGenerator[Snapshot, None]:
        """Ends when it has caught up with the present."""
        if not 0 <= speed <= _FASTEST:
            raise ViewError(
                f"it cannot be played {speed:g} times as fast", next_step="give 0 to 10000", status=400
            )
        tape = await self._tape(at_ms)
        yield tape.snapshot(at_ms)
        loop = asyncio.get_running_loop()
        started = loop.time()
        moment = float(at_ms)
        while speed and moment < self._current.now_ms() - _PRESENT_MS:
            await asyncio.sleep(frame_s)
            moment = at_ms + (loop.time() - started) * 1000 * speed
            moment = min(moment, self._current.now_ms())
            await tape.forward(int(moment))
            yield tape.snapshot(int(moment))

    async def _tape(self, at_ms: int) -> _Tape:
        leader = self._log.leader(self._current.snapshot)
        if leader is None:
            raise ViewError(
                "this cluster records no events, so its past is not known",
                next_step="look at it live; Headrace records events unless headrace.events.enable=false",
            )
        earliest = await self._log.offset_at(leader, EARLIEST)
        await self._check_kept(leader, earliest, at_ms)
        tape = None
        for back_ms in _BACK_MS:
            offset = await self._log.offset_at(leader, at_ms - back_ms)
            tape = _Tape(self._log, leader, offset)
            await tape.forward(at_ms)
            if tape.has_snapshot or offset <= earliest:
                break
        assert tape is not None
        return tape

    async def _check_kept(self, leader: int, earliest: int, at_ms: int) -> None:
        records, _ = await self._log.read(leader, earliest, wait_ms=0, max_bytes=1, lane=_LANE)
        if records and records[0].timestamp > at_ms:
            since = datetime.fromtimestamp(records[0].timestamp / 1000, UTC).isoformat(timespec="seconds")
            raise ViewError(
                "no events are kept for that time",
                next_step=f"the oldest are from {since}; choose a later time",
            )


class _Tape:
    """Events from an offset on, of which those up to a moment are folded."""

    def __init__(self, log: EventLog, leader: int, offset: int) -> None:
        self._log = log
        self._leader = leader
        self._offset = offset
        self._ahead: deque[Event] = deque()
        self._replay = Replay()

    @property
    def has_snapshot(self) -> bool:
        return self._replay.has_snapshot

    def snapshot(self, at_ms: int) -> Snapshot:
        return self._replay.snapshot(at_ms)

    async def forward(self, to_ms: int) -> None:
        while True:
            await self._fold(to_ms)
            if self._ahead and self._ahead[-1].at_ms > to_ms + _LATE_MS:
                return
            records, following = await self._log.read(
                self._leader, self._offset, wait_ms=0, max_bytes=_CHUNK_BYTES, lane=_LANE
            )
            if following == self._offset:
                return
            self._offset = following
            events = (read_recorded(record.value) for record in records)
            self._ahead.extend(event for event in events if event is not None)

    async def _fold(self, to_ms: int) -> None:
        later: list[Event] = []
        taken = 0
        while self._ahead:
            event = self._ahead.popleft()
            if event.at_ms > to_ms:
                later.append(event)
                if event.at_ms > to_ms + _LATE_MS:
                    break
                continue
            self._replay.take(event)
            taken += 1
            if taken % _PER_TURN == 0:
                await asyncio.sleep(0)
        self._ahead.extendleft(reversed(later))
