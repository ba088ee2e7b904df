# SPDX-License-Identifier: Apache-2.0
"""Keeps what open pages of topics and groups show: offsets three times a second, details every five seconds.

With many pages open at once each is asked less often: the budget of requests is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from headrace.client.errors import ClientError
from headrace.client.tools.group_calls import GroupMember
from headrace.client.tools.lag import TimeBehind, time_behind_by_timestamp
from headrace.client.tools.positions import Reader, position_of
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.observing.current import Current
from headrace.console.observing.group_requests import ask_committed, describe
from headrace.console.observing.lag_samples import LagSampleLog
from headrace.console.observing.offset_requests import ask_offsets
from headrace.console.observing.overview import groups_folded
from headrace.console.observing.topic_details import ask_details
from headrace.console.observing.topic_requests import ask_readers
from headrace.console.state.folding import fold_ends, fold_last_stable, fold_starts
from headrace.console.state.group_folding import (
    Place,
    fold_behind,
    fold_committed,
    fold_positions,
    partition_lag,
)
from headrace.console.state.model import GroupState, Snapshot, TopicState
from headrace.console.state.polls import GroupsPoll, Offsets
from headrace.console.state.rates import Rates
from headrace.console.views.view import Interest
from headrace.types import TopicPartition

EVERY_S = 0.35
_SOONEST_S = 0.05
"""Between two rounds, also when the members of an open group changed."""
_DETAILS_EVERY = 14
_MEMBERS_EVERY = 6
_STARTS_EVERY = 6
_MOST_GROUPS_OF_TOPIC = 50
MOST_AGED = 64
"""Partitions of which the next record's timestamp is read."""
AgeOf = Callable[[dict[TopicPartition, int]], Awaitable[dict[TopicPartition, int]]]


