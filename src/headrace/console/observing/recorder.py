# SPDX-License-Identifier: Apache-2.0
"""Follows `__headrace_events` with a long poll, so that a new leader is known when it was recorded.

First it reads the newest part of the topic: what happened before the console was opened. Whether the cluster
records events at all is known from the topics. Read next: state/event_folding.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.current import Current
from headrace.console.observing.event_log import EARLIEST, LATEST, EventLog
from headrace.console.state.event_folding import (
    apply,
    committed_offsets,
    remember,
)
from headrace.console.state.group_folding import Place, fold_committed
from headrace.console.state.group_snapshots import note_recorded_assignment
from headrace.console.state.model import Event, Snapshot
from headrace.console.state.rates import Rates
from headrace.console.state.recorded import STATE_KINDS, read_recorded
from headrace.types import EVENTS_TOPIC
from headrace.wire.records import Record

_WAIT_MS = 2_000
_MOST_BYTES = 1 << 20
_BEFORE = 10_000
"""How many records from before the console was opened are read."""
_PAUSE_S = 0.1
"""Between two answers, so that a busy topic does not take the whole budget."""
_PER_TURN = 100
_LOOK_AGAIN_S = 2.0
TOPOLOGY_KINDS = frozenset(
    {
        "leader", "isr", "node_up", "node_down", "controller", "topic_created", "topic_deleted",
        "partitions_added", "offline", "online",
    }
)  # fmt: skip
_NOT_POLLED = frozenset({"disk_full", "disk_room"})
_MEMBERSHIP_KINDS = frozenset({"join", "rejoin", "leave", "assigned", "reconcile", "empty", "deleted"})


class Recorder:
    """`on_change` is called with "topology", or with the id of a group whose members changed."""

    def __init__(
        self,
        calls: BrokerCalls,
        current: Current,
        commits: Rates[Place],
        on_change: Callable[[str, str], None],
    ) -> None:
        self.log = EventLog(calls, EVENTS_TOPIC)
        self._current = current
        self._commits = commits
        self._on_change = on_change
        self._offset: int | None = None

    async def run(self) -> None:
        while True:
            leader = self.log.leader(self._current.snapshot)
            if leader is None:
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            try:
                await self._follow(leader)
            except ClientError as error:
                if error.code == "OFFSET_OUT_OF_RANGE":
                    self._offset = None
                self._on_change("topology", "")
                await asyncio.sleep(2 * _PAUSE_S)

    async def _follow(self, leader: int) -> None:
        """Until the node does not answer any more, or is not the leader."""
        if self._offset is None:
            await self._read_before(leader)
        while True:
            assert self._offset is not None
            records, self._offset = await self.log.read(
                leader, self._offset, wait_ms=_WAIT_MS, max_bytes=_MOST_BYTES
            )
            await self._take(records)
            await asyncio.sleep(_PAUSE_S)
            if self.log.leader(self._current.snapshot) != leader:
                return

    async def _read_before(self, leader: int) -> None:
        """What was recorded until now is remembered; of its state only what no poll tells is applied."""
        earliest = await self.log.offset_at(leader, EARLIEST)
        await self._find_oldest(leader, earliest)
        end = await self.log.offset_at(leader, LATEST)
        offset = max(earliest, end - _BEFORE)
        while offset < end:
            records, following = await self.log.read(leader, offset, wait_ms=0, max_bytes=_MOST_BYTES)
            if following == offset:
                break
            offset = following
            await self._fold(records, _remembered)
        self._offset = max(offset, end)

    async def _find_oldest(self, leader: int, earliest: int) -> None:
        records, _ = await self.log.read(leader, earliest, wait_ms=0, max_bytes=1)
        if records:
            oldest = records[0].timestamp
            self._current.change(lambda before: replace(before, events_from_ms=oldest))

    async def _take(self, records: list[Record]) -> None:
        for event in await self._fold(records, self._folded):
            if event.kind in TOPOLOGY_KINDS:
                self._on_change("topology", "")
            elif event.kind in _MEMBERSHIP_KINDS and event.group is not None:
                self._on_change("group", event.group)

    async def _fold(self, records: list[Record], fold: Callable[[Snapshot, Event], Snapshot]) -> list[Event]:
        found = [event for record in records if (event := read_recorded(record.value)) is not None]
        for start in range(0, len(found), _PER_TURN):
            some = found[start : start + _PER_TURN]
            self._current.change(partial(_fold_all, events=some, fold=fold))
            await asyncio.sleep(0)
        return found

    def _folded(self, before: Snapshot, event: Event) -> Snapshot:
        after = remember(apply(before, event), event)
        if event.kind == "commit" and event.group is not None:
            offsets = {event.group: committed_offsets(event)}
            after = fold_committed(after, offsets, event.at_ms, self._commits, whole=False)
        return after


def _remembered(before: Snapshot, event: Event) -> Snapshot:
    after = remember(before, event)
    return apply(after, event) if event.kind in _NOT_POLLED else after


def _fold_all(before: Snapshot, events: list[Event], fold: Callable[[Snapshot, Event], Snapshot]) -> Snapshot:
    for event in events:
        if event.kind == "group_snapshot" and event.details.get("parts") == 1:
            before = note_recorded_assignment(before, event)
        elif event.kind not in STATE_KINDS:
            before = fold(before, event)
    return before
