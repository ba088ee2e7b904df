# SPDX-License-Identifier: Apache-2.0
"""Keeps what the overviews show, every five seconds: ends of logs, groups with offsets, sizes of disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls, of_each
from headrace.console.observing.current import Current
from headrace.console.observing.group_requests import ask_committed, ask_groups
from headrace.console.observing.lag_samples import LagSampleLog
from headrace.console.observing.offset_requests import Which, ask_offsets
from headrace.console.observing.topology_requests import ask_disks
from headrace.console.state.differences import group_differences
from headrace.console.state.event_folding import remember
from headrace.console.state.folding import fold_disk, fold_ends, fold_problems, fold_starts
from headrace.console.state.group_folding import (
    Place,
    fold_behind,
    fold_committed,
    fold_groups,
    note_assignment,
    sample_lags,
)
from headrace.console.state.model import Snapshot
from headrace.console.state.polls import GroupsPoll, Offsets
from headrace.console.state.rates import Rates
from headrace.types import TopicPartition

EVERY_S = 4.0
"""With the time the requests take, lags are not older than five seconds."""
_STARTS_EVERY = 4
_DISKS_EVERY = 8


class Overview:
    def __init__(
        self,
        calls: BrokerCalls,
        current: Current,
        ends: Rates[TopicPartition],
        commits: Rates[Place],
        samples: LagSampleLog,
        on_silence: Callable[[], None],
    ) -> None:
        """`on_silence` is called when a node did not answer."""
        self._calls = calls
        self._current = current
        self._ends = ends
        self._commits = commits
        self._samples = samples
        self._on_silence = on_silence
        self._round = 0
        self.ready = asyncio.Event()
        """Set when everything was asked for once."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            if self._current.snapshot.nodes:
                await self.refresh()
                self.ready.set()
                await asyncio.sleep(max(EVERY_S - (loop.time() - started), EVERY_S / 4))
            else:
                await self._current.changed_since(self._current.version)

    async def refresh(self) -> None:
        await asyncio.gather(self._ask_ends(), self._ask_groups())
        if self._round % _STARTS_EVERY == 0:
            starts = await self._ask_offsets("start")
            self._current.change(lambda before: fold_starts(before, starts))
        await self._ask_samples()
        if self._round % _DISKS_EVERY == 0:
            await self._ask_disks()
        now = self._current.now_ms()
        self._current.change(lambda before: sample_lags(before, now))
        self._forget()
        self._round += 1

    async def _ask_ends(self) -> None:
        ends = await self._ask_offsets("end")
        now = self._current.now_ms()
        self._current.change(lambda before: fold_ends(before, ends, now, self._ends))

    async def _ask_offsets(self, which: Which) -> Offsets:
        snapshot = self._current.snapshot
        offsets, problems = await ask_offsets(self._calls, snapshot, snapshot.topics.values(), which)
        if which == "end":
            asked = {node_id: problems.get(node_id) for node_id, node in snapshot.nodes.items() if node.up}
            self._current.change(lambda before: fold_problems(before, asked))
            if problems:
                self._on_silence()
        return offsets

    async def _ask_groups(self) -> None:
        live = [node_id for node_id, node in self._current.snapshot.nodes.items() if node.up]
        try:
            poll = await ask_groups(self._calls, live)
        except ClientError as error:
            self._current.say_unknown("groups", f"The groups cannot be listed: {error.what}.")
            return
        self._current.say_unknown("groups", None)
        now = self._current.now_ms()
        self._current.change(partial(groups_folded, poll=poll, at_ms=now, whole=True))
        committed = await ask_committed(self._calls, self._current.snapshot.groups.values())
        now = self._current.now_ms()
        self._current.change(lambda before: fold_committed(before, committed, now, self._commits))

    async def _ask_samples(self) -> None:
        """Lag in time, of clusters that keep samples; elsewhere only the open page's is known."""
        snapshot = self._current.snapshot
        try:
            if not await self._samples.update(snapshot):
                return
        except ClientError:
            return  # asked again in the next round
        behind = {
            group_id: self._samples.behind(snapshot, group, self._current.now_ms())
            for group_id, group in snapshot.groups.items()
            if group.progress
        }
        self._current.change(lambda before: fold_behind(before, behind))

    async def _ask_disks(self) -> None:
        live = [node_id for node_id, node in self._current.snapshot.nodes.items() if node.up]
        answers = await of_each(live, partial(ask_disks, self._calls))
        refused = [answer for answer in answers.values() if isinstance(answer, ClientError)]
        sentence = f"Sizes of logs and disks cannot be read: {refused[0].what}." if refused else None
        self._current.say_unknown("disks", sentence)
        for node_id, answer in answers.items():
            if not isinstance(answer, ClientError):
                self._current.change(partial(fold_disk, node_id=node_id, poll=answer))

    def _forget(self) -> None:
        """Rates of what does not exist any more."""
        topics, groups = self._current.snapshot.topics.values(), self._current.snapshot.groups.values()
        self._ends.keep({TopicPartition(each.name, index) for each in topics for index in each.partitions})
        self._commits.keep({(each.group_id, where) for each in groups for where in each.progress})


def groups_folded(before: Snapshot, poll: GroupsPoll, at_ms: int, *, whole: bool) -> Snapshot:
    """With what changed since, as events where the cluster records none."""
    after = fold_groups(before, poll, whole=whole)
    for group_id in poll.groups:
        group, old = after.groups[group_id], before.groups.get(group_id)
        if old is not None and group.members == old.members:
            continue
        if not before.records_events:
            for event in group_differences(old, group, at_ms):
                after = remember(after, event)
        after = note_assignment(after, group_id, at_ms)
    return after
