# SPDX-License-Identifier: Apache-2.0
"""One group of the coordinator: members of either protocol, and committed offsets.

A driver keeps a Group per group id for each partition of `__consumer_offsets` that its node leads: it makes
one at the first record or request of that id, and may drop it when `is_gone`. Records go to the part they
belong to; transaction markers to every group of the partition. Each part says in its own head what it does.

Which protocol: whoever has members. An empty group of one protocol is deleted by the first member of the
other. A classic group of consumers becomes a KIP-848 group, members and all, when the first heartbeat of that
protocol joins it (online upgrade); its classic members live on inside (classic_members.py) until they are
replaced, or until they are the only ones left: then it becomes a classic group again (online downgrade), with
a rebalance unless the assignment still fits. GroupSettings.migration_policy says which of this may happen;
what may not is refused as Kafka does: GROUP_ID_NOT_FOUND, or the group stays what it is.
Read next: classic/group.py, consumer/group.py, migration.py, offsets.py, machines/machine.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import ApiError
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.classic.membership import GROUP_TYPE as CLASSIC
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.consumer.admission import admit
from headrace.machines.groups.consumer.checks import check_request
from headrace.machines.groups.consumer.events import (
    ConfigChanged,
    ConsumerGroupConfig,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    MetadataChanged,
    RegexResolved,
)
from headrace.machines.groups.consumer.group import ConsumerGroup
from headrace.machines.groups.consumer.member import JOIN_EPOCH, Member
from headrace.machines.groups.consumer.rebalance import Downgrade
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    DeleteGroup,
    ErrorReply,
    GroupDescription,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    RetentionCheck,
    SyncGroup,
    TopicsDeleted,
)
from headrace.machines.groups.migration import MigrationPolicy, downgraded, upgraded
from headrace.machines.groups.offsets import Membership, Offsets, OffsetsSettings, PartitionCheck
from headrace.machines.machine import BaseMachine, Event, Loaded, ReplyToken, Step, TimerFired
from headrace.types import ClusterView
from headrace.wire.coordinator.commit_records import OffsetCommitsRecord
from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE
from headrace.wire.coordinator.group_records import (
    CommittedOffset,
    GroupMetadataRecord,
    OffsetCommitRecord,
    TransactionMarkerRecord,
)
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode

CONSUMER = "Consumer"
_DONE = ErrorCode.none


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    classic: ClassicGroupSettings = field(default_factory=ClassicGroupSettings)
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    offsets: OffsetsSettings = field(default_factory=OffsetsSettings)
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class ConsumerMembership:
    """Membership of a KIP-848 group for its offsets (offsets.Membership)."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    @property
    def exists(self) -> bool:
        return self._group.state.exists

    def check_offset_commit(self, commit: OffsetCommit) -> PartitionCheck | None:
        return self._group.check_offset_commit(commit)

    def committed(self, step: Step, commit: OffsetCommit) -> None:
        """Does not extend the session: KIP-848 members have heartbeats."""

    def check_offset_fetch(self, fetch: OffsetFetch) -> None:
        self._group.check_offset_fetch(fetch)

    def check_offset_delete(self) -> None:
        """Offsets of subscribed topics are refused one by one."""

    def subscribes_to(self, topic: str) -> bool:
        return self._group.subscribes_to(topic)

    def retention_starts(self, committed: CommittedOffset) -> int | None:
        """No record says when such a group became empty."""
        return committed.commit_timestamp


