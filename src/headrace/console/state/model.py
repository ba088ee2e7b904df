# SPDX-License-Identifier: Apache-2.0
"""What the console knows of a cluster at one moment, as plain values.

No requests, no clock: observing/ fills it from a live cluster, history.py from recorded events. The views
(console/views) turn it into documents. None means "not known", which is not the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    node_id: int
    host: str
    port: int
    rack: str | None = None
    up: bool = True
    since_ms: int | None = None
    """Since when it is up or down, where that was seen or recorded."""
    disk_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    problem: str | None = None
    """Why it needs attention: the error of a request to it."""
    disk_problem: str | None = None
    """Its disk is full, or a log directory cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """A segment of a log, as the leader has it."""

    base: int
    bytes: int
    newest_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """An idempotent producer that a partition's leader remembers."""

    producer_id: int
    last_seen_ms: int | None = None
    transaction_start: int | None = None
    """The offset at which its open transaction begins in the partition; None: none is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDetails:
    """What only the open page of a topic needs."""

    segments: tuple[SegmentState, ...] | None = None
    segments_more: int = 0
    """Older segments that are not listed."""
    producers: tuple[ProducerState, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    partition: int
    leader: int | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    start: int | None = None
    end: int | None = None
    last_stable: int | None = None
    size_bytes: int | None = None
    """Of the leader's replica."""
    rate_in: float | None = None
    """Records per second, over the last samples of the log end."""

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    name: str
    topic_id: str | None = None
    internal: bool = False
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    """Only those that were asked for: the open page's."""
    details: Mapping[int, PartitionDetails] = field(default_factory=dict)
    """By partition; only of the open page's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    assigned: tuple[TopicPartition, ...] = ()
    subscribed: tuple[str, ...] = ()
    """Topics, where the coordinator tells them."""
    joined_ms: int | None = None
    last_commit_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressState:
    """How far a group is in one partition."""

    committed: int | None = None
    position: int | None = None
    """What the owner's last fetch asked for; known on Headrace only."""
    behind_ms: int | None = None
    behind_at_least: bool = False
    rate_out: float | None = None
    """Records per second by which the committed offset moves."""
    behind_since_ms: int | None = None
    """Since when there is something unread, as far as that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    group_id: str
    group_type: str = "classic"
    """classic or consumer (KIP-848)."""
    state: str = ""
    assignor: str = ""
    epoch: int | None = None
    coordinator: int | None = None
    members: tuple[MemberState, ...] = ()
    progress: Mapping[TopicPartition, ProgressState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who had which partitions of a group from a moment on."""

    at_ms: int
    members: tuple[MemberState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of `__headrace_events`, or a difference between two looks at another cluster."""

    at_ms: int
    kind: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at `at_ms`. Cheap to make: mappings of unchanged parts are shared between snapshots."""

    at_ms: int
    live: bool = True
    engine: str = "unknown"
    """headrace, kafka or unknown."""
    cluster_id: str = ""
    records_events: bool | None = None
    """Whether it keeps `__headrace_events`; None: not known yet."""
    events_from_ms: int | None = None
    """The time of the oldest event that is kept; None: none is, or that is not known."""
    controller: int | None = None
    nodes: Mapping[int, NodeState] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    """The newest of the cluster (nodes, leaders, in-sync replicas, topics), oldest first."""
    group_events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    """The newest of each group, oldest first."""
    assignments: Mapping[str, tuple[Assignment, ...]] = field(default_factory=dict)
    """The newest of each group, oldest first; each differs from the one before it."""
    lag_history: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Samples of each group's lag: milliseconds, records; oldest first."""
    problem: str | None = None
    """Why the cluster cannot be read now; the rest is what was known before."""
    unknown: tuple[str, ...] = ()
    """What this cluster does not tell, in sentences for people."""
