# SPDX-License-Identifier: Apache-2.0
"""Events and replies of a KIP-848 group: heartbeat, metadata, regular expressions, settings.

The requests that both protocols share are in groups/events.py. Values only. Read next: consumer/group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.machines.groups.consumer.member import Partitions
from headrace.machines.groups.events import GroupRequest
from headrace.machines.machine import Event, Question, ReplyBody
from headrace.principal import ANONYMOUS, Principal
from headrace.types import ClusterView
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupMemberMetadata
from headrace.wire.error_codes import ErrorCode


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeat(GroupRequest):
    """A field that is None (−1 for the time-out) has not changed since the member's last heartbeat.

    `fresh_member_id`: an id nobody has, for version 0, where the coordinator may have to give one.
    `regex_error`: why `subscribed_topic_regex` does not compile, None when it does. Compiling is the
    handler's (linear-time engine, off the loop); whether it matters is decided here.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    owned_partitions: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_member_id: str = ""
    regex_error: str | None = None
    principal: Principal = ANONYMOUS

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as when a member joins or did not get a reply."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None)
            and self.owned_partitions is not None
        )

    def updated(self, before: ConsumerGroupMemberMetadata) -> ConsumerGroupMemberMetadata:
        """The member's subscription after this heartbeat, which makes it a KIP-848 member."""
        if self._changes_nothing_of(before):
            return before
        names, timeout_ms = self.subscribed_topic_names, self.rebalance_timeout_ms
        return ConsumerGroupMemberMetadata(
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=(
                before.subscribed_topic_names if names is None else tuple(sorted(set(names)))
            ),
            subscribed_topic_regex=_newer(self.subscribed_topic_regex, before.subscribed_topic_regex),
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            server_assignor=_newer(self.server_assignor, before.server_assignor),
            instance_id=_newer(self.instance_id, before.instance_id),
            rack_id=_newer(self.rack_id, before.rack_id),
            classic=None,
        )

    def _changes_nothing_of(self, before: ConsumerGroupMemberMetadata) -> bool:
        """True for most heartbeats: they contain only changed fields."""
        return (
            self.subscribed_topic_names is None
            and self.rebalance_timeout_ms == -1
            and self.subscribed_topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
            and self.instance_id in (None, before.instance_id)
            and self.client_id == before.client_id
            and self.client_host == before.client_host
            and before.classic is None
        )


def _newer(given: str | None, before: str | None) -> str | None:
    return before if given is None else given


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply(ReplyBody):
    """`assignment` is None when it has not changed; an empty one revokes everything."""

    error: ErrorCode = ErrorCode.none
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(slots=True, kw_only=True)
class MetadataChanged(Event):
    """A newer picture of the cluster. `topics_created`: there may be topics that the last one had not.

    The group reacts at its next heartbeat, as Apache Kafka does. Sent once before `Loaded` too.
    """

    view: ClusterView
    topics_created: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRegex(Question):
    """Which topics of `view` match these expressions whole? Answered by one `RegexResolved`.

    `principal`, `client_id` and `client_host` are of the member whose heartbeat led here, for authorization.
    """

    group_id: str
    regexes: frozenset[str]
    view: ClusterView
    client_id: str
    client_host: str
    principal: Principal


@dataclass(slots=True, kw_only=True)
class RegexResolved(Event):
    """`topics` by expression; None when the attempt failed, so that the group asks again later.

    `version` is that of the view that was searched.
    """

    topics: Mapping[str, frozenset[str]] | None
    version: int


@dataclass(slots=True, kw_only=True)
class ConfigChanged(Event):
    config: ConsumerGroupConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The settings `group.consumer.*`; the bounds hold what a single group may ask for."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 2**31 - 1
    max_bytes: int = 16 << 20
    """headrace.group.max.bytes."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""

    def for_group(self, own: Mapping[str, int]) -> ConsumerGroupConfig:
        """The settings of one group, such as `consumer.session.timeout.ms`, limited to the bounds."""

        def bounded(setting: str, default: int, low: int, high: int) -> int:
            return min(max(own[setting], low), high) if setting in own else default

        return replace(
            self,
            session_timeout_ms=bounded(
                "consumer.session.timeout.ms",
                self.session_timeout_ms,
                self.min_session_timeout_ms,
                self.max_session_timeout_ms,
            ),
            heartbeat_interval_ms=bounded(
                "consumer.heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                self.min_heartbeat_interval_ms,
                self.max_heartbeat_interval_ms,
            ),
            assignment_interval_ms=bounded(
                "consumer.assignment.interval.ms",
                self.assignment_interval_ms,
                self.min_assignment_interval_ms,
                self.max_assignment_interval_ms,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """`assignment` and `target` by topic name, partitions sorted; topics that are gone are left out."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    assignment: Mapping[str, tuple[int, ...]]
    target: Mapping[str, tuple[int, ...]]
    member_type: int
    """0: still speaks the classic protocol; 1: KIP-848."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescription:
    """ConsumerGroupDescribe; `state` in Kafka's spelling."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
