# SPDX-License-Identifier: Apache-2.0
"""Report of one group: members, lag by partition, and when the lag will be gone.

`GroupWatch` polls the cluster; rates come from successive polls. Arithmetic: lag.py; requests: groups.py.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.client.cluster import Cluster
from headrace.client.tools.groups import GroupDescription, GroupMember, Groups
from headrace.client.tools.lag import (
    Forecast,
    Sighting,
    TimeBehind,
    forecast,
    rate_of,
    records_behind,
    time_behind,
    time_behind_by_timestamp,
)
from headrace.client.tools.lag_samples import SampleReader, timestamps_at
from headrace.client.tools.positions import current_positions
from headrace.types import TopicPartition

WINDOW_MS = 60_000
POLL_INTERVAL_MS = 500
_ENOUGH_STEPS = 3
_SHORTEST_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    partition: TopicPartition
    member: GroupMember | None
    position: int | None
    """The offset that the member asked for last; None when unknown, as on Apache Kafka."""
    committed: int | None
    start: int | None
    end: int | None
    """None when the topic was deleted."""
    lag: int | None
    behind: TimeBehind | None
    rate_in: float | None
    rate_out: float | None
    forecast: Forecast | None
    """Of all partitions of its consumer together; None until their rates were seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    group: GroupDescription
    partitions: tuple[PartitionReport, ...]
    watched_ms: int

    @property
    def lag(self) -> int:
        return total_lag(partition.lag for partition in self.partitions)

    @property
    def uncommitted(self) -> int:
        """Partitions that have an owner but no committed offset."""
        return sum(partition.committed is None for partition in self.partitions)


def total_lag(lags: Iterable[int | None]) -> int:
    return sum(lag for lag in lags if lag is not None)


def with_forecasts(partitions: Sequence[PartitionReport]) -> tuple[PartitionReport, ...]:
    """When each lag is gone. A consumer divides its time between its partitions, so what counts is when
    all of them are caught up."""
    by_owner: dict[object, list[PartitionReport]] = defaultdict(list)
    for partition in partitions:
        owner = partition.member.member_id if partition.member else partition.partition
        if partition.lag is not None:
            by_owner[owner].append(partition)
    said: dict[TopicPartition, Forecast] = {}
    for shared in by_owner.values():
        known = all(each.rate_in is not None and each.rate_out is not None for each in shared)
        lag = total_lag(each.lag for each in shared)
        rate_in, rate_out = (sum(rates) for rates in zip(*map(_rates, shared), strict=True))
        for each in shared:
            if each.lag == 0:
                said[each.partition] = forecast(0, 0, 0)
            elif known:
                said[each.partition] = forecast(lag, rate_in, rate_out)
    return tuple(replace(each, forecast=said.get(each.partition)) for each in partitions)


