# SPDX-License-Identifier: Apache-2.0
"""What `headrace plan` measures: a running topic's producers and consumers, or a trial of one's own handler.

Reads offsets only, so it works on any Kafka and affects no client. Evaluated by capacity.py.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.parallel.record import Record
from headrace.client.tools.group_events import recorded_events
from headrace.client.tools.groups import GroupDescription, Groups
from headrace.client.tools.lag import Sighting, rate_of
from headrace.client.tools.reader import topic_reader
from headrace.types import TopicPartition

POLL_INTERVAL_MS = 500
_SLACK_MS = 2 * POLL_INTERVAL_MS
_EVENTS_SINCE_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRate:
    member_id: str
    rate: float
    busy: bool
    """It had records waiting all the time, so this rate is its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    window_ms: int
    partition_rates: Mapping[int, float]
    group: GroupDescription | None
    consumers: tuple[ConsumerRate, ...]

    @property
    def produce_rate(self) -> float:
        return sum(self.partition_rates.values())

    @property
    def busiest_partition_rate(self) -> float:
        return max(self.partition_rates.values(), default=0.0)

    @property
    def busy(self) -> tuple[ConsumerRate, ...]:
        return tuple(consumer for consumer in self.consumers if consumer.busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    records: int
    seconds: float
    handler_seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def handler_share(self) -> float:
        return min(1.0, self.handler_seconds / self.seconds)


def watch_traffic(
    groups: Groups,
    topic: str,
    group_id: str | None,
    over_ms: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Traffic:
    """Looks at the ends of the topic's partitions, and at what the group commits, for a while."""
    partitions = [
        TopicPartition(topic, partition.index) for partition in groups.describe_topic(topic).partitions
    ]
    group = None if group_id is None else groups.describe_group(group_id)
    ends: dict[TopicPartition, list[Sighting]] = defaultdict(list)
    commits: dict[TopicPartition, list[Sighting]] = defaultdict(list)
    started = time.monotonic()
    while True:
        now_ms = round((time.monotonic() - started) * 1000)
        for where, offset in groups.ends(partitions).items():
            ends[where].append(Sighting(now_ms, offset))
        if group_id is not None:
            for where, offset in groups.committed(group_id).items():
                commits[where].append(Sighting(now_ms, offset))
        if now_ms >= over_ms:
            break
        sleep(POLL_INTERVAL_MS / 1000)
    return Traffic(
        window_ms=now_ms,
        partition_rates={where.partition: rate_of(seen) or 0.0 for where, seen in ends.items()},
        group=group,
        consumers=consumer_rates(group, ends, commits) if group else (),
    )


def consumer_rates(
    group: GroupDescription,
    ends: Mapping[TopicPartition, Sequence[Sighting]],
    commits: Mapping[TopicPartition, Sequence[Sighting]],
) -> tuple[ConsumerRate, ...]:
    """What each member with partitions of the topic committed per second, and whether it was at its limit."""
    found = []
    for member in group.members:
        held = [where for where in member.assigned if where in ends and where in commits]
        if not held:
            continue
        rate_in = sum(rate_of(ends[where]) or 0.0 for where in held)
        found.append(
            ConsumerRate(
                member_id=member.member_id,
                rate=sum(rate_of(commits[where]) or 0.0 for where in held),
                busy=is_busy(_lowest_lag(held, ends, commits), rate_in),
            )
        )
    return tuple(found)


def _lowest_lag(
    held: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, Sequence[Sighting]],
    commits: Mapping[TopicPartition, Sequence[Sighting]],
) -> int:
    """Of the partitions together, over the polls that saw all of them."""
    lags: dict[int, list[int]] = defaultdict(list)
    for where in held:
        end_at = {seen.wall_ms: seen.offset for seen in ends[where]}
        for seen in commits[where]:
            if seen.wall_ms in end_at:
                lags[seen.wall_ms].append(max(0, end_at[seen.wall_ms] - seen.offset))
    return min((sum(each) for each in lags.values() if len(each) == len(held)), default=0)


def is_busy(lowest_lag: int, rate_in: float) -> bool:
    """At every poll the lag was more than can have come in since the poll before."""
    return lowest_lag > rate_in * _SLACK_MS / 1000


def rebalance_times_ms(bootstrap: str | Cluster, groups: Groups, group_id: str) -> list[int] | None:
    """How long the group's rebalances of the last day took; None when nobody wrote it down."""
    since_ms = int(time.time() * 1000) - _EVENTS_SINCE_MS
    events = recorded_events(bootstrap, groups, group_id, since_ms=since_ms, follow=False)
    if events is None:
        return None
    return [int(e.details["took_ms"]) for e in events if e.kind == "assigned" and "took_ms" in e.details]


def typical_ms(times_ms: Sequence[int]) -> float:
    return statistics.median(times_ms)


def largest_leader_share(groups: Groups, topic: str) -> float:
    """The share of the partitions that the node with most of them leads."""
    leaders = [partition.leader for partition in groups.describe_topic(topic).partitions]
    return max(leaders.count(leader) for leader in leaders) / len(leaders)


def run_trial(
    bootstrap: str | Cluster,
    groups: Groups,
    topic: str,
    handle: Callable[[Record], object],
    *,
    records: int,
    over_ms: int,
) -> Trial:
    """Hands the newest records of the topic to a handler, one by one, as one consumer would. Joins no group
    and commits nothing."""
    starts, stops = _newest(groups, topic, records)
    reader = topic_reader(bootstrap, topic, starts, stops)
    count, handler_s, started, ended = 0, 0.0, 0.0, 0.0
    try:
        for read in reader:
            began = time.perf_counter()
            started = started or began
            record = Record(**{name: getattr(read, name) for name in read.__slots__})
            _handle(handle, record)
            ended = time.perf_counter()
            handler_s += ended - began
            count += 1
            if ended - started >= over_ms / 1000:
                break
    finally:
        reader.close()
    if count < 2:
        raise ClientError(
            f"topic {topic!r} holds too few records for a trial",
            next_step=f"produce some that look like the real ones: headrace produce {topic}",
        )
    return Trial(records=count, seconds=max(ended - started, 1e-9), handler_seconds=handler_s)


def _handle(handle: Callable[[Record], object], record: Record) -> None:
    try:
        handle(record)
    except ClientError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise ClientError(
            f"the handler failed for {record}: {type(error).__name__}: {error}",
            next_step="mend it, or try it on another topic",
        ) from error


def _newest(groups: Groups, topic: str, records: int) -> tuple[dict[int, int], dict[int, int]]:
    """The same number from the end of each partition."""
    partitions = [partition.index for partition in groups.describe_topic(topic).partitions]
    begins, ends = groups.offsets(topic, partitions, "earliest"), groups.offsets(topic, partitions, "latest")
    each = -(-records // len(partitions))
    return {index: max(begins[index], ends[index] - each) for index in partitions}, ends
