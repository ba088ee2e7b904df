# SPDX-License-Identifier: Apache-2.0
"""Answers of coordinators, folded into a snapshot's groups. Pure: times are arguments.

Read next: group_snapshots.py (recorded groups), observing/lag_samples.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.client.tools.lag import TimeBehind
from headrace.console.state.folding import find_partition
from headrace.console.state.model import Assignment, GroupState, MemberState, ProgressState, Snapshot
from headrace.console.state.polls import GroupsPoll, Offsets
from headrace.console.state.rates import Rates
from headrace.types import TopicPartition

Place = tuple[str, TopicPartition]
"""A group and a partition it reads."""

LAG_SAMPLES = 120
_SAMPLE_EVERY_MS = 3_500
_MOST_ASSIGNMENTS = 24


def fold_groups(before: Snapshot, poll: GroupsPoll, *, whole: bool = True) -> Snapshot:
    """Members and states. `whole`: the poll has all groups, so those that are missing do not exist."""
    groups = {group_id: _group(before.groups.get(group_id), group) for group_id, group in poll.groups.items()}
    kept = before.groups.items()
    if whole:
        kept = [(name, group) for name, group in kept if group.coordinator in poll.silent]  # type: ignore[assignment]
    groups = {**dict(kept), **groups}
    gone = before.groups.keys() - groups.keys()
    return replace(
        before,
        groups=dict(sorted(groups.items())),
        lag_history={name: seen for name, seen in before.lag_history.items() if name not in gone},
    )


def note_assignment(before: Snapshot, group_id: str, at_ms: int) -> Snapshot:
    """Adds the group's present assignment, unless it is the newest known one."""
    group, seen = before.groups.get(group_id), before.assignments.get(group_id, ())
    if group is None or (not any(member.assigned for member in group.members) and not seen):
        return before
    if seen and _shares(seen[-1].members) == _shares(group.members):
        return before
    kept = (*seen[-_MOST_ASSIGNMENTS + 1 :], Assignment(at_ms=at_ms, members=group.members))
    return replace(before, assignments={**before.assignments, group_id: kept})


def _shares(members: tuple[MemberState, ...]) -> dict[str, tuple[TopicPartition, ...]]:
    return {member.member_id: member.assigned for member in members}


def _group(old: GroupState | None, new: GroupState) -> GroupState:
    if old is None:
        return new
    members = tuple(_member(old, member) for member in new.members)
    return replace(
        new, members=members, progress=old.progress, epoch=old.epoch if new.epoch is None else new.epoch
    )


def _member(old: GroupState, new: MemberState) -> MemberState:
    for known in old.members:
        if known.member_id == new.member_id:
            return replace(new, joined_ms=known.joined_ms, last_commit_ms=known.last_commit_ms)
    return new


def fold_committed(
    before: Snapshot,
    committed: Mapping[str, Offsets],
    at_ms: int,
    rates: Rates[Place],
    *,
    whole: bool = True,
) -> Snapshot:
    """Committed offsets of groups. `whole`: all of each group's, so those that are missing are deleted."""
    changed: dict[str, GroupState] = {}
    for group_id, offsets in committed.items():
        group = before.groups.get(group_id)
        if group is not None:
            rates.note({(group_id, where): offset for where, offset in offsets.items()}, at_ms)
            changed[group_id] = _with_committed(before, group, offsets, at_ms, rates, whole)
    if not changed:
        return before
    return replace(before, at_ms=at_ms, groups={**before.groups, **changed})


def _with_committed(
    before: Snapshot, group: GroupState, offsets: Offsets, at_ms: int, rates: Rates[Place], whole: bool
) -> GroupState:
    progress = {} if whole else dict(group.progress)
    for where, offset in offsets.items():
        old = group.progress.get(where) or ProgressState()
        progress[where] = replace(
            old,
            committed=offset,
            rate_out=rates.rate((group.group_id, where)),
            behind_since_ms=_behind_since(before, old, where, offset, at_ms),
        )
    return replace(group, progress=progress)


def _behind_since(
    snapshot: Snapshot, old: ProgressState, where: TopicPartition, committed: int, at_ms: int
) -> int | None:
    partition = find_partition(snapshot, where)
    if partition is None or partition.end is None or committed >= partition.end:
        return None
    if old.behind_since_ms is not None:
        return old.behind_since_ms
    return at_ms - old.behind_ms if old.behind_ms else at_ms


def fold_positions(before: Snapshot, positions: Mapping[str, Offsets]) -> Snapshot:
    """What the owners' last fetches asked for, of the groups that were asked about."""
    changed = {}
    for group_id, offsets in positions.items():
        group = before.groups.get(group_id)
        if group is not None:
            places = [*group.progress, *(where for where in offsets if where not in group.progress)]
            progress = {
                where: replace(group.progress.get(where) or ProgressState(), position=offsets.get(where))
                for where in places
            }
            changed[group_id] = replace(group, progress=progress)
    return replace(before, groups={**before.groups, **changed}) if changed else before


def fold_behind(before: Snapshot, behind: Mapping[str, Mapping[TopicPartition, TimeBehind]]) -> Snapshot:
    changed = {}
    for group_id, times in behind.items():
        group = before.groups.get(group_id)
        if group is not None:
            progress = {
                where: _with_behind(known, times.get(where)) for where, known in group.progress.items()
            }
            changed[group_id] = replace(group, progress=progress)
    return replace(before, groups={**before.groups, **changed}) if changed else before


def _with_behind(known: ProgressState, behind: TimeBehind | None) -> ProgressState:
    milliseconds = None if behind is None else behind.behind_ms
    at_least = behind is not None and behind.at_least
    if (known.behind_ms, known.behind_at_least) == (milliseconds, at_least):
        return known
    return replace(known, behind_ms=milliseconds, behind_at_least=at_least)


def partition_lag(snapshot: Snapshot, where: TopicPartition, progress: ProgressState) -> int | None:
    partition = find_partition(snapshot, where)
    if partition is None or partition.end is None or progress.committed is None:
        return None
    return max(0, partition.end - progress.committed)


def group_lag(snapshot: Snapshot, group: GroupState) -> int | None:
    """None when nothing is known; partitions of which nothing is known do not count."""
    lags = [partition_lag(snapshot, where, known) for where, known in group.progress.items()]
    known_lags = [lag for lag in lags if lag is not None]
    return sum(known_lags) if known_lags else None


def sample_lags(before: Snapshot, at_ms: int) -> Snapshot:
    """Adds a sample of each group's lag, unless the last one is recent."""
    history = dict(before.lag_history)
    for group_id, group in before.groups.items():
        seen = history.get(group_id, ())
        lag = group_lag(before, group)
        if lag is not None and (not seen or at_ms - seen[-1][0] >= _SAMPLE_EVERY_MS):
            history[group_id] = (*seen[-LAG_SAMPLES + 1 :], (at_ms, lag))
    return replace(before, lag_history=history)