def _rates(partition: PartitionReport) -> tuple[float, float]:
    return partition.rate_in or 0.0, partition.rate_out or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of partitions besides committed offsets and ends, which are kept for the rates."""

    owners: Mapping[TopicPartition, GroupMember]
    positions: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    behind: Mapping[TopicPartition, TimeBehind]


class GroupWatch:
    def __init__(
        self,
        bootstrap: str | Cluster,
        group_id: str,
        *,
        groups: Groups | None = None,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._now_ms = now_ms
        self.groups = groups or Groups(bootstrap)
        self._samples = SampleReader(bootstrap, self.groups)
        self._group: GroupDescription | None = None
        self._commits: dict[TopicPartition, deque[Sighting]] = {}
        self._ends: dict[TopicPartition, deque[Sighting]] = {}

    def poll(self) -> GroupDescription:
        """Requests members, committed offsets and log end offsets."""
        self._group = self.groups.describe_group(self._group_id)
        committed = self.groups.committed(self._group_id)
        now = self._now_ms()
        ends = self.groups.ends({*committed, *self._group.assigned})
        self._remember(self._commits, committed, now)
        self._remember(self._ends, ends, now)
        return self._group

    def measure(self, over_ms: int, sleep: Callable[[float], None] = time.sleep) -> None:
        """Polls for a while if there is a lag, until every lagging partition has moved often enough."""
        stop = self._now_ms() + over_ms
        started = self._now_ms()
        while self._group is not None and self._group.active and self._now_ms() < stop:
            lagging = [where for where, end in self._ends.items() if self._lag(where, end[-1].offset)]
            measured = all(self._steps(where) >= _ENOUGH_STEPS for where in lagging)
            if not lagging or (measured and self._now_ms() - started >= _SHORTEST_MS):
                return
            sleep(POLL_INTERVAL_MS / 1000)
            self.poll()

    def report(self) -> GroupReport:
        group = self._group or self.poll()
        now = self._now_ms()
        owners = group.assigned
        wanted = sorted({*self._commits, *owners})
        known = _Known(
            owners=owners,
            positions=current_positions(self._bootstrap, owners),
            starts=self.groups.ends(wanted, "earliest"),
            behind=self._behind(wanted, now),
        )
        partitions = (self._partition(where, known) for where in wanted)
        return GroupReport(
            group=group,
            partitions=with_forecasts(list(partitions)),
            watched_ms=max((_span_ms(seen) for seen in self._ends.values()), default=0),
        )

    def _partition(self, where: TopicPartition, known: _Known) -> PartitionReport:
        commits, ends = self._commits.get(where), self._ends.get(where)
        committed, end = commits[-1].offset if commits else None, ends[-1].offset if ends else None
        return PartitionReport(
            partition=where,
            member=known.owners.get(where),
            position=known.positions.get(where),
            committed=committed,
            start=known.starts.get(where),
            end=end,
            lag=records_behind(committed, end),
            behind=known.behind.get(where),
            rate_in=rate_of(list(ends or ())),
            rate_out=rate_of(list(commits or ())),
            forecast=None,
        )

    def _behind(self, wanted: list[TopicPartition], now_ms: int) -> dict[TopicPartition, TimeBehind]:
        """By the samples that the cluster keeps; where it has none that are old enough, by the timestamp of
        the next record, unless a sample proves it wrong."""
        ends = {where: self._ends[where][-1].offset for where in wanted if where in self._ends}
        committed = {where: self._commits[where][-1].offset for where in ends if where in self._commits}
        lagging = {where for where, offset in committed.items() if offset < ends[where]}
        samples = self._samples.update(lagging)
        found: dict[TopicPartition, TimeBehind | None] = {
            where: time_behind(samples.get(where, ()), offset, ends[where], now_ms)
            for where, offset in committed.items()
        }
        least = {where: behind for where, behind in found.items() if behind is None or behind.at_least}
        unknown = {where: committed[where] for where in least}
        for where, timestamp in timestamps_at(self._bootstrap, unknown).items():
            aged, known = time_behind_by_timestamp(timestamp, now_ms), least[where]
            if known is None or (aged is not None and aged.behind_ms >= known.behind_ms):
                found[where] = aged
        return {where: behind for where, behind in found.items() if behind is not None}

    def _lag(self, where: TopicPartition, end: int) -> int:
        commits = self._commits.get(where)
        return records_behind(commits[-1].offset if commits else None, end) or 0

    def _steps(self, where: TopicPartition) -> int:
        return len({seen.offset for seen in self._commits[where]}) - 1

    @staticmethod
    def _remember(
        kept: dict[TopicPartition, deque[Sighting]], seen: Mapping[TopicPartition, int], now_ms: int
    ) -> None:
        """Drops what is gone (a deleted topic, deleted offsets) and what is older than the window."""
        for where in kept.keys() - seen.keys():
            del kept[where]
        for where, offset in seen.items():
            sightings = kept.setdefault(where, deque())
            if sightings and offset < sightings[-1].offset:
                sightings.clear()  # reset to an earlier place: the rate is computed from here on
            sightings.append(Sighting(now_ms, offset))
            while now_ms - sightings[0].wall_ms > WINDOW_MS:
                sightings.popleft()


def _span_ms(sightings: deque[Sighting]) -> int:
    return sightings[-1].wall_ms - sightings[0].wall_ms if sightings else 0