class Group(BaseMachine):
    def __init__(self, group_id: str, settings: GroupSettings, view: ClusterView) -> None:
        super().__init__()
        self.group_id = group_id
        self._settings = settings
        self._consumer_config = settings.consumer
        self._view = view
        self.classic = ClassicGroup(group_id, settings.classic)
        self.offsets = Offsets(group_id, settings.offsets)
        self._consumer: ConsumerGroup | None = None

    @property
    def consumer(self) -> ConsumerGroup:
        if self._consumer is None:
            self._consumer = ConsumerGroup(
                self.group_id, config=self._consumer_config, view=self._view, downgrade=self._downgrade()
            )
        return self._consumer

    def _downgrade(self) -> Downgrade | None:
        if not self._settings.migration_policy.downgrades:
            return None
        return Downgrade(max_size=self._settings.classic.max_size, convert=self._become_classic)

    @property
    def _is_consumer_group(self) -> bool:
        return self._consumer is not None and self._consumer.state.exists

    @property
    def consumer_state(self) -> ConsumerGroupState | None:
        """None: not a KIP-848 group."""
        return self.consumer.state if self._is_consumer_group else None

    @property
    def _members_part(self) -> ConsumerGroup | ClassicGroup:
        return self.consumer if self._is_consumer_group else self.classic

    @property
    def membership(self) -> Membership:
        if self._is_consumer_group:
            return ConsumerMembership(self.consumer)
        return self.classic.membership

    @property
    def is_gone(self) -> bool:
        """The group has no state and can be dropped."""
        return not self.membership.exists and not self.offsets.exist

    # Interface for the driver.

    def apply(self, record: CoordinatorRecord) -> None:
        match record:
            case OffsetCommitsRecord() | OffsetCommitRecord() | TransactionMarkerRecord():
                self.offsets.apply(record)
            case GroupMetadataRecord():
                self.classic.apply(record)
            case _:
                self.consumer.apply(record)

    def snapshot(self) -> Any:
        consumer = self.consumer.snapshot() if self._is_consumer_group else None
        return self.classic.snapshot(), consumer, self.offsets.snapshot()

    def open_tokens(self) -> Iterable[ReplyToken]:
        return self.classic.open_tokens()

    def may_write(self, event: Event) -> bool:
        match event:
            case OffsetFetch() | MetadataChanged() | ConfigChanged() | Loaded():
                return False
            case Heartbeat() | SyncGroup() | JoinGroup():
                return self._members_part.may_write(event)
            case ConsumerGroupHeartbeat():
                return not self._is_consumer_group or self.consumer.may_write(event)
            case TimerFired():
                return self._is_consumer_group or self.classic.may_write(event)
            case TopicsDeleted():
                return self.offsets.concern(event.topics)
            case _:
                return True

    def decide(self, event: Event, step: Step) -> None:
        match event:
            case Heartbeat() | SyncGroup() | LeaveGroup():  # by far the most frequent is the first
                self._members_part.decide(event, step)
            case OffsetCommit() | OffsetFetch() | OffsetDelete():
                self.offsets.decide(event, step, self.membership)
            case JoinGroup():
                self._join(event, step)
            case ConsumerGroupHeartbeat():
                self._consumer_heartbeat(event, step)
            case TimerFired() | Loaded():
                self._tell_both(event, step)
            case MetadataChanged() | RegexResolved() | ConfigChanged():
                self._surroundings(event, step)
            case DeleteGroup():
                step.reply(event.token, ErrorReply(error=self._delete(step)))
            case TopicsDeleted():
                self.offsets.delete_topics(event.topics, step)
            case RetentionCheck():
                if self.offsets.expire(step, self.membership) and self._delete_members_part(step) is _DONE:
                    step.log_event("deleted", reason="empty, and its offsets are past their retention")
            case _:
                self.classic.decide(event, step)

    def _tell_both(self, event: Event, step: Step) -> None:
        self.classic.decide(event, step)
        if self._consumer is not None:
            self._consumer.decide(event, step)

    def _surroundings(self, event: Event, step: Step) -> None:
        if isinstance(event, MetadataChanged):
            self._view = event.view
        elif isinstance(event, ConfigChanged):
            self._consumer_config = event.config
        if self._consumer is not None:
            self._consumer.decide(event, step)

    def _join(self, event: JoinGroup, step: Step) -> None:
        if not self._is_consumer_group:
            self.classic.decide(event, step)
        elif not self._settings.classic.allows_session(event.session_timeout_ms):
            illegal = ErrorCode.invalid_session_timeout
            step.reply(event.token, JoinGroupReply(member_id=event.member_id, error=illegal))
        elif self.consumer.state.members:
            self.consumer.decide(event, step)
        else:
            if event.member_id == NO_MEMBER_ID:
                self.consumer.delete(step)
            self.classic.decide(event, step)

    def _consumer_heartbeat(self, event: ConsumerGroupHeartbeat, step: Step) -> None:
        try:
            if self.classic.membership.exists:
                self._become_consumer_group(event, step)
        except ApiError as refusal:
            reply = ConsumerGroupHeartbeatReply(error=refusal.code, error_message=str(refusal))
            step.reply(event.token, reply)
        else:
            self.consumer.decide(event, step)

    # From one protocol to the other.

    def _become_consumer_group(self, event: ConsumerGroupHeartbeat, step: Step) -> None:
        """Convert to a KIP-848 group; raises ApiError without a change when it cannot be converted."""
        check_request(self.group_id, event, self._consumer_config)
        if event.member_epoch != JOIN_EPOCH:
            message = f"Group {self.group_id} is not a consumer group."
            raise ApiError(ErrorCode.group_id_not_found, message)
        records: list[CoordinatorRecord] = []
        if not self.classic.membership.is_empty:
            policy, max_size = self._settings.migration_policy, self._consumer_config.max_size
            records = upgraded(self.classic.state, policy, max_size, self._view)
        future = ConsumerGroupState(self.group_id)
        for record in records:
            future.apply(record)
        admit(future, event, self._consumer_config)
        self.classic.disband(step)
        if records:
            step.log_event("upgrade", epoch=future.group_epoch, members=len(future.members))
        self.consumer.take_over(step, records)

    def _become_classic(self, step: Step, members: Collection[Member], reason: str | None) -> None:
        """Convert to a classic group with these members."""
        state = self.consumer.state
        generation = state.group_epoch
        classic_members = [downgraded(member, self._view) for member in members]
        step.log_event("downgrade", generation=generation, members=len(members))
        self.consumer.disband(step)
        self._consumer = None
        self.classic.take_over(step, classic_members, generation, reason)

    def _delete(self, step: Step) -> ErrorCode:
        if self.is_gone:
            return ErrorCode.group_id_not_found
        error = self._delete_members_part(step) if self.membership.exists else _DONE
        if error is _DONE:
            self.offsets.delete_all(step)
            step.log_event("deleted", reason="asked for")
        return error

    def _delete_members_part(self, step: Step) -> ErrorCode:
        return self._members_part.delete(step)

    # Reading.

    def describe(self) -> GroupDescription:
        """For ListGroups and DescribeGroups; a group that has offsets and never had members is Empty."""
        if self._is_consumer_group:
            return GroupDescription(
                group_id=self.group_id,
                state=self.consumer.state.state,
                group_type=CONSUMER,
                protocol_type=PROTOCOL_TYPE,
                protocol="",
                members=(),
            )
        description = self.classic.membership.describe()
        if self.classic.membership.exists or not self.offsets.exist:
            return description
        return GroupDescription(
            group_id=self.group_id,
            state="Empty",
            group_type=CLASSIC,
            protocol_type="",
            protocol="",
            members=(),
        )

    def describe_consumer_group(self) -> ConsumerGroupDescription | None:
        """For ConsumerGroupDescribe; None: not a KIP-848 group."""
        return self.consumer.describe() if self._is_consumer_group else None