class OpenPages:
    def __init__(
        self,
        calls: BrokerCalls,
        current: Current,
        ends: Rates[TopicPartition],
        commits: Rates[Place],
        samples: LagSampleLog,
        interest: Callable[[], Interest],
        timestamps: AgeOf,
    ) -> None:
        self._calls = calls
        self._current = current
        self._ends = ends
        self._commits = commits
        self._samples = samples
        self._interest = interest
        self._timestamps = timestamps
        self._round = 0
        self._due: set[str] = set()
        """Groups whose members changed."""
        self._has_due = asyncio.Event()
        self._detailed: frozenset[str] = frozenset()
        self._aged: dict[str, dict[TopicPartition, TimeBehind]] = {}

    def members_changed(self, group_id: str) -> None:
        self._due.add(group_id)
        if group_id in self._interest().groups:
            self._has_due.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            with suppress(ClientError):  # topology.py says what is wrong; the next round asks again
                await self.refresh()
            await asyncio.sleep(_SOONEST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(started + EVERY_S):
                    await self._has_due.wait()

    async def refresh(self) -> None:
        snapshot, interest = self._current.snapshot, self._interest()
        topics = self._topics(snapshot, interest)
        groups = self._groups(snapshot, interest)
        await self._ask_members(interest)
        if topics or groups:
            await asyncio.gather(self._ask_offsets(topics), self._ask_committed(groups))
        new_pages = interest.topics - self._detailed
        if topics and (new_pages or self._round % _DETAILS_EVERY == 0):
            self._detailed = interest.topics
            for name in sorted(interest.topics):
                await self._ask_details(name)
        if groups and self._round % 2 == 0:
            await self._ask_positions(groups)
            await self._ask_behind(groups)
        self._round += 1

    def _topics(self, snapshot: Snapshot, interest: Interest) -> list[TopicState]:
        """The open ones, and those that the open groups read."""
        names = set(interest.topics)
        for group_id in interest.groups:
            group = snapshot.groups.get(group_id)
            if group is not None:
                names.update(where.topic for where in group.progress)
                names.update(where.topic for member in group.members for where in member.assigned)
        return [snapshot.topics[name] for name in sorted(names) if name in snapshot.topics]

    def _groups(self, snapshot: Snapshot, interest: Interest) -> list[GroupState]:
        """The open ones, and those that read the open topics."""
        found = [group for group_id in interest.groups if (group := snapshot.groups.get(group_id))]
        if interest.topics:
            readers = [
                group
                for group in snapshot.groups.values()
                if group.group_id not in interest.groups and reads(group, interest.topics)
            ]
            found += readers[:_MOST_GROUPS_OF_TOPIC]
        return found

    async def _ask_offsets(self, topics: list[TopicState]) -> None:
        snapshot = self._current.snapshot
        ends, _ = await ask_offsets(self._calls, snapshot, topics, "end")
        now = self._current.now_ms()
        self._current.change(lambda before: fold_ends(before, ends, now, self._ends))
        if self._round % _STARTS_EVERY == 0:
            starts, _ = await ask_offsets(self._calls, snapshot, topics, "start")
            self._current.change(lambda before: fold_starts(before, starts))

    async def _ask_committed(self, groups: list[GroupState]) -> None:
        committed = await ask_committed(self._calls, groups)
        now = self._current.now_ms()
        self._current.change(lambda before: fold_committed(before, committed, now, self._commits))

    async def _ask_members(self, interest: Interest) -> None:
        """Where events are recorded, when one says that members changed; else every two seconds."""
        snapshot = self._current.snapshot
        wanted = interest.groups & self._due
        if self._round % _MEMBERS_EVERY == 0 or not snapshot.records_events:
            wanted = interest.groups
        self._due.clear()
        self._has_due.clear()
        asked = {name: snapshot.groups[name] for name in wanted if name in snapshot.groups}
        if asked:
            poll = GroupsPoll(groups=await describe(self._calls, asked))
            now = self._current.now_ms()
            self._current.change(partial(groups_folded, poll=poll, at_ms=now, whole=False))

    async def _ask_details(self, name: str) -> None:
        topic = self._current.snapshot.topics.get(name)
        if topic is None:
            return
        configs, details, problems = await ask_details(self._calls, self._current.snapshot, topic)
        for subject, sentence in problems.items():
            self._current.say_unknown(subject, sentence)

        def with_details(before: Snapshot) -> Snapshot:
            known = before.topics.get(name)
            if known is None:
                return before
            changed = replace(known, configs=configs or known.configs, details=details)
            return replace(before, topics={**before.topics, name: changed})

        self._current.change(with_details)
        stable, _ = await ask_offsets(self._calls, self._current.snapshot, [topic], "last_stable")
        self._current.change(lambda before: fold_last_stable(before, stable))

    async def _ask_positions(self, groups: list[GroupState]) -> None:
        if self._current.snapshot.engine != "headrace":
            return
        snapshot = self._current.snapshot
        names = {where.topic for group in groups for member in group.members for where in member.assigned}
        topics = [snapshot.topics[name] for name in sorted(names) if name in snapshot.topics]
        readers = await ask_readers(self._calls, topics)
        positions = {group.group_id: positions_of(group, readers) for group in groups}
        self._current.change(lambda before: fold_positions(before, positions))

    async def _ask_behind(self, groups: list[GroupState]) -> None:
        """By samples where the cluster keeps them; else by the timestamp of the next record."""
        snapshot, now = self._current.snapshot, self._current.now_ms()
        found = {}
        for stale in groups:
            group = snapshot.groups.get(stale.group_id)
            if group is not None:
                found[group.group_id] = self._samples.behind(snapshot, group, now)
        missing = _lagging_without(snapshot, groups, found)
        if missing and self._round % _DETAILS_EVERY == 0:
            await self._ask_ages(groups, missing)
        for group_id, times in found.items():
            for where, aged in self._aged.get(group_id, {}).items():
                times.setdefault(where, aged)
        self._current.change(lambda before: fold_behind(before, found))

    async def _ask_ages(self, groups: list[GroupState], missing: dict[TopicPartition, int]) -> None:
        timestamps = await self._timestamps(missing)
        now = self._current.now_ms()
        ages = {where: time_behind_by_timestamp(stamp, now) for where, stamp in timestamps.items()}
        self._aged = {
            group.group_id: {where: age for where in group.progress if (age := ages.get(where)) is not None}
            for group in groups
        }


def reads(group: GroupState, topics: frozenset[str]) -> bool:
    return any(where.topic in topics for where in group.progress) or any(
        where.topic in topics for member in group.members for where in member.assigned
    )


def positions_of(group: GroupState, readers: dict[TopicPartition, list[Reader]]) -> Offsets:
    found = {}
    for member in group.members:
        known = GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.host,
            assigned=member.assigned,
        )
        for where in member.assigned:
            position = position_of(known, readers.get(where, ()))
            if position is not None:
                found[where] = position
    return found


def _lagging_without(
    snapshot: Snapshot, groups: list[GroupState], found: dict[str, dict[TopicPartition, TimeBehind]]
) -> dict[TopicPartition, int]:
    """The next offset of partitions that lag, and of which the time is not known. Of several groups that
    read a partition, the first counts."""
    missing: dict[TopicPartition, int] = {}
    for stale in groups:
        group = snapshot.groups.get(stale.group_id, stale)
        for where, progress in group.progress.items():
            lag = partition_lag(snapshot, where, progress)
            if lag and progress.committed is not None and where not in found.get(group.group_id, {}):
                missing.setdefault(where, progress.committed)
    return dict(list(missing.items())[:MOST_AGED])
