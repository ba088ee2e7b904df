# SPDX-License-Identifier: Apache-2.0
"""Keeps nodes, topics, leaders and in-sync replicas: asked again when an event says so, and at intervals.

A cluster that records no events is asked every second, and the differences become events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from headrace.client.errors import ClientError, as_flags
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.current import Current
from headrace.console.observing.topology_requests import ask_engine, ask_topology
from headrace.console.state.differences import cluster_differences
from headrace.console.state.event_folding import remember
from headrace.console.state.folding import fold_topology
from headrace.console.state.model import Event, Snapshot
from headrace.console.state.polls import TopologyPoll
from headrace.console.state.recorded import NODE_KINDS, TOPIC_KINDS
from headrace.types import EVENTS_TOPIC, OWN_TOPICS

_EVERY_S = 1.0
_EVERY_WITH_EVENTS_S = 5.0
_CLOSEST_S = 0.15
_AGAIN_S = 0.2
_TIMES_AGAIN = 4
_LONGEST_BACKOFF_S = 5.0
_NO_EVENTS = (
    "This cluster records no events: why and how long groups rebalanced, what happened before the console "
    "was opened, and what came and went between two requests cannot be shown."
)
_NOTHING_YET = "Nothing was recorded in this cluster yet, or events are off: headrace.events.enable=false."
_NO_CONTROLLER = "Apache Kafka does not tell clients which node is the controller."


class Topology:
    def __init__(
        self, calls: BrokerCalls, current: Current, on_answer: Callable[[bool], None] = lambda _: None
    ) -> None:
        """`on_answer` is called after each attempt: whether the cluster answered."""
        self._calls = calls
        self._current = current
        self._on_answer = on_answer
        self._due = asyncio.Event()
        self._failures = 0
        self._again = 0
        """How often to ask again soon: a node that had not heard of a change may have answered."""

    def ask_soon(self) -> None:
        self._due.set()

    async def run(self) -> None:
        while True:
            try:
                await self.refresh()
                self._failures = 0
            except ClientError as error:
                self._failures += 1
                self._current.say_problem(_why(error))
            self._on_answer(self._failures == 0)
            await self._wait()

    async def _wait(self) -> None:
        self._due.clear()
        if self._failures:
            await asyncio.sleep(min(0.1 * 2 ** min(self._failures, 6), _LONGEST_BACKOFF_S))
            return
        await asyncio.sleep(_CLOSEST_S)
        every = _EVERY_WITH_EVENTS_S if self._current.snapshot.records_events else _EVERY_S
        try:
            async with asyncio.timeout(_AGAIN_S if self._again else every):
                await self._due.wait()
            self._again = _TIMES_AGAIN
        except TimeoutError:
            self._again = max(0, self._again - 1)

    async def refresh(self) -> None:
        poll = await ask_topology(self._calls)
        if self._current.snapshot.engine == "unknown" and poll.nodes:
            await self._find_engine(poll)
        at_ms = self._current.now_ms()
        self._current.change(lambda before: _folded(before, poll, at_ms))
        snapshot = self._current.snapshot
        nothing = _NOTHING_YET if snapshot.engine == "headrace" else _NO_EVENTS
        self._current.say_unknown("events", None if snapshot.records_events else nothing)
        self._current.say_unknown("controller", _NO_CONTROLLER if snapshot.engine == "kafka" else None)

    async def _find_engine(self, poll: TopologyPoll) -> None:
        engine = await ask_engine(self._calls, min(poll.nodes))
        if engine == "unknown" and OWN_TOPICS & poll.topics.keys():
            engine = "headrace"
        self._current.change(lambda before: replace(before, engine=engine))


def _folded(before: Snapshot, poll: TopologyPoll, at_ms: int) -> Snapshot:
    after = fold_topology(before, poll, at_ms)
    after = replace(after, records_events=EVENTS_TOPIC in after.topics)
    for event in cluster_differences(before, after):
        if not _is_recorded(after, event):
            after = remember(after, event)
    return after


def _is_recorded(snapshot: Snapshot, event: Event) -> bool:
    """Whether a recorded event says the same, or will."""
    if not snapshot.records_events:
        return False
    if event.kind not in NODE_KINDS | TOPIC_KINDS:
        return True
    return any(
        each.kind == event.kind
        and (each.node, each.topic) == (event.node, event.topic)
        and event.at_ms - each.at_ms < 30_000
        for each in reversed(snapshot.events)
    )


def _why(error: ClientError) -> str:
    """For `headrace top` and the pages of `headrace console`: advice names the flags of their commands."""
    return f"{error.what}; {as_flags(error.next_step)}" if error.next_step else error.what
